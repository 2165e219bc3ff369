// Cross-entropy for small vocabularies and plain terms: a group of lanes keeps a whole row in registers.
//
// A warp works on 32 / row_lanes rows at once; each lane has up to vectors_per_lane vectors of 16 bytes of its row,
// which lie row_lanes apart. They arrive in shared memory, in a slot for each lane: while a warp computes, its next
// rows are on their way. A lane reads what it has copied itself, so nothing is exchanged beyond the group's shuffles.
// Rows start and end at multiples of 16 bytes.
//
//   slot       row i+1 arrives .................... | row i+2 arrives ...
//   registers  row i: maximum, exponentials, gradient | row i+1: ...
//
// For 16-bit logits the exponentials that a row's sum is made of stay in registers, and the gradient is made of them:
// see refer().
#pragma once

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/kernels/row_math.cuh"
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/sums.cuh"
#include "cuda/kernels/vectors.cuh"
#include "cuda/ptx.cuh"

namespace gh {

constexpr int small_rows_warps = small_rows_threads / warp_lanes;

// Is there nothing to do for a row but its share in the sums, and its gradient, without anything upstream of its own?
// For rows so short, what is done once a row counts.
__device__ __forceinline__ bool is_bare(const CallParameters &p, const CallFactors &factors) {
    return fabsf(factors.loss * p.logit_scale) < FLT_MAX / 2 && p.computes_outputs && p.computes_gradient &&
           p.z_loss_multiplier == 0.0f && p.class_weights == nullptr && p.row_dloss == nullptr &&
           p.row_loss == nullptr && p.row_lse == nullptr && p.row_target_log_prob == nullptr &&
           p.row_statistics == nullptr;
}

// The same call, so that the compiler sees it too.
__device__ __forceinline__ CallParameters as_bare(CallParameters p) {
    p.computes_outputs = p.computes_gradient = true;
    p.label_smoothing = p.z_loss_multiplier = 0.0f;
    p.class_weights = p.row_dloss = p.row_dentropy = p.saved_lse = nullptr;
    p.saved_statistics = nullptr;
    p.weight_parts = 0;
    p.row_loss = p.row_lse = p.row_target_log_prob = p.row_entropy = nullptr;
    p.row_argmax = nullptr;
    p.row_statistics = nullptr;
    return p;
}

template <typename T, int row_lanes, int vectors_per_lane, bool bare>
class SmallRowsWarp {
    static constexpr Terms terms = Terms::plain;
    static constexpr int per_vector = Element<T>::per_vector;
    static constexpr int elements = vectors_per_lane * per_vector;  // of one lane
    static constexpr int rows_per_warp = warp_lanes / row_lanes;
    static constexpr uint32_t minus_infinity = Element<T>::minus_infinity;
    // What stands for a label that is no class.
    static constexpr int out_of_range = -1, ignored = -2, no_row = -3;

    // A row whose outputs are yet to be computed.
    struct KeptRow {
        ExpSum others;
        float target;
        int label;
    };

    const CallParameters p;
    const Scale<terms> scale;
    const CallFactors factors;
    // Of a bare call, all rows have the same factors.
    const RowResult bare_factors;
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes, member = lane % row_lanes;
    const int my_vectors = static_cast<int>(p.vocab) / per_vector - member;  // vector i * row_lanes of them is mine
    // From round to round, and in the first.
    const int64_t stride = static_cast<int64_t>(gridDim.x) * small_rows_warps * rows_per_warp;
    const int64_t warp_first =
        (static_cast<int64_t>(blockIdx.x) * small_rows_warps + threadIdx.x / warp_lanes) * rows_per_warp;
    const int64_t first = warp_first + lane / row_lanes;
    uint4 *const slot;  // this lane's vectors are warp_lanes apart
    RowSums &sums;
    // Outputs are computed 32 rows at a time; until then, each lane keeps one row.
    KeptRow kept{ExpSum(), 0.0f, no_row};

    __device__ static bool counts(int label) { return label >= out_of_range; }

    __device__ int to_class(LabelBits bits) const {
        const int64_t label = to_label(p, bits);
        const int in_row = in_range(p, label) ? static_cast<int>(label) : out_of_range;
        return label == p.ignore_index ? ignored : in_row;
    }

    __device__ LabelBits read_bits(const unsigned char *at) const {
        if (p.labels_are_32_bits) return __ldg(reinterpret_cast<const uint32_t *>(at));
        return static_cast<LabelBits>(__ldg(reinterpret_cast<const int64_t *>(at)));
    }

    __device__ void fill_slot(uint32_t word, int vectors) const {
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++)
            if (i * row_lanes < vectors) slot[i * warp_lanes] = make_uint4(word, word, word, word);
    }

