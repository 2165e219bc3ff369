// The CPU engine: the whole computation on the calling process's cores, done on return.
#pragma once

#include "cross_entropy.h"

namespace gh::cpu {

gh_status cross_entropy_fwd_bwd(const CrossEntropy &call);

}  // namespace gh::cpu
