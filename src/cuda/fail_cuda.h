// A CUDA runtime error as a gh_status.
#pragma once

#include <cuda_runtime_api.h>

#include "status.h"

namespace gh::cuda {

inline gh_status fail_cuda(const char *what, cudaError_t error) {
    return fail(GH_ERROR_CUDA, "%s: %s: %s", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

}  // namespace gh::cuda
