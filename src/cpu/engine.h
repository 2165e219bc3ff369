// The CPU engine: the whole computation on the calling process's cores, done on return.
#pragma once

#include "cpu/kernels.h"
#include "cross_entropy.h"

namespace gh::cpu {

// Runs `call` with the best instruction set that this processor has.
gh_status cross_entropy(const CrossEntropy &call);

// The same with a given instruction set, which must be available(): for tests and benchmarks.
gh_status cross_entropy(const CrossEntropy &call, Isa isa);

}  // namespace gh::cpu
