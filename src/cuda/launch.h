// From a plan to a running kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "cross_entropy.h"
#include "plan/plan.h"

namespace gh::cuda {

// Readies the kernels on the current device, once per device and before the first launch there, and says how many
// clusters of ring_kernel blocks fit on it.
cudaError_t prepare_kernels(DeviceProperties &device);

cudaError_t launch(const CrossEntropy &call, const Plan &plan, cudaStream_t stream);

}  // namespace gh::cuda
