// Cross-entropy with gradient for small vocabularies: a group of lanes keeps a whole row in registers.
//
// A warp holds 32 / row_lanes rows at once, every lane up to vectors_per_lane vectors of 16 bytes of its row, a stride
// of row_lanes apart. Nothing is exchanged beyond the group's shuffles, and many warps per multiprocessor hide the
// latency of memory. Rows start and end at multiples of 16 bytes.
#pragma once

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/kernels/row_math.cuh"
#include "cuda/kernels/row_sums.cuh"
#include "cuda/ptx.cuh"

namespace gh {

template <typename T, int vectors_per_lane>
__global__ void __launch_bounds__(small_rows_threads)
    small_rows_kernel(const __grid_constant__ RowParameters p, const int row_lanes) {
    constexpr int per_vector = Element<T>::per_vector;
    constexpr uint32_t minus_infinity = Element<T>::minus_infinity;
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
    const int member = lane % row_lanes, rows_per_warp = warp_lanes / row_lanes;
    const int row_vectors = static_cast<int>(p.vocab) / per_vector;
    const int warps = small_rows_threads / warp_lanes;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * warps * rows_per_warp;
    const int64_t warp_row = (static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / warp_lanes) * rows_per_warp;

    RowSums sums;
    // All lanes of a warp go round together, so that they may shuffle; `here` says which of them have a row.
    for (int64_t first = warp_row; first < p.batch; first += stride) {
        const int64_t row = first + lane / row_lanes;
        const bool here = row < p.batch;
        const int64_t label = here ? __ldg(p.labels + row) : 0;
        const bool counts = here && label != p.ignore_index;
        const bool in_range = static_cast<uint64_t>(label) < static_cast<uint64_t>(p.vocab);
        uint4 *const vectors = reinterpret_cast<uint4 *>(static_cast<T *>(p.logits) + row * p.vocab);

        uint4 x[vectors_per_lane];
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            const int v = i * row_lanes + member;
            x[i] = make_uint4(minus_infinity, minus_infinity, minus_infinity, minus_infinity);
            if (counts && v < row_vectors) x[i] = ptx::ld_global_no_allocate(vectors + v);
        }

        // The lane that holds the label's logit takes it out of the row: the sums are over the other classes.
        const int target_vector = in_range ? static_cast<int>(label) / per_vector : 0;
        const int target_element = in_range ? static_cast<int>(label) % per_vector : 0;
        const bool owner = counts && in_range && target_vector % row_lanes == member;
        float target = 0.0f;
        if (owner) {
#pragma unroll
            for (int i = 0; i < vectors_per_lane; i++)
                if (i == target_vector / row_lanes) target = take_element<T>(x[i], target_element);
        }
        ExpSum sum;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) sum.max = fmaxf(sum.max, Element<T>::max(x[i]));
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            float f[per_vector];
            Element<T>::unpack(x[i], f);
#pragma unroll
            for (int k = 0; k < per_vector; k++) sum.sum += exp_minus(f[k], sum.max);
        }
        for (int distance = row_lanes / 2; distance > 0; distance /= 2)
            sum = combine(sum, {__shfl_xor_sync(~0u, sum.max, distance), __shfl_xor_sync(~0u, sum.sum, distance)});
        // The owner's lane within this lane's own group.
        target = __shfl_sync(~0u, target, lane - member + target_vector % row_lanes);
        const RowResult result = finish_row(sum, target, in_range, p.z_loss_multiplier);
        if (counts && member == 0) sums.add_row(sum, target, result.lse);

#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            const int v = i * row_lanes + member;
            if (here && v < row_vectors) {
                uint4 g = make_uint4(0, 0, 0, 0);
                if (counts) {
                    float f[per_vector];
                    Element<T>::unpack(x[i], f);
#pragma unroll
                    for (int k = 0; k < per_vector; k++) f[k] = softmax(f[k], result) * result.softmax_scale;
                    if (in_range && v == target_vector) {
#pragma unroll
                        for (int k = 0; k < per_vector; k++)
                            if (k == target_element) f[k] = target_gradient(result);
                    }
                    g = Element<T>::pack(f);
                }
                ptx::st_global_cs(vectors + v, g);
            }
        }
    }
    sums.combine_lanes();
    if (lane == 0) sums.add_to(p.ce_sum, p.z_sum, p.n_valid);
}

}  // namespace gh
