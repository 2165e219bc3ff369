// The arithmetic of one row, shared by all kernels. The formulas are in greyhound.h, at gh_cross_entropy_options.
//
// Sums run over the classes other than the label. A nearly certain row's loss and target gradient are then sums of
// small positive numbers instead of differences of nearly equal ones, and keep their relative accuracy.
//
// The values that are summed are the logits as they are; logit_scale is part of the exponential's factor, where it
// costs nothing. Under the soft cap they are what it leaves, in powers of 2.
//
// The backward pass must give the bits of the one-pass gradient, whichever kernel computed either. So where the
// compiler could fuse a product and a sum in one place and not in another, the code says which it is: fmaf, or
// __fmul_rn and __fadd_rn, which are never fused.
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

#include "cuda/kernels/parameters.h"
#include "cuda/ptx.cuh"

namespace gh {

constexpr float log2_e = 1.4426950408889634f;
constexpr float ln_2 = 0.6931471805599453f;

// ---- Values --------------------------------------------------------------------------------------

// A value and its derivative by the logit, without logit_scale.
struct Capped {
    float value;
    float slope;
};

// How a call makes values of logits, and exponentials of values.
template <Terms terms>
struct Scale {
    float nats;  // of a difference of 1 between values
    float bits;  // the same in powers of 2

    __device__ explicit Scale(const CallParameters &p)
        : nats(p.logit_scale), bits(fminf(p.logit_scale * log2_e, FLT_MAX)) {}

    __device__ float value(float logit) const { return logit; }

    // log2(exp(x - max)). The difference is formed before scaling, so a common offset of the logits is subtracted
    // exactly.
    __device__ float power(float x, float max) const { return (x - max) * bits; }
    __device__ float exp_minus(float x, float max) const { return ptx::ex2_approx_ftz(power(x, max)); }
};

// With the soft cap, values are powers of 2 already.
template <>
struct Scale<Terms::capped> {
    static constexpr float nats = ln_2, bits = 1.0f;
    const SoftcapParameters &cap;

    __device__ explicit Scale(const CallParameters &p) : cap(p.softcap) {}

    // If all of some logits are near, what follows is faster, and the same.
    __device__ bool is_near(float magnitude) const { return magnitude < cap.near_limit; }
    __device__ float near_value(float x) const {
        const float unit = x * cap.to_unit, square = unit * unit;
        float series = fmaf(cap.near_series[4], square, cap.near_series[3]);
#pragma unroll
        for (int i = 2; i >= 0; i--) series = fmaf(series, square, cap.near_series[i]);
        return __fmul_rn(x, series);
    }
    __device__ Capped of_near_value(float value) const {
        const float unit = value * cap.inverse_bits;
        return {value, fmaf(-unit, unit, 1.0f)};
    }
    __device__ Capped near(float x) const {
        return of_near_value(near_value(x));
    }
    // Elsewhere by an exponential, from which the slope, 1 - tanh^2, comes without cancellation.
    __device__ Capped capped(float x) const {
        const float magnitude = fabsf(x);
        const Capped by_series = near(x);
        // What is infinite remains so, also where to_unit is 0.
        const bool infinite = magnitude == INFINITY;
        const float e = infinite ? 0.0f : ptx::ex2_approx_ftz(magnitude * cap.to_unit * (-2.0f * log2_e));
        const float r = ptx::rcp_approx_ftz(1.0f + e);
        const float far = infinite ? x : __fmul_rn(cap.bits, copysignf((1.0f - e) * r, x));
        return is_near(magnitude) ? by_series : Capped{far, 4.0f * e * r * r};
    }

    __device__ float value(float logit) const {
        return capped(logit).value;
    }
    __device__ float power(float x, float max) const {
        return x - max;
    }
    __device__ float exp_minus(float x, float max) const {
        return ptx::ex2_approx_ftz(power(x, max));
    }
};

// Exponentials of many values by the same reference, with one operation less for each:
//   exp(x - max) = 2^(x * bits - product) / 2^excess
// where product is max * bits, rounded, and excess what it is too small by. The fused multiply-add rounds once, after
// the subtraction. For 16-bit logits only: the largest value's power need not be exactly 0, and a sum in fp32 shows it.
struct FusedPowers {
    // Above it, `excess` would be no small number. It also turns down NaN and infinity.
    static constexpr float limit = 1 << 22;
    float product;
    float excess;

