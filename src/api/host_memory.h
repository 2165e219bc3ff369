// Is a pointer memory that the CPU may dereference? Asked of the CUDA driver, if the process
// has loaded one; never loads or initialises it, so that CPU-only work stays free of CUDA.
#pragma once

#include "arguments.h"

namespace gh {

gh_status validate_host_memory(const Arguments &arguments);

}  // namespace gh
