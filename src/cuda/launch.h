// From a plan to a running kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "cross_entropy.h"
#include "plan/plan.h"
#include "scale_dlogits.h"

namespace gh::cuda {

// Readies the kernels on the current device, once per device and before the first launch there, and says how many
// clusters of ring_kernel blocks fit on it.
cudaError_t prepare_kernels(DeviceProperties &device);

// Runs a call, of which `plan` is the main kernel: up to two smaller ones come before and after it. A call without rows
// needs no plan.
cudaError_t launch(const CrossEntropy &call, const Plan &plan, const DeviceProperties &device, cudaStream_t stream);

cudaError_t launch(const ScaleDlogits &call, const ScalePlan &plan, cudaStream_t stream);

// Bytes of workspace that suffice for any call.
size_t workspace_size(const DeviceProperties &device);

}  // namespace gh::cuda
