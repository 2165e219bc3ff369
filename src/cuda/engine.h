// The CUDA engine: checks that the stream's device can reach the pointers, plans, launches.
#pragma once

#include "cross_entropy.h"
#include "scale_dlogits.h"

namespace gh::cuda {

gh_status cross_entropy(const CrossEntropy &call, gh_stream stream);
gh_status scale_dlogits(const ScaleDlogits &call, gh_stream stream);

// Of the stream's device; see gh_cross_entropy_workspace_size.
gh_status workspace_size(gh_stream stream, size_t &size);

}  // namespace gh::cuda
