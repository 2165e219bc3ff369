// Cross-entropy with gradient for every shape, alignment and architecture: one block per row.
//
// The first pass reads the row from memory for its exp-sum and keeps a copy of its vectors in shared memory, as many as
// fit; the second pass computes the gradient from that copy, and reads again only what did not fit. Rows may start at
// any element: up to per_vector - 1 elements at either end do not fill a vector and are handled one by one.
#pragma once

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/kernels/row_math.cuh"
#include "cuda/kernels/row_sums.cuh"
#include "cuda/ptx.cuh"

namespace gh {

template <typename T>
__global__ void __launch_bounds__(block_row_max_threads)
    block_row_kernel(const __grid_constant__ RowParameters p, const int64_t cached_vectors) {
    constexpr int per_vector = Element<T>::per_vector;
    extern __shared__ __align__(16) uint4 cache[];  // [cached_vectors]
    __shared__ float3 parts[block_row_max_threads / warp_lanes];
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int warp = thread / warp_lanes, lane = thread % warp_lanes, warps = threads / warp_lanes;

    RowSums sums;
    sums.clear();
    for (int64_t row = blockIdx.x; row < p.batch; row += gridDim.x) {
        T *const logits = static_cast<T *>(p.logits) + row * p.vocab;
        const int64_t label = __ldg(p.labels + row);
        const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(logits) % 16 / sizeof(T));
        const int64_t head = min(static_cast<int64_t>((per_vector - misaligned) % per_vector), p.vocab);
        const int64_t row_vectors = (p.vocab - head) / per_vector;
        uint4 *const vectors = reinterpret_cast<uint4 *>(logits + head);
        // This thread's element outside the vectors, if it has one.
        const int64_t inside = row_vectors * per_vector;
        T *const edge = thread < p.vocab - inside ? logits + (thread < head ? thread : thread + inside) : nullptr;

        if (label == p.ignore_index) {
            for (int64_t v = thread; v < row_vectors; v += threads)
                ptx::st_global_cs(vectors + v, make_uint4(0, 0, 0, 0));
            if (edge != nullptr) *edge = Element<T>::from_float(0.0f);
            continue;
        }

        const bool in_range = static_cast<uint64_t>(label) < static_cast<uint64_t>(p.vocab);
        const bool vector_target = in_range && label >= head && label < head + inside;
        const int64_t target_vector = vector_target ? (label - head) / per_vector : -1;
        const int target_element = vector_target ? static_cast<int>((label - head) % per_vector) : 0;
        const bool edge_target = in_range && edge == logits + label;

        // First pass. The label's logit is left out, also of the copy: the sums are over the other classes.
        ExpSum sum;
        float target = 0.0f, edge_logit = 0.0f;
        if (edge != nullptr) {
            edge_logit = Element<T>::to_float(*edge);
            if (edge_target)
                target = edge_logit;
            else
                sum = {fmaxf(edge_logit, -FLT_MAX), exp_minus(edge_logit, fmaxf(edge_logit, -FLT_MAX))};
        }
#pragma unroll 4
        for (int64_t v = thread; v < row_vectors; v += threads) {
            uint4 x = ptx::ld_global_no_allocate(vectors + v);
            if (v == target_vector) target = take_element<T>(x, target_element);
            if (v < cached_vectors) cache[v] = x;
            float f[per_vector];
            Element<T>::unpack(x, f);
            const float max = fmaxf(sum.max, Element<T>::max(x));
            sum.sum *= exp_minus(sum.max, max);
            sum.max = max;
#pragma unroll
            for (int k = 0; k < per_vector; k++) sum.sum += exp_minus(f[k], max);
        }
        sum = combine_warp(sum);
        // One thread of the block has the label's logit, all others have 0.
        for (int distance = 16; distance > 0; distance /= 2) target += __shfl_xor_sync(~0u, target, distance);
        if (lane == 0) parts[warp] = make_float3(sum.max, sum.sum, target);
        __syncthreads();
        const float3 part = lane < warps ? parts[lane] : make_float3(-FLT_MAX, 0.0f, 0.0f);
        sum = combine_warp({part.x, part.y});
        target = part.z;
        for (int distance = 16; distance > 0; distance /= 2) target += __shfl_xor_sync(~0u, target, distance);
        const RowResult result = finish_row(sum, target, in_range, p.z_loss_multiplier);
        if (thread == 0) sums.add_row(sum, target, result.lse);

            // Second pass: every thread meets the vectors that it copied itself.
#pragma unroll 4
        for (int64_t v = thread; v < row_vectors; v += threads) {
            float f[per_vector];
            Element<T>::unpack(v < cached_vectors ? cache[v] : vectors[v], f);
#pragma unroll
            for (int k = 0; k < per_vector; k++) {
                f[k] = softmax(f[k], result) * result.softmax_scale;
                if (v == target_vector && k == target_element) f[k] = target_gradient(result);
            }
            ptx::st_global_cs(vectors + v, Element<T>::pack(f));
        }
        if (edge != nullptr)
            *edge = Element<T>::from_float(edge_target ? target_gradient(result)
                                                       : softmax(edge_logit, result) * result.softmax_scale);
        __syncthreads();  // before the next row's parts
    }
    if (thread == 0) sums.add_to(p.ce_sum, p.z_sum, p.n_valid);
}

}  // namespace gh
