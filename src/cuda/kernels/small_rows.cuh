// Cross-entropy for small vocabularies and plain terms: a group of lanes keeps a whole row in registers.
//
// A warp works on 32 / row_lanes rows at once; each lane has up to vectors_per_lane vectors of 16 bytes of its row,
// which lie row_lanes apart. Nothing is exchanged beyond the group's shuffles. While a warp computes, its next rows are
// on their way from memory to L2. Rows start and end at multiples of 16 bytes.
#pragma once

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/kernels/row_math.cuh"
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/sums.cuh"
#include "cuda/kernels/vectors.cuh"
#include "cuda/ptx.cuh"

namespace gh {

// What a lane keeps in shared memory, as registers are short and this is needed once in 32 rows.
struct SmallRowsLane {
    FinishedRow row;  // outputs are computed 32 rows at a time; until then, each lane keeps one row
    bool counts;      // is there a row, and is it one that counts?
    RowSums sums;
};

// Is it the sum of the losses and its gradient, and nothing else? For rows so short, what is done once a row counts.
__device__ __forceinline__ bool is_bare(const CallParameters &p) {
    return p.computes_outputs && p.computes_gradient && p.z_loss_multiplier == 0.0f && p.logit_scale == 1.0f &&
           p.class_weights == nullptr && p.dloss == 1.0f && p.dloss_ptr == nullptr && p.row_dloss == nullptr &&
           p.divisor_parts == 0 && p.row_loss == nullptr && p.row_lse == nullptr && p.row_target_log_prob == nullptr &&
           p.row_statistics == nullptr;
}

// The same call, so that the compiler sees it too.
__device__ __forceinline__ CallParameters as_bare(CallParameters p) {
    p.computes_outputs = p.computes_gradient = true;
    p.label_smoothing = p.z_loss_multiplier = 0.0f;
    p.logit_scale = p.dloss = 1.0f;
    p.class_weights = p.dloss_ptr = p.row_dloss = p.row_dentropy = p.saved_lse = nullptr;
    p.saved_statistics = nullptr;
    p.divisor_parts = p.weight_parts = 0;
    p.row_loss = p.row_lse = p.row_target_log_prob = p.row_entropy = nullptr;
    p.row_argmax = nullptr;
    p.row_statistics = nullptr;
    return p;
}

template <typename T, int row_lanes, int vectors_per_lane, bool bare>
class SmallRowsWarp {
    static constexpr Terms terms = Terms::plain;
    static constexpr int per_vector = Element<T>::per_vector;
    static constexpr int per_word = 4 / sizeof(T);
    static constexpr int rows_per_warp = warp_lanes / row_lanes;
    static constexpr uint32_t minus_infinity = Element<T>::minus_infinity;
    // What stands for a label that is no class.
    static constexpr int out_of_range = -1, ignored = -2, no_row = -3;

    // This lane's part of one row.
    struct Row {
        uint4 x[vectors_per_lane];
        int64_t index;
        int label;
        __device__ bool counts() const { return label >= out_of_range; }
    };

    const CallParameters p;
    const Scale<terms> scale;
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes, member = lane % row_lanes;
    const int my_vectors = static_cast<int>(p.vocab) / per_vector - member;  // vector i * row_lanes of them is mine
    const uint64_t load_policy = ptx::createpolicy_evict_last();
    const uint64_t store_policy = ptx::createpolicy_evict_first();
    CallFactors factors{};
    int kept = 0;
    SmallRowsLane &mine;

    __device__ const uint4 *logits(int64_t row) const {
        return reinterpret_cast<const uint4 *>(static_cast<const T *>(p.logits) + row * p.logits_row_stride) + member;
    }

    __device__ Row load(int64_t first_row) const {
        Row row;
        row.index = first_row + lane / row_lanes;
        row.label = no_row;
        if (row.index < p.batch) {
            const int64_t label = read_label(p, row.index);
            row.label = in_range(p, label) ? static_cast<int>(label) : out_of_range;
            if (label == p.ignore_index) row.label = ignored;
        }
        const uint4 *const vectors = logits(row.index);
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
        const uint4 *const vectors = logits(index);
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

    __device__ RowSum sum_up(const Row &row, float target) const {
        RowSum sum;
        sum.label_in_range = row.label >= 0;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) sum.others.max = fmaxf(sum.others.max, Element<T>::max(row.x[i]));
#pragma unroll
        for (int distance = row_lanes / 2; distance > 0; distance /= 2)
            sum.others.max = fmaxf(sum.others.max, __shfl_xor_sync(~0u, sum.others.max, distance));
        sum.others.sum = sum_exp<T>(scale, row.x, sum.others.max);
#pragma unroll
        for (int distance = row_lanes / 2; distance > 0; distance /= 2)
            sum.others.sum += __shfl_xor_sync(~0u, sum.others.sum, distance);
        const unsigned label = row.label >= 0 ? static_cast<unsigned>(row.label) : 0;
        sum.target = __shfl_sync(~0u, target, static_cast<int>(label / per_vector) % row_lanes, row_lanes);
        return sum;
    }

