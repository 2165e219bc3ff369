// What a row brings with it, and what it leaves behind: labels and upstream gradients on one side, the outputs per row
// and the sums over rows on the other.
#pragma once

#include "cuda/kernels/row_math.cuh"

namespace gh {

// ---- Inputs --------------------------------------------------------------------------------------

// A label as it was read. Whoever reads ahead keeps it so: to make a label of it would wait for it.
using LabelBits = uint64_t;

__device__ __forceinline__ LabelBits read_label_bits(const CallParameters &p, int64_t row) {
    if (p.labels_are_32_bits) return __ldg(static_cast<const uint32_t *>(p.labels) + row);
    return static_cast<LabelBits>(__ldg(static_cast<const int64_t *>(p.labels) + row));
}

__device__ __forceinline__ int64_t to_label(const CallParameters &p, LabelBits bits) {
    return p.labels_are_32_bits ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

__device__ __forceinline__ int64_t read_label(const CallParameters &p, int64_t row) {
    return to_label(p, read_label_bits(p, row));
}

__device__ __forceinline__ bool in_range(const CallParameters &p, int64_t label) {
    return static_cast<uint64_t>(label) < static_cast<uint64_t>(p.vocab);
}

__device__ __forceinline__ double sum_parts(const double *parts, int count, int lane) {
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < max_parts; i += warp_lanes)
        if (i + lane < count) sum += parts[i + lane];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

// All lanes of a warp call it. What the kernel before this one left in the workspace must be there.
__device__ __forceinline__ CallFactors load_factors(const CallParameters &p, int lane) {
    CallFactors factors{p.dloss, 1.0f};
    if (p.dloss_ptr != nullptr) factors.loss *= *p.dloss_ptr;
    if (p.divisor_parts > 0) {
        const double divisor = sum_parts(p.workspace->divisor_parts, p.divisor_parts, lane);
        factors.loss = divisor == 0.0 ? 0.0f : static_cast<float>(factors.loss / divisor);
    }
    if (p.weight_parts > 0)
        factors.mean_weight = static_cast<float>(sum_parts(p.workspace->weight_parts, p.weight_parts, lane) /
                                                 static_cast<double>(p.vocab));
    return factors;
}

__device__ __forceinline__ RowFactors load_factors(const CallParameters &p, int64_t row, int64_t label) {
    RowFactors factors{1.0f, 1.0f, 0.0f};
    if (p.class_weights != nullptr) factors.weight = in_range(p, label) ? __ldg(p.class_weights + label) : NAN;
    if (p.row_dloss != nullptr) factors.loss = __ldg(p.row_dloss + row);
    if (p.row_dentropy != nullptr) factors.entropy = __ldg(p.row_dentropy + row);
    return factors;
}

// What an earlier call saved of a row, or an lse as `others.max`.
struct SavedRow {
    ExpSum others;
    float target;
    float entropy;
};

__device__ __forceinline__ SavedRow load_saved(const CallParameters &p, int64_t row) {
    if (p.saved_lse != nullptr) return {{__ldg(p.saved_lse + row), 0.0f}, 0.0f, 0.0f};
    const float2 *const saved = reinterpret_cast<const float2 *>(p.saved_statistics + row);
    const float2 others = __ldg(saved), rest = __ldg(saved + 1);
    return {{others.x, others.y}, rest.x, rest.y};
}

__device__ __forceinline__ RowSum to_row_sum(const SavedRow &saved, bool label_in_range) {
    return {saved.others, saved.target, label_in_range};
}

// ---- Outputs -------------------------------------------------------------------------------------

// A row whose outputs are yet to be computed.
struct FinishedRow {
    RowSum sum;
    int64_t row;
    float weight;  // the label's
    int argmax;    // not used unless asked for
};

// The first of the largest logits. `target` is the label's, before the soft cap.
__device__ __forceinline__ int argmax(const Moments &others, float target, int label) {
    return target > others.best || (target == others.best && label < others.best_column) ? label : others.best_column;
}

// One lane's part of what is added up over rows.
struct RowSums {
    double loss = 0.0;            // without the z-loss
    double sum_of_squares = 0.0;  // of lse
    int n_valid = 0;
    int n_correct = 0;
    int n_out_of_range = 0;

    // Computes a row's outputs, stores those per row, and adds the others.
    template <Terms terms>
    __device__ void add(const CallParameters &p, const CallFactors &call, const Scale<terms> &scale,
                        const FinishedRow &finished, const Moments &moments) {
        const RowSum &row = finished.sum;
        const RowShares shares(scale, row);
        const float unchecked_lse = shares.lse(scale), label_loss = target_loss(scale, row.others, row.target);
        float entropy = 0.0f;
        float row_loss =
            (isnan(unchecked_lse) ? NAN : 0.0f) + weighted((1.0f - p.label_smoothing) * finished.weight, label_loss);
        if constexpr (terms != Terms::plain) {
            if (p.label_smoothing != 0.0f) {
                Moments all = moments;
                all.move(scale, row.others.sum, row.others.max, shares.max);
                all.below +=
                    weighted(p.class_weights == nullptr ? 1.0f : finished.weight, scale.power(row.target, shares.max));
                // sum_j w_j * (lse - x_j) / vocab
                const float uniform_loss =
                    ln_2 * fmaf(call.mean_weight, shares.log2_sum(), -(all.below / static_cast<float>(p.vocab)));
                row_loss += p.label_smoothing * uniform_loss;
            }
            if (p.needs_entropy) entropy = row_entropy(scale, row, moments);
        }
        // If the loss is NaN, all is.
        const bool is_nan = isnan(row_loss);
        const float nothing = is_nan ? NAN : 0.0f;
        const float lse = unchecked_lse + nothing, squared_lse = lse * lse;
        if (p.row_loss != nullptr)
            p.row_loss[finished.row] =
                p.z_loss_multiplier == 0.0f ? row_loss : fmaf(p.z_loss_multiplier, squared_lse, row_loss);
        if (p.row_lse != nullptr) p.row_lse[finished.row] = lse;
        if (p.row_target_log_prob != nullptr) p.row_target_log_prob[finished.row] = nothing - label_loss;
        if (p.row_entropy != nullptr) p.row_entropy[finished.row] = entropy + nothing;
        if (p.row_argmax != nullptr) p.row_argmax[finished.row] = is_nan ? -1 : finished.argmax;
        if (p.row_statistics != nullptr) {
            float2 *const saved = reinterpret_cast<float2 *>(p.row_statistics + finished.row);
            saved[0] = make_float2(row.label_in_range ? row.others.max : NAN, row.others.sum);
            saved[1] = make_float2(row.target, entropy);
            saved[2] = saved[3] = make_float2(0.0f, 0.0f);
        }
        loss += row_loss;
        sum_of_squares += squared_lse;
        n_valid++;
        if (terms != Terms::plain && p.needs_argmax)
            n_correct += !is_nan && finished.argmax == read_label(p, finished.row);
        n_out_of_range += !row.label_in_range;
    }

    __device__ void add(const RowSums &other) {
        loss += other.loss;
        sum_of_squares += other.sum_of_squares;
        n_valid += other.n_valid;
        n_correct += other.n_correct;
        n_out_of_range += other.n_out_of_range;
    }

    // Sums over the lanes of a warp; all 32 must call.
    __device__ void combine_lanes() {
#pragma unroll 1
        for (int distance = 16; distance > 0; distance /= 2) {
            loss += __shfl_xor_sync(~0u, loss, distance);
            sum_of_squares += __shfl_xor_sync(~0u, sum_of_squares, distance);
            n_valid += __shfl_xor_sync(~0u, n_valid, distance);
            n_correct += __shfl_xor_sync(~0u, n_correct, distance);
            n_out_of_range += __shfl_xor_sync(~0u, n_out_of_range, distance);
        }
    }
};

// The outputs of an ignored row.
__device__ __forceinline__ void store_ignored(const CallParameters &p, int64_t row) {
    if (p.row_loss != nullptr) p.row_loss[row] = 0.0f;
    if (p.row_lse != nullptr) p.row_lse[row] = 0.0f;
    if (p.row_target_log_prob != nullptr) p.row_target_log_prob[row] = 0.0f;
    if (p.row_entropy != nullptr) p.row_entropy[row] = 0.0f;
    if (p.row_argmax != nullptr) p.row_argmax[row] = -1;
    if (p.row_statistics != nullptr) p.row_statistics[row] = {};
}

}  // namespace gh