    template <Terms terms>
    __device__ FusedPowers(const Scale<terms> &scale, float max)
        : product(__fmul_rn(max, scale.bits)), excess(fmaf(max, scale.bits, -product)) {}
    __device__ bool hold() const { return fabsf(product) < limit; }
};

template <typename T>
constexpr bool fuses_powers = sizeof(T) == 2;

// ---- Sums ----------------------------------------------------------------------------------------

// exp(x - max) summed over a set of classes. The empty set, and a set of -inf only, is {-FLT_MAX, 0}: a finite floor
// for the maximum keeps -inf - max from becoming NaN. NaN and +inf in the set make the sum NaN.
struct ExpSum {
    float max = -FLT_MAX;
    float sum = 0.0f;
};

template <Terms terms>
__device__ __forceinline__ ExpSum combine(const Scale<terms> &scale, ExpSum a, ExpSum b) {
    const float max = fmaxf(a.max, b.max);
    return {max, fmaf(a.sum, scale.exp_minus(a.max, max), __fmul_rn(b.sum, scale.exp_minus(b.max, max)))};
}

// The maximum over the warp. NaN need not survive: a NaN logit is in the sum as well.
__device__ __forceinline__ float max_warp(float x) {
    const int bits = __float_as_int(x);  // as an integer of the same order
    const int ordered = __reduce_max_sync(~0u, bits ^ (bits >> 31 & 0x7fffffff));
    return __int_as_float(ordered ^ (ordered >> 31 & 0x7fffffff));
}

__device__ __forceinline__ float sum_warp(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

template <Terms terms>
__device__ __forceinline__ ExpSum combine_warp(const Scale<terms> &scale, ExpSum s) {
    const float max = max_warp(s.max);
    // Not fused with the first addition: then all lanes add the same numbers.
    return {max, sum_warp(__fmul_rn(s.sum, scale.exp_minus(s.max, max)))};
}

// What the extended terms add up besides, over the same set. `max` is that of the ExpSum which goes with it, and
// power(x) is log2(exp(x - max)).
struct Moments {
    float entropy = 0.0f;  // sum of exp(x - max) * power(x)
    float below = 0.0f;    // sum of w * power(x)
    float weight = 0.0f;   // sum of w
    // The first of the largest logits, before the soft cap, and its column.
    float best = -INFINITY;
    int best_column = INT_MAX;

    // Refers the sums to another maximum. `sum` is still the one for `from`.
    template <Terms terms>
    __device__ void move(const Scale<terms> &scale, float sum, float from, float to) {
        const float rise = fminf((to - from) * scale.bits, FLT_MAX);  // from the floor it would be infinite, times 0
        // The exponential first: columns masked with the lowest float have a rise whose product with `sum` overflows.
        const float shrink = scale.exp_minus(from, to);
        entropy = fmaf(-__fmul_rn(shrink, sum), rise, __fmul_rn(shrink, entropy));
        below = fmaf(-weight, rise, below);
    }
    __device__ void add_best(float logit, int column) {
        if (logit > best || (logit == best && column < best_column)) {
            best = logit;
            best_column = column;
        }
    }
    // Adds what refers to the same maximum.
    __device__ void add(const Moments &other) {
        entropy += other.entropy;
        below += other.below;
        weight += other.weight;
        add_best(other.best, other.best_column);
    }
};

// 2^power * power, which is 0 for a class of -inf.
__device__ __forceinline__ float entropy_term(float exp, float power) {
    return __fmul_rn(exp, fmaxf(power, -FLT_MAX));
}

// A weight of 0 counts for nothing, also where the value is infinite.
__device__ __forceinline__ float weighted(float weight, float value) {
    return weight == 0.0f && isinf(value) ? 0.0f : weight * value;
}

// Adds one class.
template <Terms terms>
__device__ __forceinline__ void add_class(const Scale<terms> &scale, ExpSum &sum, Moments &moments, float logit,
                                          float weight) {
    const float value = scale.value(logit), max = fmaxf(value, sum.max), power = scale.power(value, max);
    moments.move(scale, sum.sum, sum.max, max);
    const float e = ptx::ex2_approx_ftz(power);
    sum = {max, fmaf(sum.sum, scale.exp_minus(sum.max, max), e)};
    moments.entropy += entropy_term(e, power);
    moments.below += weighted(weight, power);
    moments.weight += weight;
}

// Sums the moments over the warp, as far as the call needs them, and refers them to the warp's maximum. `s` is the
// lane's own exp-sum.
template <Terms terms>
__device__ __forceinline__ void combine_warp(const CallParameters &p, const Scale<terms> &scale, ExpSum s,
                                             Moments &moments) {
    moments.move(scale, s.sum, s.max, max_warp(s.max));
    if (p.needs_entropy) moments.entropy = sum_warp(moments.entropy);
    if (p.label_smoothing != 0.0f) {
        moments.below = sum_warp(moments.below);
        moments.weight = sum_warp(moments.weight);
    }
    if (p.needs_argmax) {
        const float best = max_warp(moments.best);
        moments.best_column = __reduce_min_sync(~0u, moments.best == best ? moments.best_column : INT_MAX);
        moments.best = best;
    }
}

// ---- From a row's sums to its gradient ------------------------------------------------------------

// A row, summed up.
struct RowSum {
    ExpSum others;
    float target = 0.0f;  // the label's value
    bool label_in_range = false;
};

// What the call asks of every row.
struct CallFactors {
    float loss;         // dloss * *dloss_ptr, divided for a mean
    float mean_weight;  // of the class weights; 1 if there are none
};

// What it asks of one row.
struct RowFactors {
    float weight;   // the label's
    float loss;     // upstream
    float entropy;  // upstream
};

// What the gradients of a row's classes are made of. Of a class that is not the label, with the value x and the weight
// w in the smoothing:
//   power = (x - subtracted) * bits - offset
//   gradient = 2^power * (scale + entropy_scale * power) - shift * w
// Plain terms have only `scale`. See refer() for the two ways to choose the powers.
struct RowResult {
    float subtracted;
    float offset;
    float scale;
    float entropy_scale;
    float shift;
};

// -log p of the label, as log(1 + others / exp(target)).
template <Terms terms>
__device__ __forceinline__ float target_loss(const Scale<terms> &scale, ExpSum others, float target) {
    const float below = (others.max - target) * scale.nats;
    // The ratio overflows for a label far below the maximum: there the plain difference cancels nothing.
    return below < 60.0f ? log1pf(others.sum * expf(below)) : below + logf(others.sum + expf(-below));
}

// A row's exponentials, relative to its maximum. With a label out of range, with NaN or +inf in the row, or with
// nothing but -inf, lse is NaN, and so is all that follows.
struct RowShares {
    float max;
    float others_max;
    float others_shrink;  // exp(others_max - max)
    float others, target, sum;

    template <Terms terms>
    __device__ RowShares(const Scale<terms> &scale, const RowSum &row) {
        max = row.label_in_range ? fmaxf(row.others.max, row.target) : NAN;
        others_max = row.others.max;
        others_shrink = scale.exp_minus(others_max, max);
        others = __fmul_rn(row.others.sum, others_shrink);
        target = scale.exp_minus(row.target, max);
        sum = __fadd_rn(others, target);
    }
    // Of an lse, as a value: as if one class had all of the row.
    __device__ explicit RowShares(float lse_value)
        : max(lse_value), others_max(lse_value), others_shrink(1.0f), others(1.0f), target(0.0f), sum(1.0f) {}

    __device__ float log2_sum() const { return sum > 0.0f ? log2f(sum) : NAN; }
    template <Terms terms>
    __device__ float lse(const Scale<terms> &scale) const {
        return fmaf(log2_sum(), ln_2, __fmul_rn(max, scale.nats));
    }
};

// a / b, for b a row's sum: at least about 1, or 0 or NaN. It is exactly 1 if they are equal.
__device__ __forceinline__ float divide_by_sum(float a, float b) {
    const float inverse = ptx::rcp_approx_ftz(b), nearly = __fmul_rn(a, inverse);
    const float quotient = fmaf(fmaf(-nearly, b, a), inverse, nearly);
    return isnan(quotient) ? nearly : quotient;  // a is infinite, or all is NaN
}

// -sum p log p, as log(sum) - (sum of exp(x - max) * (x - max)) / sum: neither term is negative.
template <Terms terms>
__device__ __forceinline__ float row_entropy(const Scale<terms> &scale, const RowSum &row, Moments others) {
    const RowShares shares(scale, row);
    others.move(scale, row.others.sum, row.others.max, shares.max);
    const float sum = __fadd_rn(others.entropy, entropy_term(shares.target, scale.power(row.target, shares.max)));
    const float log_sum = row.target >= row.others.max ? log1pf(shares.others) : shares.log2_sum() * ln_2;
    return fmaf(-ln_2, sum / shares.sum, log_sum);
}

// a * b, but finite where a and b are, so that a probability of 0 keeps its gradient of 0.
__device__ __forceinline__ float limited_product(float a, float b) {
    const float product = a * b;
    return isinf(product) && !isinf(a) && !isinf(b) ? copysignf(FLT_MAX, product) : product;
}

// The derivative of a row's loss by its lse, in two parts: the label's own term, and all others.
struct LseSlope {
    float label;
    float others;

    __device__ LseSlope(const CallParameters &p, const CallFactors &call, const RowFactors &factors, float lse) {
        label = __fmul_rn(1.0f - p.label_smoothing, factors.weight);
        const float z_slope =
            p.z_loss_multiplier == 0.0f ? 0.0f : limited_product(2.0f, limited_product(p.z_loss_multiplier, lse));
        others = fmaf(p.label_smoothing, call.mean_weight, z_slope);
    }
    // Without the z-loss, an lse takes a while for nothing.
    template <Terms terms>
    __device__ LseSlope(const CallParameters &p, const CallFactors &call, const RowFactors &factors,
                        const Scale<terms> &scale, const RowShares &shares)
        : LseSlope(p, call, factors, p.z_loss_multiplier == 0.0f ? 0.0f : shares.lse(scale)) {}
    __device__ float all() const { return __fadd_rn(label, others); }
};

__device__ __forceinline__ float smoothing_shift(const CallParameters &p, float upstream) {
    // Without smoothing never -0: what is subtracted must not change the sign of a gradient of 0.
    return p.label_smoothing == 0.0f ? 0.0f : upstream * (p.label_smoothing / static_cast<float>(p.vocab));
}

// The label's share of the smoothing is taken with the weight that every class has in it.
__device__ __forceinline__ float smoothing_weight(const CallParameters &p, const RowFactors &factors) {
    return p.class_weights == nullptr ? 1.0f : factors.weight;
}

// Chooses the powers, and makes softmax of gradients that `r` has the factors of. These are as if the powers were
// log2(p), where p is the softmax.
//
// For 16-bit logits the powers are those of the first pass, FusedPowers, which are the sum's: so a kernel that keeps
// its exponentials need not compute them again. The sum is divided by in the factors:
//   p = 2^power * share, with share = exp(others_max - max) / sum / 2^excess
// Else the sum is divided by in the exponent, and the maximum is subtracted first:
//   p = 2^((x - max) * bits - log2(sum))
// `small_scale`: is r.scale known to be at most half of the largest number? A share is hardly more than 1.
template <typename T, bool small_scale = false, Terms terms>
__device__ __forceinline__ RowResult refer(const Scale<terms> &scale, RowResult r, const RowShares &shares) {
    if constexpr (fuses_powers<T>) {
        const FusedPowers powers(scale, shares.others_max);
        if (powers.hold()) {
            const float inverse_sum = ptx::rcp_approx_ftz(shares.sum);
            const float share =
                __fmul_rn(__fmul_rn(shares.others_shrink, inverse_sum), ptx::ex2_approx_ftz(-powers.excess));
            r.subtracted = 0.0f;
            r.offset = powers.product;
            if (r.entropy_scale != 0.0f) {
                const float below = scale.power(shares.others_max, shares.max);
                // What is further below has a share of 0.
                const float lost = fminf(__fadd_rn(powers.excess, __fsub_rn(shares.log2_sum(), below)), 200.0f);
                r.scale = fmaf(-r.entropy_scale, lost, r.scale);
            }
            r.scale = small_scale ? __fmul_rn(share, r.scale) : limited_product(share, r.scale);
            r.entropy_scale *= share;
            return r;
        }
    }
    r.subtracted = shares.max;
    r.offset = shares.log2_sum();
    return r;
}

// What the softmax is multiplied with, and what is added. `entropy` is the row's; it is not used unless there is an
// upstream gradient for it.
template <Terms terms>
__device__ __forceinline__ RowResult softmax_factors(const CallParameters &p, const CallFactors &call,
                                                     const Scale<terms> &scale, const RowShares &shares,
                                                     const RowFactors &factors, float entropy) {
    const LseSlope slope(p, call, factors, scale, shares);
    const float upstream = call.loss * factors.loss * p.logit_scale;
    RowResult r{};
    r.scale = limited_product(upstream, slope.all());
    if constexpr (terms != Terms::plain) {
        r.shift = smoothing_shift(p, upstream);
        if (p.row_dentropy != nullptr) {
            // dH/dx = -p * (log p + H)
            const float upstream_entropy = factors.entropy * p.logit_scale;
            r.entropy_scale = -upstream_entropy * ln_2;
            r.scale = fmaf(-upstream_entropy, entropy, r.scale);
        }
    }
    return r;
}

template <typename T, Terms terms>
__device__ __forceinline__ RowResult finish_row(const CallParameters &p, const CallFactors &call,
                                                const Scale<terms> &scale, const RowSum &row, const RowFactors &factors,
                                                float entropy) {
    const RowShares shares(scale, row);
    return refer<T>(scale, softmax_factors(p, call, scale, shares, factors, entropy), shares);
}

// The same from an lse alone.
template <typename T, Terms terms>
__device__ __forceinline__ RowResult finish_row_of_lse(const CallParameters &p, const CallFactors &call,
                                                       const Scale<terms> &scale, float lse, bool label_in_range,
                                                       const RowFactors &factors) {
    if (!label_in_range) lse = NAN;
    const LseSlope slope(p, call, factors, lse);
    const float upstream = call.loss * factors.loss * p.logit_scale;
    RowResult r{};
    r.scale = limited_product(upstream, slope.all());
    r.shift = terms == Terms::plain ? 0.0f : smoothing_shift(p, upstream);
    return refer<T>(scale, r, RowShares(lse / scale.nats));
}

// How much of a class's gradient is computed. What is left out has no effect on the bits where it is 0, or the scale 1:
// `fused` the subtraction and the entropy, `without_entropy` the entropy, `softmax` that and the scale.
enum class Form { any, fused, without_entropy, softmax };

// Of a class that is not the label, with the value x. `weight` is the class's in the label smoothing.
template <Terms terms, Form form>
__device__ __forceinline__ float gradient_of_value(const Scale<terms> &scale, const RowResult &r, Capped x,
                                                   float weight = 1.0f) {
    const float power = fmaf(form == Form::fused ? x.value : x.value - r.subtracted, scale.bits, -r.offset);
    const float e = ptx::ex2_approx_ftz(power);
    if constexpr (terms == Terms::plain) return form == Form::softmax ? e : e * r.scale;
    float factor = r.scale;
    // The floor keeps a class of probability 0 from 0 * inf; and +0 * power would make +0 of a scale of -0.
    if (form == Form::any && r.entropy_scale != 0.0f) factor = fmaf(r.entropy_scale, fmaxf(power, -200.0f), factor);
    return fmaf(e, factor, -r.shift * weight) * x.slope;
}

// The same of a logit. `near`: is it known to be so, see Scale?
template <Terms terms, Form form, bool near = false>
__device__ __forceinline__ float class_gradient(const Scale<terms> &scale, const RowResult &r, float logit,
                                                float weight = 1.0f) {
    Capped x{logit, 1.0f};
    if constexpr (terms == Terms::capped) x = near ? scale.near(logit) : scale.capped(logit);
    return gradient_of_value<terms, form>(scale, r, x, weight);
}

// Of the label, in a row of which `r` is the result. It takes a while, but only one lane needs it. An lse from an
// earlier call is in row.others.max. `logit` is not used by a pass that sums the row up itself, unless capped.
template <Terms terms>
__device__ __forceinline__ float label_gradient(const CallParameters &p, const CallFactors &call,
                                                const Scale<terms> &scale, const RowSum &row, const RowShares &shares,
                                                const RowFactors &factors, float entropy, const RowResult &r,
                                                float logit) {
    float cap_slope = 1.0f;
    if constexpr (terms == Terms::capped) cap_slope = scale.capped(logit).slope;
    const float upstream = call.loss * factors.loss * p.logit_scale;
    if (p.saved_lse != nullptr) {
        const LseSlope slope(p, call, factors, row.others.max);
        const float of_class = class_gradient<terms, Form::any>(scale, r, logit, smoothing_weight(p, factors));
        return fmaf(-upstream * slope.label, cap_slope, of_class);
    }
    const LseSlope slope(p, call, factors, scale, shares);
    // p_y * (label + others) - label, without the cancellation at p_y near 1.
    float gradient =
        upstream * divide_by_sum(fmaf(shares.target, slope.others, -shares.others * slope.label), shares.sum);
    if constexpr (terms != Terms::plain) {
        gradient = fmaf(-r.shift, smoothing_weight(p, factors), gradient);
        if (p.row_dentropy != nullptr) {
            const float upstream_entropy = factors.entropy * p.logit_scale;
            const float share = shares.target / shares.sum, surprise = target_loss(scale, row.others, row.target);
            // Not 0 * inf; but a factor that is NaN passes.
            const float distance = share == 0.0f ? 0.0f : surprise - entropy;
            gradient = fmaf(upstream_entropy * share, distance, gradient);
        }
    }
    return gradient * cap_slope;
}

template <Terms terms>
__device__ __forceinline__ float label_gradient(const CallParameters &p, const CallFactors &call,
                                                const Scale<terms> &scale, const RowSum &row, const RowFactors &factors,
                                                float entropy, const RowResult &r, float logit) {
    return label_gradient(p, call, scale, row, RowShares(scale, row), factors, entropy, r, logit);
}

}  // namespace gh
