// Cross-entropy for small vocabularies: a group of lanes keeps a whole row in registers.
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

// A row whose outputs are yet to be computed.
struct alignas(16) KeptRow {
    ExpSum others;
    float target;
    int label;
};

struct alignas(16) KeptMoments {
    float entropy, below, weight;
    int argmax;
};

// What a lane has in shared memory, as registers are short. Outputs are computed 32 rows at a time; until then, each
// lane keeps one row.
struct SmallRowsLane {
    KeptRow row;
    KeptMoments moments;  // extended terms only
    RowSums sums;
};

// For rows so short, what is done once a row counts. So each kernel has a second body for the usual calls, in which the
// gradient's factors are the same for all rows, but for their sums. With plain terms, these have a gradient and no
// outputs per row.
template <Terms terms>
__device__ __forceinline__ bool is_usual(const CallParameters &p, const CallFactors &factors) {
    const bool equal_factors = fabsf(factors.loss * p.logit_scale) < FLT_MAX / 2 && p.z_loss_multiplier == 0.0f &&
                               p.class_weights == nullptr && p.row_dloss == nullptr && p.row_dentropy == nullptr;
    const bool sums_only = p.row_loss == nullptr && p.row_lse == nullptr && p.row_target_log_prob == nullptr &&
                           p.row_statistics == nullptr;
    return p.computes_outputs && equal_factors && (terms != Terms::plain || (p.computes_gradient && sums_only));
}

// The same call, so that the compiler sees it too.
template <Terms terms>
__device__ __forceinline__ CallParameters as_usual(CallParameters p) {
    p.computes_outputs = true;
    p.z_loss_multiplier = 0.0f;
    p.class_weights = p.row_dloss = p.row_dentropy = p.saved_lse = nullptr;
    p.saved_statistics = nullptr;
    p.weight_parts = 0;
    if (terms == Terms::plain) {
        p.computes_gradient = true;
        p.label_smoothing = 0.0f;
        p.row_loss = p.row_lse = p.row_target_log_prob = p.row_entropy = nullptr;
        p.row_argmax = nullptr;
        p.row_statistics = nullptr;
    }
    return p;
}

template <typename T, int row_lanes, int vectors_per_lane, Terms terms, bool usual>
class SmallRowsWarp {
    static constexpr bool extended = terms != Terms::plain;
    static constexpr int per_vector = Element<T>::per_vector;
    static constexpr int per_word = 4 / sizeof(T);
    static constexpr int elements = vectors_per_lane * per_vector;  // of one lane
    static constexpr int rows_per_warp = warp_lanes / row_lanes;
    static constexpr uint32_t minus_infinity = Element<T>::minus_infinity;
    // Rows are computed in registers, if they can be. The other calls with extended terms go from vector to vector:
    // there are too many kinds of them.
    static constexpr bool uses_registers = usual || !extended;
    // In registers, exponentials take the logits' place if the gradient can be made of them.
    static constexpr bool keeps_exponentials = fuses_powers<T> && terms != Terms::capped;
    // What stands for a label that is no class.
    static constexpr int out_of_range = -1, ignored = -2, no_row = -3;

    struct Row {
        int64_t index;
        int label;
        bool owner;  // does this lane have the label's logit?
        T *dlogits;  // this lane's first vector
        __device__ bool counts() const { return SmallRowsWarp::counts(label); }
    };

    const CallParameters p;
    const Scale<terms> scale;
    const CallFactors factors;
    // Of all rows of a usual call.
    const RowResult softmax;
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes, member = lane % row_lanes;
    const int my_vectors = static_cast<int>(p.vocab) / per_vector - member;  // vector i * row_lanes of them is mine
    const SmallRowsSteps &steps;
    // The rows of the first round.
    const int64_t warp_first =
        (static_cast<int64_t>(blockIdx.x) * small_rows_warps + threadIdx.x / warp_lanes) * rows_per_warp;
    const int64_t first = warp_first + lane / row_lanes;
    uint4 *const slot;  // this lane's vectors are warp_lanes apart
    SmallRowsLane &mine;