    // Starts the copy of a row. A row that does not count becomes numbers of which nothing comes.
    __device__ void load(int label, const unsigned char *vectors) const {
        const int loaded = counts(label) ? my_vectors : 0;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++)
            ptx::cp_async_16_if(i * row_lanes < loaded, slot + i * warp_lanes, vectors + i * row_lanes * sizeof(uint4),
                                ptx::evict_last_policy);
        if (!counts(label)) fill_slot(0, my_vectors);
    }

    // Takes the label's logit out of the slot of the lane that has it, so that all sums are over the other classes.
    __device__ float take(int label) const {
        const unsigned vector = static_cast<unsigned>(label) / per_vector;
        T *const element = reinterpret_cast<T *>(slot + vector / row_lanes * warp_lanes) + label % per_vector;
        const float logit = Element<T>::to_float(*element);
        *element = Element<T>::from_float(-INFINITY);
        ptx::reload_memory();
        return logit;
    }

    __device__ float max_of_row(float x) const {
        if constexpr (row_lanes == warp_lanes) {
            return max_warp(x);
        } else {
#pragma unroll
            for (int distance = row_lanes / 2; distance > 0; distance /= 2)
                x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
            return x;
        }
    }

    __device__ float sum_of_row(float x) const {
#pragma unroll
        for (int distance = row_lanes / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
        return x;
    }

    // The sum of a row's exponentials. They replace the logits if the gradient can be made of them.
    __device__ float sum_up(float (&f)[elements], float max, bool replaces) const {
        float parts[2] = {0.0f, 0.0f};  // so that one addition need not wait for the other
        if (replaces) {
            const FusedPowers powers(scale, max);
#pragma unroll
            for (int k = 0; k < elements; k++) {
                f[k] = ptx::ex2_approx_ftz(fmaf(f[k], scale.bits, -powers.product));
                parts[k % 2] += f[k];
            }
            return (parts[0] + parts[1]) * ptx::ex2_approx_ftz(-powers.excess);
        }
#pragma unroll
        for (int k = 0; k < elements; k++) parts[k % 2] += scale.exp_minus(f[k], max);
        return parts[0] + parts[1];
    }

    __device__ void store_gradient(float (&f)[elements], const RowResult &result, bool has_exponentials, int label,
                                   unsigned char *vectors) const {
        if (has_exponentials) {
#pragma unroll
            for (int k = 0; k < elements; k++) f[k] *= result.scale;
        } else {
#pragma unroll
            for (int k = 0; k < elements; k++) f[k] = class_gradient<terms, Form::any>(scale, result, f[k]);
        }
        const int stored = label == no_row ? 0 : my_vectors;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++)
            ptx::st_global_hint_if(i * row_lanes < stored,
                                   reinterpret_cast<uint4 *>(vectors + i * row_lanes * sizeof(uint4)),
                                   Element<T>::pack(f + i * per_vector), ptx::evict_first_policy);
    }

    // All of a row whose vectors have arrived, but its outputs, which are kept by the group's lane `keeper`.
    // `load_next` starts the copy of what follows in the slot.
    template <typename LoadNext>
    __device__ void compute(int64_t index, int label, unsigned char *dlogits, int keeper, LoadNext load_next) {
        const unsigned target_vector = static_cast<unsigned>(label) / per_vector;
        const bool owner = label >= 0 && target_vector % row_lanes == static_cast<unsigned>(member);
        RowFactors row_factors{1.0f, 1.0f, 0.0f};
        if (!bare && counts(label)) row_factors = load_factors(p, index, label);
        ptx::cp_async_wait_all();
        float target = 0.0f;
        if (owner) target = take(label);
        uint4 x[vectors_per_lane];
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) x[i] = slot[i * warp_lanes];
        load_next();
        float f[elements];
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) Element<T>::unpack(x[i], f + i * per_vector);

        RowSum sum;
        bool has_exponentials = false;
        if (p.computes_outputs) {
            sum.label_in_range = label >= 0;
            sum.others.max = max_of_row(fmaxf(max_element<T>(x), sum.others.max));
            if constexpr (fuses_powers<T>) has_exponentials = FusedPowers(scale, sum.others.max).hold();
            sum.others.sum = sum_of_row(sum_up(f, sum.others.max, has_exponentials));
            sum.target = __shfl_sync(~0u, target, static_cast<int>(target_vector), row_lanes);
            if (member == keeper) kept = {sum.others, sum.target, label};
            if (label == ignored && member == 0) store_ignored(p, index);
        }
        if (!p.computes_gradient) return;
        if (!p.computes_outputs && counts(label)) sum = to_row_sum(load_saved(p, index), label >= 0);
        const RowShares shares(scale, sum);
        RowResult result{};
        if (bare) {
            result = refer<T, true>(scale, bare_factors, shares);
            if (!counts(label)) result = RowResult{};
        } else if (counts(label)) {
            result = p.saved_lse != nullptr
                         ? finish_row_of_lse<T>(p, factors, scale, sum.others.max, label >= 0, row_factors)
                         : refer<T>(scale, softmax_factors(p, factors, scale, shares, row_factors, 0.0f), shares);
        }
        store_gradient(f, result, has_exponentials, label, dlogits);
        // The owner has just stored something else there.
        if (owner)
            ptx::st_global(
                reinterpret_cast<T *>(dlogits) + (label - member * per_vector),
                Element<T>::to_bits(label_gradient(p, factors, scale, sum, shares, row_factors, 0.0f, result, target)));
    }

    // The row of this lane's group in a round.
    __device__ int64_t row_of(int round) const {
        return first + round * stride;
    }

    // After `round`, in which lane round % row_lanes of each group kept a row.
    __device__ void add_kept(int round) {
        if (counts(kept.label)) {
            const int64_t index = row_of(round - round % row_lanes + member);
            const float weight = load_factors(p, index, kept.label).weight;
            sums.add(p, factors, scale, {{kept.others, kept.target, kept.label >= 0}, index, weight, 0}, Moments());
        }
        kept.label = no_row;
    }

