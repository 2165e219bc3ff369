// The CUDA engine: checks that the stream's device can reach the pointers, plans, launches.
#pragma once

#include "cross_entropy.h"

namespace gh::cuda {

gh_status cross_entropy_fwd_bwd(const CrossEntropy &call, gh_stream stream);

}  // namespace gh::cuda
