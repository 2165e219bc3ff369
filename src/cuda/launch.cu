#include "cuda/launch.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>

#include "cuda/kernels/block_row.cuh"
#include "cuda/kernels/ring.cuh"
#include "cuda/kernels/scale.cuh"
#include "cuda/kernels/small_rows.cuh"
#include "cuda/kernels/sums.cuh"

namespace gh::cuda {
namespace {

using SmallRowsKernel = void (*)(SmallRowsParameters);
using RingKernel = void (*)(RingParameters);
using BlockRowKernel = void (*)(CallParameters, int64_t cached_vectors);
using ScaleKernel = void (*)(ScaleParameters);

constexpr int terms_count = 3;

struct KernelsOfTerms {
    SmallRowsKernel small_rows[7];  // as small_rows_shapes
    RingKernel ring_aligned;
    RingKernel ring_unaligned;
    BlockRowKernel block_row;
};

// Every kernel of one element type. All options that are not in the types of the kernels are read while they run.
struct Kernels {
    KernelsOfTerms of_terms[terms_count];
    ScaleKernel scale;
};

template <typename T, Terms terms>
constexpr KernelsOfTerms kernels_of_terms{
    {small_rows_kernel<T, 0, terms>, small_rows_kernel<T, 1, terms>, small_rows_kernel<T, 2, terms>,
     small_rows_kernel<T, 3, terms>, small_rows_kernel<T, 4, terms>, small_rows_kernel<T, 5, terms>,
     small_rows_kernel<T, 6, terms>},
    ring_kernel<T, true, terms>,
    ring_kernel<T, false, terms>,
    block_row_kernel<T, terms>};

template <typename T>
constexpr Kernels kernels_of{
    {kernels_of_terms<T, Terms::plain>, kernels_of_terms<T, Terms::extended>, kernels_of_terms<T, Terms::capped>},
    scale_kernel<T>};

const Kernels &kernels(gh_dtype dtype) {
    if (dtype == GH_DTYPE_F32) return kernels_of<float>;
    if (dtype == GH_DTYPE_F16) return kernels_of<__half>;
    return kernels_of<__nv_bfloat16>;
}

// How one kernel of a call is launched.
struct Launch {
    int blocks;
    int threads;
    int shared_bytes;
    int cluster_blocks;  // 0: without clusters
    // Started while the kernel before it in the stream may still run: it waits by itself.
    bool overlaps;
};

template <typename... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const Launch &launch, cudaStream_t stream,
                          const Parameters &...parameters) {
    cudaLaunchAttribute attributes[2]{};
    unsigned count = 0;
    // Also for clusters of one block: without the attribute, the ring's cluster instructions are illegal.
    if (launch.cluster_blocks > 0) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count++].val.clusterDim = {static_cast<unsigned>(launch.cluster_blocks), 1, 1};
    }
    if (launch.overlaps) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = static_cast<unsigned>(launch.blocks);
    config.blockDim = static_cast<unsigned>(launch.threads);
    config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    return cudaLaunchKernelEx(&config, kernel, parameters...);
}

SoftcapParameters softcap_parameters(double logit_scale, double softcap) {
    // tanh(u) / u in u^2, minimax for |u| <= near_unit: relative error below 1.5e-8.
    constexpr double near_unit = 0.5, series[5] = {1.0, -0.33333144, 0.13325879, -0.05304549, 0.01724149};
    constexpr double log2_e = 1.4426950408889634;
    const auto finite = [](double x) { return static_cast<float>(std::min<double>(x, FLT_MAX)); };
    SoftcapParameters p{};
    p.bits = finite(softcap * log2_e);
    p.inverse_bits = finite(1.0 / (softcap * log2_e));
    p.to_unit = finite(logit_scale / softcap);
    p.near_limit = finite(near_unit * softcap / logit_scale);
    for (int i = 0; i < 5; i++)
        p.near_series[i] =
            std::copysign(finite(std::fabs(logit_scale * log2_e * series[i])), static_cast<float>(series[i]));
    return p;
}

CallParameters parameters_of(const CrossEntropy &call) {
    CallParameters p{};
    p.logits = call.logits;
    p.dlogits = call.dlogits;
    p.logits_row_stride = call.logits_row_stride;
    p.dlogits_row_stride = call.dlogits_row_stride;
    p.labels = call.labels;
    p.batch = call.batch;
    p.vocab = call.vocab;
    p.ignore_index = call.ignore_index;
    p.labels_are_32_bits = call.label_dtype == GH_LABEL_I32;
    p.computes_outputs = call.pass != Pass::backward;
    p.computes_gradient = call.pass != Pass::forward;
    p.label_smoothing = call.label_smoothing;
    p.z_loss_multiplier = call.z_loss_multiplier;
    p.logit_scale = call.logit_scale;
    if (call.softcap > 0.0f)
        p.softcap = softcap_parameters(static_cast<double>(call.logit_scale), static_cast<double>(call.softcap));
    p.class_weights = call.class_weights;
    p.needs_argmax = call.needs_argmax();
    p.needs_entropy = call.needs_entropy();
    p.dloss = call.dloss;
    p.dloss_ptr = call.dloss_ptr;
    p.row_dloss = call.row_dloss;
    p.row_dentropy = call.row_dentropy;
    p.saved_statistics = static_cast<const RowStatistics *>(call.saved_statistics);
    p.saved_lse = call.saved_lse;
    p.row_loss = call.row_loss;
    p.row_lse = call.row_lse;
    p.row_target_log_prob = call.row_target_log_prob;
    p.row_entropy = call.row_entropy;
    p.row_argmax = call.row_argmax;
    p.row_statistics = static_cast<RowStatistics *>(call.row_statistics);
    p.loss = call.loss;
    p.z_loss = call.z_loss;
    p.n_valid = call.n_valid;
    p.n_correct = call.n_correct;
    p.n_out_of_range = call.n_out_of_range;
    p.z_in_loss = call.z_in_loss();
    p.z_in_z_loss = call.z_in_z_loss();
    p.overwrite_sums = call.overwrite_sums;
    p.workspace = static_cast<Workspace *>(call.workspace);
    return p;
}