    __device__ static bool counts(int label) { return label >= out_of_range; }

    // Does every class have a weight of its own in the label smoothing?
    __device__ bool weighs_classes() const {
        return extended && p.label_smoothing != 0.0f && p.class_weights != nullptr;
    }

    __device__ int to_class(LabelBits bits) const {
        const int64_t label = to_label(p, bits);
        const int in_row = in_range(p, label) ? static_cast<int>(label) : out_of_range;
        return label == p.ignore_index ? ignored : in_row;
    }

    __device__ LabelBits read_bits(const unsigned char *at) const {
        if (p.labels_are_32_bits) return __ldg(reinterpret_cast<const uint32_t *>(at));
        return static_cast<LabelBits>(__ldg(reinterpret_cast<const int64_t *>(at)));
    }

    // ---- The slot ----

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

    __device__ void read_slot(uint4 (&x)[vectors_per_lane]) const {
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) x[i] = slot[i * warp_lanes];
    }

    // Puts a logit in the place of the label's, which it returns. By the label's owner.
    __device__ float replace_target(int label, float logit) const {
        const unsigned vector = static_cast<unsigned>(label) / per_vector;
        T *const element = reinterpret_cast<T *>(slot + vector / row_lanes * warp_lanes) + label % per_vector;
        const float target = Element<T>::to_float(*element);
        *element = Element<T>::from_float(logit);
        ptx::reload_memory();
        return target;
    }

    __device__ int first_column(int vector) const {
        return (vector * row_lanes + member) * per_vector;
    }

    // ---- Between the lanes of a row ----

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

    __device__ int min_of_row(int x) const {
#pragma unroll
        for (int distance = row_lanes / 2; distance > 0; distance /= 2) x = min(x, __shfl_xor_sync(~0u, x, distance));
        return x;
    }

    __device__ float sum_of_row(float x) const {
#pragma unroll
        for (int distance = row_lanes / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
        return x;
    }

    // ---- Sums ----

    // The first of this lane's columns that has the value.
    __device__ int find_column(const uint4 (&x)[vectors_per_lane], float value) const {
        const uint32_t bits = Element<T>::to_bits(value), pattern = per_word == 1 ? bits : bits << 16 | bits;
        int column = INT_MAX;
        constexpr int vectors = 4;  // at a time: 16 words
#pragma unroll
        for (int begin = vectors_per_lane - vectors; begin >= 0; begin -= vectors) {
            uint32_t found = 0;  // the words' lower elements in the lower half, the others in the upper
#pragma unroll
            for (int i = 0; i < vectors; i++) {
                const uint32_t *const words = &x[begin + i].x;
#pragma unroll
                for (int w = 0; w < 4; w++) found |= Element<T>::equal(words[w], pattern) & 0x00010001u << (i * 4 + w);
            }
            if (found == 0) continue;
            const int word = __ffs(static_cast<int>((found | found >> 16) & 0xffffu)) - 1;
            const int element = word * per_word + (found >> word & 1 ? 0 : 1);
            column = first_column(begin + element / per_vector) + element % per_vector;
        }
        return column;
    }

    // Can this lane's part of the row be computed in registers, with the fused powers if there are?
    __device__ bool fits_registers(const uint4 (&x)[vectors_per_lane], float max) const {
        if constexpr (fuses_powers<T>)
            if (!FusedPowers(scale, max).hold()) return false;
        if constexpr (terms == Terms::capped) {
            uint4 magnitudes = make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int i = 0; i < vectors_per_lane; i++)
                if (i * row_lanes < my_vectors)
                    magnitudes = Element<T>::larger(magnitudes, Element<T>::magnitudes(x[i]));
            return scale.is_near(Element<T>::max(magnitudes));
        }
        return true;
    }

    // Without the label, in whose place stands a logit with this power.
    __device__ static void take_out(ClassSums &sums, float power) {
        const float e = ptx::ex2_approx_ftz(power);
        sums.exp -= e;
        sums.below -= power;
        sums.entropy = fmaf(-e, power, sums.entropy);
    }

    // Sums over a row's logits in registers, which become what the gradient is made of: exponentials, or values.
    // `powers_excess` is what all powers that were added up in `below` are too large by.
    template <bool with_below, bool with_entropy>
    __device__ ClassSums sum_registers(float (&f)[elements], float max, bool label_is_max, float &powers_excess) const {
        const FusedPowers powers(scale, max);
        const auto power_of = [&](float value) {
            return fuses_powers<T> ? fmaf(value, scale.bits, -powers.product) : scale.power(value, max);
        };
        // In two parts each, so that one addition need not wait for the other.
        float exp[2] = {0.0f, 0.0f}, entropy[2] = {0.0f, 0.0f};
        ClassSums sums;
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            // What is not of the row is -inf, and nothing comes of it but under the soft cap.
            if (terms == Terms::capped && i * row_lanes >= my_vectors) break;
            float below[2] = {0.0f, 0.0f};
#pragma unroll
            for (int k = 0; k < per_vector; k++) {
                float &x = f[i * per_vector + k];
                if constexpr (terms == Terms::capped) x = scale.near_value(x);
                const float power = power_of(x), e = ptx::ex2_approx_ftz(power);
                exp[k % 2] += e;
                if (with_below) below[k % 2] += power;
                if (with_entropy) entropy[k % 2] = fmaf(e, fmaxf(power, -FLT_MAX), entropy[k % 2]);
                if (keeps_exponentials) x = e;
            }
            if (with_below && i * row_lanes < my_vectors) sums.below += below[0] + below[1];
        }
        sums.exp = exp[0] + exp[1];
        sums.entropy = entropy[0] + entropy[1];
        if (extended && label_is_max) take_out(sums, power_of(max));
        if (fuses_powers<T>) {
            const float shrink = ptx::ex2_approx_ftz(-powers.excess);
            if (with_entropy) sums.entropy = fmaf(-powers.excess, sums.exp, sums.entropy) * shrink;
            sums.exp *= shrink;
            powers_excess = powers.excess;
        }
        return sums;
    }

    __device__ ClassSums sum_registers(float (&f)[elements], float max, bool label_is_max, float &powers_excess) const {
        if constexpr (extended) {
            if (p.needs_entropy) return sum_registers<true, true>(f, max, label_is_max, powers_excess);
            if (p.label_smoothing != 0.0f) return sum_registers<true, false>(f, max, label_is_max, powers_excess);
        }
        return sum_registers<false, false>(f, max, label_is_max, powers_excess);
    }

    // The same of the logits in the slot.
    __device__ ClassSums sum_slot(const Row &row, float max, bool label_is_max, float &weight) const {
        ClassSums sums;
#pragma unroll 1
        for (int i = 0; i * row_lanes < my_vectors; i++) {
            float f[per_vector];
            Element<T>::unpack(slot[i * warp_lanes], f);
            float weights[per_vector];
            if (weighs_classes()) load_class_weights<T>(p, first_column(i), weights);
#pragma unroll
            for (int k = 0; k < per_vector; k++) {
                const float power = scale.power(scale.value(f[k]), max), e = ptx::ex2_approx_ftz(power);
                sums.exp += e;
                if (!extended) continue;
                sums.entropy += entropy_term(e, power);
                if (!weighs_classes()) {
                    sums.below += power;
                } else if (first_column(i) + k != row.label) {
                    sums.below += weighted(weights[k], power);
                    weight += weights[k];
                }
            }
        }
        if (extended && label_is_max) {
            if (weighs_classes()) sums.below += scale.power(max, max);
            take_out(sums, scale.power(max, max));
        }
        return sums;
    }

    // ---- Gradients ----

    __device__ void store_vector(const Row &row, int i, const float *gradient, int stored) const {
        ptx::st_global_hint_if(i * row_lanes < stored, reinterpret_cast<uint4 *>(row.dlogits) + i * row_lanes,
                               Element<T>::pack(gradient), ptx::evict_first_policy);
    }

    __device__ void gradient_of_registers(const Row &row, const RowResult &result, float (&f)[elements]) const {
        const int stored = row.label == no_row ? 0 : my_vectors;
        // In the backward pass alone there are the logits still.
        const bool exponentials = keeps_exponentials && (usual || p.computes_outputs);
        constexpr Form form = fuses_powers<T> ? Form::fused : Form::without_entropy;
#pragma unroll
        for (int k = 0; k < elements; k++) {
            if constexpr (!extended && keeps_exponentials)
                f[k] = exponentials ? f[k] * result.scale : class_gradient<terms, Form::any>(scale, result, f[k]);
            else if constexpr (keeps_exponentials)
                f[k] = fmaf(f[k], result.scale, -result.shift);
            else if constexpr (terms == Terms::capped)
                f[k] = gradient_of_value<terms, form>(scale, result, scale.of_near_value(f[k]));
            else
                f[k] = class_gradient<terms, Form::without_entropy>(scale, result, f[k]);
        }
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) store_vector(row, i, f + i * per_vector, stored);
    }

    __device__ void gradient_of_slot(const Row &row, const RowResult &result) const {
        if (row.label == no_row) return;
        const bool weighs = weighs_classes() && row.counts();
#pragma unroll 1
        for (int i = 0; i * row_lanes < my_vectors; i++) {
            float f[per_vector];
            Element<T>::unpack(slot[i * warp_lanes], f);
            float weights[per_vector];
#pragma unroll
            for (int k = 0; k < per_vector; k++) weights[k] = 1.0f;
            if (weighs) load_class_weights<T>(p, first_column(i), weights);
#pragma unroll
            for (int k = 0; k < per_vector; k++)
                f[k] = class_gradient<terms, Form::any>(scale, result, f[k], weights[k]);
            store_vector(row, i, f, my_vectors);
        }
    }

    // ---- A row ----

    // All of a row that has arrived, but its outputs, which are kept by the group's lane `keeper`. `load_next` starts
    // the copy of what follows in the slot: at once, if this row can be computed in registers.
    template <typename LoadNext>
    __device__ void compute(const Row &row, int keeper, LoadNext load_next) {
        RowFactors row_factors{1.0f, 1.0f, 0.0f};
        SavedRow saved{};
        if (!usual && row.counts()) {
            row_factors = load_factors(p, row.index, row.label);
            if (!p.computes_outputs) saved = load_saved(p, row.index);
        }
        ptx::cp_async_wait_all();
        // All sums are over the classes other than the label.
        float target_logit = 0.0f;
        if (row.owner) target_logit = replace_target(row.label, -INFINITY);
        RowSum sum;
        Moments moments;
        float f[elements];
        bool in_registers = false;
        if (p.computes_outputs) {
            uint4 x[vectors_per_lane];
            read_slot(x);
            const float best = max_of_row(max_element<T>(x));
            float target = target_logit;
            sum.others.max = fmaxf(best, sum.others.max);
            bool label_is_max = false;
            if constexpr (extended) {
                target = scale.value(target_logit);
                sum.others.max = fmaxf(scale.value(best), -FLT_MAX);
                if (p.needs_argmax) {
                    moments.best = best;
                    moments.best_column = min_of_row(find_column(x, best));
                }
                // For the smoothing, and for the soft cap where all logits are near, -inf will not do.
                if (terms == Terms::capped || p.label_smoothing != 0.0f) {
                    label_is_max = row.owner && best > -INFINITY;
                    if (label_is_max) replace_target(row.label, best);
                    read_slot(x);
                }
            }
            if constexpr (uses_registers) in_registers = __all_sync(~0u, fits_registers(x, sum.others.max));
            ClassSums lane_sums;
            float weight = 0.0f, powers_excess = 0.0f;
            if (in_registers) {
                load_next();
#pragma unroll
                for (int i = 0; i < vectors_per_lane; i++) Element<T>::unpack(x[i], f + i * per_vector);
                lane_sums = sum_registers(f, sum.others.max, label_is_max, powers_excess);
            } else {
                lane_sums = sum_slot(row, sum.others.max, label_is_max, weight);
            }
            sum.label_in_range = row.label >= 0;
            sum.others.sum = sum_of_row(lane_sums.exp);
            const int owner = static_cast<int>(static_cast<unsigned>(row.label) / per_vector);
            sum.target = __shfl_sync(~0u, target, owner, row_lanes);
            if constexpr (extended) {
                if (p.needs_entropy) moments.entropy = sum_of_row(lane_sums.entropy);
                if (p.label_smoothing != 0.0f) {
                    moments.weight = weighs_classes() ? sum_of_row(weight)
                                                      : static_cast<float>(p.vocab - (sum.label_in_range ? 1 : 0));
                    moments.below = fmaf(-moments.weight, powers_excess, sum_of_row(lane_sums.below));
                }
                if (p.needs_argmax)
                    moments.best_column = argmax(moments, __shfl_sync(~0u, target_logit, owner, row_lanes), row.label);
            }
            if (member == keeper) {
                mine.row = {sum.others, sum.target, row.label};
                if constexpr (extended)
                    mine.moments = {moments.entropy, moments.below, moments.weight, moments.best_column};
            }
            if (row.label == ignored && member == 0) store_ignored(p, row.index);
        } else {
            if constexpr (!extended) {
                in_registers = true;
                uint4 x[vectors_per_lane];
                read_slot(x);
                load_next();
#pragma unroll
                for (int i = 0; i < vectors_per_lane; i++) Element<T>::unpack(x[i], f + i * per_vector);
            }
            sum = to_row_sum(saved, row.label >= 0);
            moments.entropy = saved.entropy;
        }
        if (p.computes_gradient) gradient(row, row_factors, sum, moments, target_logit, in_registers, f);
        if (!in_registers) load_next();
    }

    __device__ void gradient(const Row &row, const RowFactors &row_factors, const RowSum &sum, const Moments &moments,
                             float target_logit, bool in_registers, float (&f)[elements]) const {
        float entropy = 0.0f;
        if (extended && p.row_dentropy != nullptr)
            entropy = p.computes_outputs ? row_entropy(scale, sum, moments) : moments.entropy;
        const RowShares shares(scale, sum);
        RowResult result{};
        if (usual) {
            result = refer<T, true>(scale, softmax, shares);
            if (!row.counts()) result = RowResult{};
        } else if (row.counts()) {
            result = p.saved_lse != nullptr
                         ? finish_row_of_lse<T>(p, factors, scale, sum.others.max, row.label >= 0, row_factors)
                         : refer<T>(scale, softmax_factors(p, factors, scale, shares, row_factors, entropy), shares);
        }
        if (in_registers)
            gradient_of_registers(row, result, f);
        else
            gradient_of_slot(row, result);
        // The owner has just stored something else there.
        if (row.owner)
            ptx::st_global(row.dlogits + (row.label - member * per_vector),
                           Element<T>::to_bits(label_gradient(p, factors, scale, sum, shares, row_factors, entropy,
                                                              result, target_logit)));
    }

    // The row of this lane's group in a round.
    __device__ int64_t row_of(int round) const {
        return first + round * steps.rows;
    }

    // After `round`, in which lane round % row_lanes of each group kept a row.
    __device__ void add_kept(int round) {
        const KeptRow kept = mine.row;
        if (counts(kept.label)) {
            const int64_t index = row_of(round - round % row_lanes + member);
            const float weight = load_factors(p, index, kept.label).weight;
            FinishedRow finished{{kept.others, kept.target, kept.label >= 0}, index, weight, 0};
            Moments moments;
            if constexpr (extended) {
                moments.entropy = mine.moments.entropy;
                moments.below = mine.moments.below;
                moments.weight = mine.moments.weight;
                finished.argmax = mine.moments.argmax;
            }
            mine.sums.add(p, factors, scale, finished, moments);
        }
        mine.row.label = no_row;
    }

