// Cross-entropy with gradient for small vocabularies: a group of lanes keeps a whole row in registers.
//
// A warp works on 32 / row_lanes rows at once; each lane has up to vectors_per_lane vectors of 16 bytes of its row,
// which lie row_lanes apart. Nothing is exchanged beyond the group's shuffles. While a warp computes, its next rows are
// on their way from memory to L2. Rows start and end at multiples of 16 bytes.
#pragma once

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/kernels/row_math.cuh"
#include "cuda/kernels/row_sums.cuh"
#include "cuda/ptx.cuh"

namespace gh {

template <typename T, int row_lanes, int vectors_per_lane, bool scaled>
class SmallRowsWarp {
    static constexpr int per_vector = Element<T>::per_vector;
    static constexpr int per_word = 4 / sizeof(T);
    static constexpr int rows_per_warp = warp_lanes / row_lanes;
    static constexpr uint32_t minus_infinity = Element<T>::minus_infinity;
    // What stands for a label that is no class.
    static constexpr int out_of_range = -1, ignored = -2, no_row = -3;

    // This lane's part of one row.
    struct Row {
        uint4 x[vectors_per_lane];
        T *logits;
        int label;
        __device__ bool counts() const { return label >= out_of_range; }
    };

    const RowParameters &p;
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes, member = lane % row_lanes;
    const int my_vectors = static_cast<int>(p.vocab) / per_vector - member;  // vector i * row_lanes of them is mine
    const uint64_t load_policy = ptx::createpolicy_evict_last();
    const uint64_t store_policy = ptx::createpolicy_evict_first();
    // Losses are computed 32 rows at a time; until then, each lane keeps one row's sums.
    ExpSum kept_sum;
    float kept_target = 0.0f, kept_lse = 0.0f;
    bool kept_counts = false;
    int kept = 0;
    RowSums &sums;

    __device__ Row load(int64_t first_row) const {
        const int64_t index = first_row + lane / row_lanes;
        Row row;
        row.label = no_row;
        row.logits = static_cast<T *>(p.logits) + index * p.vocab;
        if (index < p.batch) {
            const int64_t label = __ldg(p.labels + index);
            row.label =
                static_cast<uint64_t>(label) < static_cast<uint64_t>(p.vocab) ? static_cast<int>(label) : out_of_range;
            if (label == p.ignore_index) row.label = ignored;
        }
        const uint4 *const vectors = reinterpret_cast<const uint4 *>(row.logits) + member;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            row.x[i] = make_uint4(minus_infinity, minus_infinity, minus_infinity, minus_infinity);
            if (row.counts() && i * row_lanes < my_vectors)
                row.x[i] = ptx::ld_global_hint(vectors + i * row_lanes, load_policy);
        }
        return row;
    }

    __device__ void prefetch(int64_t first_row) const {
        const int64_t index = first_row + lane / row_lanes;
        if (index >= p.batch) return;
        const T *const logits = static_cast<const T *>(p.logits) + index * p.vocab;
        const uint4 *const vectors = reinterpret_cast<const uint4 *>(logits) + member;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++)
            if (i * row_lanes < my_vectors) ptx::prefetch_global_l2(vectors + i * row_lanes);
    }

    // Takes the label's logit out of this lane's words, so that all sums are over the other classes. `element` counts
    // in this lane's own elements; nothing happens if it is negative.
    __device__ static float take(uint4 (&x)[vectors_per_lane], int element) {
        uint32_t taken = 0;
        const int word = element < 0 ? -1 : element / per_word,
                  shift = (element & 1) * 16;  // not used if a word is an element

        const uint32_t mask = per_word == 1 ? ~0u : 0xffffu << shift;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            uint32_t *const words = &x[i].x;
#pragma unroll
            for (int w = 0; w < 4; w++) {
                if (word == i * 4 + w) {
                    taken = words[w];
                    words[w] = (words[w] & ~mask) | (minus_infinity & mask);
                }
            }
        }
        return Element<T>::from_bits(per_word == 1 ? taken : taken >> shift & 0xffffu);
    }

    __device__ void compute(Row &row) {
        const unsigned label = row.label >= 0 ? static_cast<unsigned>(row.label) : 0;
        const unsigned target_vector = label / per_vector;
        const bool owner = row.label >= 0 && target_vector % row_lanes == static_cast<unsigned>(member);
        float target =
            take(row.x, owner ? static_cast<int>(target_vector / row_lanes * per_vector + label % per_vector) : -1);

        ExpSum sum;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) sum.max = fmaxf(sum.max, Element<T>::max(row.x[i]));