SmallRowsSteps small_rows_steps(const CrossEntropy &call, const Plan &plan) {
    const int64_t rows = int64_t{plan.blocks} * (plan.threads / small_rows_shapes[plan.small_rows].row_lanes);
    const int64_t row_bytes = rows * static_cast<int64_t>(element_size(call.dtype));
    return {rows, row_bytes * call.logits_row_stride, row_bytes * call.dlogits_row_stride,
            rows * static_cast<int64_t>(label_size(call.label_dtype))};
}

cudaError_t launch_main(const CrossEntropy &call, const Plan &plan, const CallParameters &p, bool overlaps,
                        cudaStream_t stream) {
    const Kernels &k = kernels(call.dtype);
    const auto &of_terms = k.of_terms[static_cast<int>(plan.terms)];
    Launch launch{plan.blocks, plan.threads, plan.shared_bytes, 0, overlaps};
    switch (plan.strategy) {
        case Strategy::small_rows:
            return launch_kernel(of_terms.small_rows[plan.small_rows], launch, stream,
                                 SmallRowsParameters{p, small_rows_steps(call, plan)});
        case Strategy::ring:
            launch.cluster_blocks = plan.cluster_blocks;
            return launch_kernel(plan.ring.aligned ? of_terms.ring_aligned : of_terms.ring_unaligned, launch, stream,
                                 RingParameters{p, plan.ring});
        case Strategy::block_row: return launch_kernel(of_terms.block_row, launch, stream, p, plan.cached_vectors);
    }
    return cudaErrorInvalidValue;
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
    if (cudaError_t error = cudaFuncGetAttributes(&ring_code, kernels_of<float>.of_terms[0].ring_aligned)) return error;
    const bool has_ring = ring_code.ptxVersion >= 90;
    device.overlaps_launches = has_ring;  // by the same code
    for (gh_dtype dtype : {GH_DTYPE_F32, GH_DTYPE_F16, GH_DTYPE_BF16}) {
        for (const auto &k : kernels(dtype).of_terms) {
            cudaFuncAttributes attributes{};
            if (cudaError_t error = cudaFuncGetAttributes(&attributes, k.block_row)) return error;
            const int dynamic = device.shared_bytes_per_block - static_cast<int>(attributes.sharedSizeBytes);
            if (cudaError_t error =
                    cudaFuncSetAttribute(k.block_row, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic))
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
    }
    for (int i = 0; i < DeviceProperties::cluster_sizes; i++)
        device.ring_clusters[i] = has_ring ? active_clusters(kernels_of<float>.of_terms[0].ring_aligned, 1 << i,
                                                             device.shared_bytes_per_block)
                                           : 0;
    return cudaSuccess;
}

cudaError_t launch(const CrossEntropy &call, const Plan &plan, const DeviceProperties &device, cudaStream_t stream) {
    CallParameters p = parameters_of(call);
    const bool divides = call.mean && call.batch > 0, weighs = call.smooths_by_weight() && call.batch > 0;
    const int64_t terms_to_sum = std::max(divides ? call.batch : 0, weighs ? call.vocab : 0);
    const int prepare_blocks = static_cast<int>(std::clamp<int64_t>(terms_to_sum / (4 * sums_threads), 1, max_parts));
    p.divisor_parts = divides ? prepare_blocks : 0;
    p.weight_parts = weighs ? prepare_blocks : 0;
    const bool sums_rows = p.computes_outputs && (p.loss || p.z_loss || p.n_valid || p.n_correct || p.n_out_of_range);
    p.totals = sums_rows && p.workspace != nullptr ? plan.totals : 0;

    // Kernels of one call may overlap where they know how to wait.
    const bool can_overlap = device.overlaps_launches;
    const bool prepares = terms_to_sum > 0 || (sums_rows && p.overwrite_sums && p.totals == 0);
    if (prepares)
        if (cudaError_t error = launch_kernel(prepare_kernel, {prepare_blocks, sums_threads, 0, 0, false}, stream, p))
            return error;
    if (call.batch > 0)
        if (cudaError_t error = launch_main(call, plan, p, prepares && can_overlap, stream)) return error;
    if (p.totals == 0) return cudaSuccess;
    return launch_kernel(finish_sums_kernel, {1, sums_threads, 0, 0, can_overlap}, stream, p);
}

cudaError_t launch(const ScaleDlogits &call, const ScalePlan &plan, cudaStream_t stream) {
    const ScaleParameters p{plan.shape, call.dlogits, call.dlogits_row_stride, call.dloss_ptr};
    return launch_kernel(kernels(call.dtype).scale, {plan.blocks, scale_threads, 0, 0, false}, stream, p);
}

size_t workspace_size(const DeviceProperties &device) {
    return offsetof(Workspace, totals) + static_cast<size_t>(max_totals(device)) * sizeof(RowTotals);
}

}  // namespace gh::cuda