public:
    __device__ SmallRowsWarp(const CallParameters &parameters, const CallFactors &call_factors,
                             const SmallRowsSteps &steps_, uint4 *warp_slots, SmallRowsLane &lane_)
        : p(parameters),
          scale(parameters),
          factors(call_factors),
          softmax(softmax_factors(p, factors, scale, RowShares(0.0f), {1.0f, 1.0f, 0.0f}, 0.0f)),
          steps(steps_),
          slot(warp_slots + lane),
          mine(lane_) {
        mine.row.label = no_row;
        mine.sums = RowSums();
    }

    __device__ void run() {
        // All lanes of a warp go round together, so that they may shuffle; in the last round some have no row.
        const int rounds = warp_first < p.batch ? static_cast<int>((p.batch - warp_first - 1) / steps.rows) + 1 : 0;
        const int my_rounds = rounds - (first + (rounds - 1) * steps.rows >= p.batch ? 1 : 0);

        const unsigned char *labels =
            static_cast<const unsigned char *>(p.labels) + first * (p.labels_are_32_bits ? 4 : 8);
        const unsigned char *logits = reinterpret_cast<const unsigned char *>(
            static_cast<const T *>(p.logits) + first * p.logits_row_stride + member * per_vector);
        unsigned char *dlogits = reinterpret_cast<unsigned char *>(static_cast<T *>(p.dlogits) +
                                                                   first * p.dlogits_row_stride + member * per_vector);
        fill_slot(minus_infinity, INT_MAX);  // where the row has nothing, it stays so
        // Labels are read two rounds ahead, as it takes one to know whether the row is to be loaded.
        int label = my_rounds > 0 ? to_class(read_bits(labels)) : no_row;
        labels += steps.label_bytes;
        LabelBits next_bits = my_rounds > 1 ? read_bits(labels) : 0;
        load(label, logits);
#pragma unroll 1
        for (int round = 0; round < rounds; round++) {
            const int next_label = round + 1 < my_rounds ? to_class(next_bits) : no_row;
            labels += steps.label_bytes;
            if (round + 2 < my_rounds) next_bits = read_bits(labels);
            logits += steps.logits_bytes;
            const bool owner =
                label >= 0 && static_cast<unsigned>(label) / per_vector % row_lanes == static_cast<unsigned>(member);
            compute({row_of(round), label, owner, reinterpret_cast<T *>(dlogits)}, round % row_lanes,
                    [&] { load(next_label, logits); });
            dlogits += steps.dlogits_bytes;
            label = next_label;
            if (p.computes_outputs && ((round + 1) % row_lanes == 0 || round + 1 == rounds)) add_kept(round);
        }
        mine.sums.combine_lanes();
    }
};