    template <Form form>
    __device__ void store_gradient(const Row &row, const RowResult &result, uint4 *vectors) const {
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            float f[per_vector];
            Element<T>::unpack(row.x[i], f);
#pragma unroll
            for (int k = 0; k < per_vector; k++) f[k] = class_gradient<terms, form>(scale, result, f[k]);
            if (row.label != no_row && i * row_lanes < my_vectors)
                ptx::st_global_hint(vectors + i * row_lanes, Element<T>::pack(f), store_policy);
        }
    }

    __device__ void compute(Row &row) {
        const unsigned label = row.label >= 0 ? static_cast<unsigned>(row.label) : 0;
        const unsigned target_vector = label / per_vector;
        const bool owner = row.label >= 0 && target_vector % row_lanes == static_cast<unsigned>(member);
        const float target =
            take(row.x, owner ? static_cast<int>(target_vector / row_lanes * per_vector + label % per_vector) : -1);

        RowFactors row_factors{1.0f, 1.0f, 0.0f};
        if (row.counts()) row_factors = load_factors(p, row.index, row.label);
        RowSum sum;
        if (p.computes_outputs) {
            sum = sum_up(row, target);
            if (row.label == ignored && member == 0) store_ignored(p, row.index);
            // The outputs of the warp's rows are left to the groups' lanes number `kept`.
            if (member == kept) {
                mine.row = {sum, row.index, row_factors.weight, 0};
                mine.counts = row.counts();
            }
            if (++kept == row_lanes) add_kept();
        }
        if (!p.computes_gradient) return;
        // Without a row that counts, a gradient of 0: the logits were never loaded and are -inf.
        RowResult result{};
        if (row.counts()) {
            if (!p.computes_outputs) sum = to_row_sum(load_saved(p, row.index), row.label >= 0);
            if (bare) {  // what finish_row() gives, without the terms that are not there
                const RowShares shares(scale, sum);
                result = refer<T>(scale, {0.0f, 0.0f, 1.0f, 0.0f, 0.0f}, shares.max, shares.log2_sum);
            } else if (p.saved_lse != nullptr) {
                result = finish_row_of_lse<T>(p, factors, scale, sum.others.max, row.label >= 0, row_factors);
            } else {
                result = finish_row<T>(p, factors, scale, sum, row_factors, 0.0f);
            }
        }
        T *const dlogits = static_cast<T *>(p.dlogits) + row.index * p.dlogits_row_stride;
        uint4 *const vectors = reinterpret_cast<uint4 *>(dlogits) + member;
        if (fuses_powers<T> && result.subtracted == 0.0f)
            store_gradient<Form::fused>(row, result, vectors);
        else
            store_gradient<bare && !fuses_powers<T> ? Form::softmax : Form::any>(row, result, vectors);
        // The owner has just stored something else there.
        if (owner)
            dlogits[label] =
                Element<T>::from_float(label_gradient(p, factors, scale, sum, row_factors, 0.0f, result, target));
    }

    __device__ void add_kept() {
        if (member < kept && mine.counts) mine.sums.add(p, factors, scale, mine.row, Moments());
        kept = 0;
    }

public:
    __device__ SmallRowsWarp(const CallParameters &parameters, SmallRowsLane &lane_)
        : p(parameters), scale(parameters), mine(lane_) {}

    __device__ void run() {
        constexpr int warps = small_rows_threads / warp_lanes;
        const int64_t stride = static_cast<int64_t>(gridDim.x) * warps * rows_per_warp;
        factors = load_factors(p, lane);
        // All lanes of a warp go round together, so that they may shuffle.
#pragma unroll 1
        for (int64_t first = (static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / warp_lanes) * rows_per_warp;
             first < p.batch; first += stride) {
            Row row = load(first);
            prefetch(first + stride);
            compute(row);
        }
        add_kept();
        mine.sums.combine_lanes();
    }
};

template <typename T, int instance>
__global__ void __launch_bounds__(small_rows_threads, small_rows_shapes[instance].blocks_per_multiprocessor)
    small_rows_kernel(const __grid_constant__ CallParameters p) {
    constexpr int row_lanes = small_rows_shapes[instance].row_lanes;
    constexpr int vectors_per_lane = small_rows_shapes[instance].vectors_per_lane;
    __shared__ SmallRowsLane lanes[small_rows_threads];
    SmallRowsLane &mine = lanes[threadIdx.x];
    mine.sums = RowSums();
    ptx::griddepcontrol_wait();
    if (is_bare(p))
        SmallRowsWarp<T, row_lanes, vectors_per_lane, true>(as_bare(p), mine).run();
    else
        SmallRowsWarp<T, row_lanes, vectors_per_lane, false>(p, mine).run();
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < small_rows_threads / warp_lanes; warp++) mine.sums.add(lanes[warp * warp_lanes].sums);
    store_sums(p, mine.sums, blockIdx.x);
}

}  // namespace gh
