#include "cuda/launch.h"

#include "cuda/kernels/block_row.cuh"
#include "cuda/kernels/ring.cuh"
#include "cuda/kernels/small_rows.cuh"

namespace gh::cuda {
namespace {

using SmallRowsKernel = void (*)(RowParameters);
using RingKernel = void (*)(RingParameters);
using BlockRowKernel = void (*)(RowParameters, int64_t cached_vectors);

// Every kernel of one element type.
struct Kernels {
    SmallRowsKernel small_rows[7];  // as small_rows_shapes
    RingKernel ring_aligned;
    RingKernel ring_unaligned;
    BlockRowKernel block_row;
};

template <typename T>
constexpr Kernels kernels_of{
    {small_rows_kernel<T, 0>, small_rows_kernel<T, 1>, small_rows_kernel<T, 2>, small_rows_kernel<T, 3>,
     small_rows_kernel<T, 4>, small_rows_kernel<T, 5>, small_rows_kernel<T, 6>},
    ring_kernel<T, true>,
    ring_kernel<T, false>,
    block_row_kernel<T>};

const Kernels &kernels(gh_dtype dtype) {
    if (dtype == GH_DTYPE_F32) return kernels_of<float>;
    if (dtype == GH_DTYPE_F16) return kernels_of<__half>;
    return kernels_of<__nv_bfloat16>;
}

template <typename... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const Plan &plan, cudaStream_t stream,
                          const Parameters &...parameters) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(plan.cluster_blocks), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = static_cast<unsigned>(plan.blocks);
    config.blockDim = static_cast<unsigned>(plan.threads);
    config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
    config.stream = stream;
    config.attrs = &cluster;
    // Also for clusters of one block: without the attribute, the ring's cluster instructions are illegal.
    config.numAttrs = plan.strategy == Strategy::ring ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, parameters...);
}

// How many clusters of `blocks` ring_kernel blocks run at once; 0 if none does.
int active_clusters(RingKernel kernel, int blocks, int shared_bytes) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = static_cast<unsigned>(blocks);
    config.blockDim = ring_warps * warp_lanes;
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.attrs = &cluster;
    config.numAttrs = 1;
    int count = 0;
    if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess) {
        cudaGetLastError();  // "no" is an answer, not a failure
        return 0;
    }
    return count;
}

}  // namespace

cudaError_t prepare_kernels(DeviceProperties &device) {
    // Code for older architectures, which the driver translates for this device, has no ring: there it is empty.
    cudaFuncAttributes ring_code{};
    if (cudaError_t error = cudaFuncGetAttributes(&ring_code, kernels_of<float>.ring_aligned)) return error;
    const bool has_ring = ring_code.ptxVersion >= 90;
    for (gh_dtype dtype : {GH_DTYPE_F32, GH_DTYPE_F16, GH_DTYPE_BF16}) {
        const Kernels &k = kernels(dtype);
        cudaFuncAttributes attributes{};
        if (cudaError_t error = cudaFuncGetAttributes(&attributes, k.block_row)) return error;
        const int dynamic = device.shared_bytes_per_block - static_cast<int>(attributes.sharedSizeBytes);
        if (cudaError_t error = cudaFuncSetAttribute(k.block_row, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic))
            return error;
        if (!has_ring) continue;
        for (RingKernel ring : {k.ring_aligned, k.ring_unaligned}) {
            if (cudaError_t error = cudaFuncSetAttribute(ring, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                         device.shared_bytes_per_block))
                return error;
            if (cudaError_t error = cudaFuncSetAttribute(ring, cudaFuncAttributeNonPortableClusterSizeAllowed, 1))
                return error;
        }
    }
    for (int i = 0; i < DeviceProperties::cluster_sizes; i++)
        device.ring_clusters[i] =
            has_ring ? active_clusters(kernels_of<float>.ring_aligned, 1 << i, device.shared_bytes_per_block) : 0;
    return cudaSuccess;
}

cudaError_t launch(const CrossEntropy &call, const Plan &plan, cudaStream_t stream) {
    const RowParameters rows{call.logits, call.labels,       call.batch,
                             call.vocab,  call.ignore_index, call.z_loss_multiplier,
                             call.ce_sum, call.z_sum,        call.n_valid};
    const Kernels &k = kernels(call.dtype);
    switch (plan.strategy) {
        case Strategy::small_rows: return launch_kernel(k.small_rows[plan.small_rows], plan, stream, rows);
        case Strategy::ring:
            return launch_kernel(plan.ring.aligned ? k.ring_aligned : k.ring_unaligned, plan, stream,
                                 RingParameters{rows, plan.ring});
        case Strategy::block_row: return launch_kernel(k.block_row, plan, stream, rows, plan.cached_vectors);
    }
    return cudaErrorInvalidValue;
}

}  // namespace gh::cuda