template <typename T, int instance, Terms terms>
__global__ void __launch_bounds__(small_rows_threads, small_rows_shapes[instance].blocks_per_multiprocessor)
    small_rows_kernel(const __grid_constant__ SmallRowsParameters p) {
    constexpr int row_lanes = small_rows_shapes[instance].row_lanes;
    constexpr int vectors_per_lane = small_rows_shapes[instance].vectors_per_lane;
    __shared__ uint4 slots[small_rows_warps][vectors_per_lane][warp_lanes];
    __shared__ SmallRowsLane lanes[small_rows_threads];
    uint4 *const warp_slots = slots[threadIdx.x / warp_lanes][0];
    SmallRowsLane &mine = lanes[threadIdx.x];
    ptx::griddepcontrol_wait();
    const CallFactors factors = load_factors(p, static_cast<int>(threadIdx.x) % warp_lanes);
    if (is_usual<terms>(p, factors))
        SmallRowsWarp<T, row_lanes, vectors_per_lane, terms, true>(as_usual<terms>(p), {factors.loss, 1.0f}, p,
                                                                   warp_slots, mine)
            .run();
    else
        SmallRowsWarp<T, row_lanes, vectors_per_lane, terms, false>(p, factors, p, warp_slots, mine).run();
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < small_rows_warps; warp++) mine.sums.add(lanes[warp * warp_lanes].sums);
    store_sums(p, mine.sums, blockIdx.x);
}

}  // namespace gh
