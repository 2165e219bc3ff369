// The arithmetic of one row, shared by all kernels.
//
// Sums run over the classes other than the label. A nearly certain row's loss and target gradient are then sums of
// small positive numbers instead of differences of nearly equal ones, and keep their relative accuracy.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda/ptx.cuh"

namespace gh {

constexpr float log2_e = 1.4426950408889634f;
constexpr float ln_2 = 0.6931471805599453f;

// exp(x - max) summed over a set of classes. The empty set, and a set of -inf only, is {-FLT_MAX, 0}: a finite floor
// for the maximum keeps -inf - max from becoming NaN. NaN and +inf in the set make the sum NaN.
struct ExpSum {
    float max = -FLT_MAX;
    float sum = 0.0f;
};

// x - max is formed before scaling by log2(e), so a common offset of the logits is subtracted exactly.
__device__ __forceinline__ float exp_minus(float x, float max) {
    return ptx::ex2_approx_ftz((x - max) * log2_e);
}

__device__ __forceinline__ ExpSum combine(ExpSum a, ExpSum b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * exp_minus(a.max, max) + b.sum * exp_minus(b.max, max)};
}

// The maximum over the warp. NaN need not survive: a NaN logit is in the sum as well.
__device__ __forceinline__ float max_warp(float x) {
    const int bits = __float_as_int(x);  // as an integer of the same order
    const int ordered = __reduce_max_sync(~0u, bits ^ (bits >> 31 & 0x7fffffff));
    return __int_as_float(ordered ^ (ordered >> 31 & 0x7fffffff));
}

__device__ __forceinline__ ExpSum combine_warp(ExpSum s) {
    const float max = max_warp(s.max);
    float sum = s.sum * exp_minus(s.max, max);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return {max, sum};
}

// What the gradient of a row needs.
struct RowResult {
    float max;            // over all classes
    float log2_sum;       // log2(sum_j exp(x_j - max))
    float lse;            // log(sum_j exp(x_j))
    float z_slope;        // 2 * z_loss_multiplier * lse
    float softmax_scale;  // 1 + z_slope
    float others_sum;     // sum of exp(x_j - max) over all classes but the label
    float target_exp;     // exp(x_y - max)
};

// `others` is over all classes but the label, `target` is the label's logit. With a label out of range, with NaN or
// +inf in the row, or with nothing but -inf, everything becomes NaN.
__device__ __forceinline__ RowResult finish_row(ExpSum others, float target, bool label_in_range,
                                                float z_loss_multiplier) {
    RowResult r;
    r.max = label_in_range ? fmaxf(others.max, target) : NAN;
    r.others_sum = others.sum * exp_minus(others.max, r.max);
    r.target_exp = exp_minus(target, r.max);
    const float sum = r.others_sum + r.target_exp;
    r.log2_sum = sum > 0.0f ? log2f(sum) : NAN;
    r.lse = fmaf(r.log2_sum, ln_2, r.max);
    // Finite also where 2 * z * lse is not, so that a probability of 0 keeps its gradient of 0.
    const float z_slope = fminf(fmaxf(2.0f * (z_loss_multiplier * r.lse), -FLT_MAX), FLT_MAX);
    r.z_slope = z_loss_multiplier == 0.0f ? 0.0f : z_slope;
    r.softmax_scale = 1.0f + r.z_slope;
    return r;
}

// log(sum_j exp(x_j)) - x_y = log(1 + others / exp(target)), given a row for which finish_row() has a number as lse.
__device__ __forceinline__ float row_loss(ExpSum others, float target) {
    const float below = others.max - target;
    // The ratio overflows for a label far below the maximum: there the plain difference cancels nothing.
    return below < 60.0f ? log1pf(others.sum * expf(below)) : below + logf(others.sum + expf(-below));
}

// What finish_row() would give a row whose gradient is 0 everywhere, given logits of -inf.
__device__ __forceinline__ RowResult ignored_row() {
    return {0.0f, INFINITY, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f};
}

// exp(x - lse), before scaling.
__device__ __forceinline__ float softmax(float x, const RowResult &r) {
    return ptx::ex2_approx_ftz(fmaf(x - r.max, log2_e, -r.log2_sum));
}

// p_y * softmax_scale - 1, without the cancellation at p_y near 1.
__device__ __forceinline__ float target_gradient(const RowResult &r) {
    return fmaf(r.target_exp, r.z_slope, -r.others_sum) / (r.others_sum + r.target_exp);
}

}  // namespace gh