public:
    // `lane_sums` is this lane's, in shared memory: it is needed once in 32 rows, and registers are short.
    __device__ SmallRowsWarp(const CallParameters &parameters, const CallFactors &call_factors, uint4 *warp_slots,
                             RowSums &lane_sums)
        : p(parameters),
          scale(parameters),
          factors(call_factors),
          bare_factors(softmax_factors(p, factors, scale, RowShares(0.0f), {1.0f, 1.0f, 0.0f}, 0.0f)),
          slot(warp_slots + lane),
          sums(lane_sums) {}

    __device__ void run() {
        // All lanes of a warp go round together, so that they may shuffle; in the last round some have no row.
        const int rounds = warp_first < p.batch ? static_cast<int>((p.batch - warp_first - 1) / stride) + 1 : 0;
        const int my_rounds = rounds - (first + (rounds - 1) * stride >= p.batch ? 1 : 0);

        const int label_bytes = p.labels_are_32_bits ? 4 : 8;
        const int64_t label_step = ptx::opaque(stride * label_bytes);
        const int64_t logits_step = ptx::opaque(stride * p.logits_row_stride * static_cast<int64_t>(sizeof(T)));
        const int64_t dlogits_step = ptx::opaque(stride * p.dlogits_row_stride * static_cast<int64_t>(sizeof(T)));
        const unsigned char *labels = static_cast<const unsigned char *>(p.labels) + first * label_bytes;
        const unsigned char *logits = reinterpret_cast<const unsigned char *>(
            static_cast<const T *>(p.logits) + first * p.logits_row_stride + member * per_vector);
        unsigned char *dlogits = reinterpret_cast<unsigned char *>(static_cast<T *>(p.dlogits) +
                                                                   first * p.dlogits_row_stride + member * per_vector);
        fill_slot(minus_infinity, INT_MAX);  // where the row has nothing, it stays so
        // Labels are read two rounds ahead, as it takes one to know whether the row is to be loaded.
        int label = my_rounds > 0 ? to_class(read_bits(labels)) : no_row;
        labels += label_step;
        LabelBits next_bits = my_rounds > 1 ? read_bits(labels) : 0;
        load(label, logits);
#pragma unroll 1
        for (int round = 0; round < rounds; round++) {
            const int next_label = round + 1 < my_rounds ? to_class(next_bits) : no_row;
            labels += label_step;
            if (round + 2 < my_rounds) next_bits = read_bits(labels);
            logits += logits_step;
            compute(row_of(round), label, dlogits, round % row_lanes, [&] { load(next_label, logits); });
            dlogits += dlogits_step;
            label = next_label;
            if (p.computes_outputs && (round + 1) % row_lanes == 0) add_kept(round);
        }
        add_kept(rounds - 1);
        sums.combine_lanes();
    }
};

template <typename T, int instance>
__global__ void __launch_bounds__(small_rows_threads, small_rows_shapes[instance].blocks_per_multiprocessor)
    small_rows_kernel(const __grid_constant__ CallParameters p) {
    constexpr int row_lanes = small_rows_shapes[instance].row_lanes;
    constexpr int vectors_per_lane = small_rows_shapes[instance].vectors_per_lane;
    __shared__ uint4 slots[small_rows_warps][vectors_per_lane][warp_lanes];
    __shared__ RowSums sums[small_rows_threads];
    uint4 *const warp_slots = slots[threadIdx.x / warp_lanes][0];
    RowSums &mine = sums[threadIdx.x];
    mine = RowSums();
    ptx::griddepcontrol_wait();
    const CallFactors factors = load_factors(p, static_cast<int>(threadIdx.x) % warp_lanes);
    if (is_bare(p, factors))
        SmallRowsWarp<T, row_lanes, vectors_per_lane, true>(as_bare(p), factors, warp_slots, mine).run();
    else
        SmallRowsWarp<T, row_lanes, vectors_per_lane, false>(p, factors, warp_slots, mine).run();
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < small_rows_warps; warp++) mine.add(sums[warp * warp_lanes]);
    store_sums(p, mine, blockIdx.x);
}

}  // namespace gh
