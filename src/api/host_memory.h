// Is a pointer memory that the CPU may dereference? Asked of the CUDA driver, if the process
// has loaded one; never loads or initialises it, so that CPU-only work stays free of CUDA.
#pragma once

#include "cross_entropy.h"

namespace gh {

gh_status validate_host_memory(const CrossEntropy &call);

}  // namespace gh