#pragma unroll
        for (int distance = row_lanes / 2; distance > 0; distance /= 2)
            sum.max = fmaxf(sum.max, __shfl_xor_sync(~0u, sum.max, distance));
        float even = 0.0f, odd = 0.0f;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            float f[per_vector];
            Element<T>::unpack(row.x[i], f);
#pragma unroll
            for (int k = 0; k < per_vector; k += 2) {
                even += exp_minus(f[k], sum.max);
                odd += exp_minus(f[k + 1], sum.max);
            }
        }
        sum.sum = even + odd;
#pragma unroll
        for (int distance = row_lanes / 2; distance > 0; distance /= 2)
            sum.sum += __shfl_xor_sync(~0u, sum.sum, distance);
        target = __shfl_sync(~0u, target, static_cast<int>(target_vector) % row_lanes, row_lanes);
        RowResult result = finish_row(sum, target, row.label >= 0, p.z_loss_multiplier);
        if (!row.counts()) result = ignored_row();

        uint4 *const vectors = reinterpret_cast<uint4 *>(row.logits) + member;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            float f[per_vector];
            Element<T>::unpack(row.x[i], f);
#pragma unroll
            for (int k = 0; k < per_vector; k++) {
                f[k] = softmax(f[k], result);
                if (scaled) f[k] *= result.softmax_scale;
            }
            if (row.label != no_row && i * row_lanes < my_vectors)
                ptx::st_global_hint(vectors + i * row_lanes, Element<T>::pack(f), store_policy);
        }
        // The owner has just stored something else there.
        if (owner) row.logits[label] = Element<T>::from_float(target_gradient(result));

        // The losses of the warp's rows are left to the groups' lanes number `kept`.
        if (member == kept) {
            kept_sum = sum;
            kept_target = target;
            kept_lse = result.lse;
            kept_counts = row.counts();
        }
        if (++kept == row_lanes) add_kept();
    }

    __device__ void add_kept() {
        if (member < kept && kept_counts) sums.add_row(kept_sum, kept_target, kept_lse);
        kept = 0;
    }

public:
    __device__ SmallRowsWarp(const RowParameters &parameters, RowSums &lane_sums) : p(parameters), sums(lane_sums) {}

    __device__ void run() {
        constexpr int warps = small_rows_threads / warp_lanes;
        const int64_t stride = static_cast<int64_t>(gridDim.x) * warps * rows_per_warp;
        int64_t first = (static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / warp_lanes) * rows_per_warp;
        if (first >= p.batch) return;
            // All lanes of a warp go round together, so that they may shuffle.
#pragma unroll 1
        for (; first < p.batch; first += stride) {
            Row row = load(first);
            prefetch(first + stride);
            compute(row);
        }
        add_kept();
        sums.combine_lanes();
        if (lane == 0) sums.add_to(p.ce_sum, p.z_sum, p.n_valid);
    }
};

template <typename T, int instance>
__global__ void __launch_bounds__(small_rows_threads, small_rows_shapes[instance].blocks_per_multiprocessor)
    small_rows_kernel(const __grid_constant__ RowParameters p) {
    constexpr int row_lanes = small_rows_shapes[instance].row_lanes;
    constexpr int vectors_per_lane = small_rows_shapes[instance].vectors_per_lane;
    // In shared memory, as registers are short and these are needed once in 32 rows.
    __shared__ RowSums sums[small_rows_threads];
    RowSums &mine = sums[threadIdx.x];
    mine.clear();
    if (p.z_loss_multiplier == 0.0f)
        SmallRowsWarp<T, row_lanes, vectors_per_lane, false>(p, mine).run();
    else
        SmallRowsWarp<T, row_lanes, vectors_per_lane, true>(p, mine).run();
}

}  // namespace gh
