// The exponential and the softcap of vectors. For the layer `S` of SIMD operations see elements.h.
#pragma once

#include <float.h>
#include <math.h>

#include "cpu/kernels.h"

namespace gh::cpu {
namespace {

// Adding this to a float rounds it to an integer, and leaves that in the low bits.
constexpr float magic = 0x1.8p23f;
constexpr double ln2 = 0x1.62e42fefa39efp-1;

// exp(r) = 1 + r * p with x = k * ln2 + r. The polynomials, |r| <= ln2 / 2, are minimax ones whose p starts with 1.
// Relative error of exp(r) below 1.2e-7 if `precise`, else below 1.8e-7 + 2e-9 * |k|.
template <class S>
struct Reduced {
    typename S::Vector k_plus_magic, r, p;
};

template <class S, bool precise>
[[gnu::always_inline]] inline Reduced<S> reduce(typename S::Vector x) {
    const auto k_plus_magic = S::fma(x, S::broadcast(static_cast<float>(1 / ln2)), S::broadcast(magic));
    const auto k = k_plus_magic - S::broadcast(magic);
    typename S::Vector r, p;
    if constexpr (precise) {
        // ln2 in two parts; the first has so few bits that k times it is exact even without FMA.
        constexpr float high = 0x1.62ep-1f, low = static_cast<float>(ln2 - static_cast<double>(high));
        r = S::fma(k, S::broadcast(-high), x);
        r = S::fma(k, S::broadcast(-low), r);
        p = S::fma(r, S::broadcast(0x1.6a2448p-10f), S::broadcast(0x1.1239d6p-7f));
        p = S::fma(p, r, S::broadcast(0x1.5558f2p-5f));
        p = S::fma(p, r, S::broadcast(0x1.555492p-3f));
        p = S::fma(p, r, S::broadcast(0x1.fffffcp-2f));
    } else {
        r = S::fma(k, S::broadcast(-static_cast<float>(ln2)), x);
        p = S::fma(r, S::broadcast(0x1.106282p-7f), S::broadcast(0x1.5729f4p-5f));
        p = S::fma(p, r, S::broadcast(0x1.5557aep-3f));
        p = S::fma(p, r, S::broadcast(0x1.fffdfcp-2f));
    }
    return {k_plus_magic, r, S::fma(p, r, S::broadcast(1))};
}

// exp(d) for d = x - max <= 0, as 2^(k - power) * exp(r) * a number near 1 that is the same for the whole row:
//
//     x - anchor = k * ln2 + r,  max - anchor = power * ln2 + rest,  exp(x - max) = 2^(k - power) * exp(r - rest)
//
// With anchor = max that is the usual way, and x - max is rounded before it is used: an error of up to
// 6e-8 * |x - max| in the result. With anchor = 0 there is no such error, but x must not be large.
//
// The power is made too large by 2^bias, and the product with the caller's factor sets it right. So only that last
// product can become denormal and is rounded as such; and what is 2^-(127 + bias) of the row's largest exponential
// becomes 0.
constexpr float usual_bias = 40, usual_unbias = 0x1p-40f;

template <class S>
struct Exponent {
    explicit Exponent(float bias, float power = 0)
        : zero(S::broadcast(magic + power - bias)),
          lowest(S::broadcast((power - 127 - bias) * static_cast<float>(ln2))) {}

    typename S::Vector zero, lowest;
};

// exp(x - max) * exp(rest) * 2^bias, from x - anchor; NaN for NaN.
template <class S, bool precise>
[[gnu::always_inline]] inline typename S::Vector exp_biased(typename S::Vector x, const Exponent<S> &exponent) {
    x = S::clamp(x, exponent.lowest);
    const Reduced<S> reduced = reduce<S, precise>(x);
    const auto exp_r = S::fma(reduced.p, reduced.r, S::broadcast(1));
    return S::power_of_two(exp_r, reduced.k_plus_magic, exponent.zero, x, exponent.lowest);
}

// softcap * tanh(a) with a = scale / softcap * logit, and its derivative by scale * logit, 1 - tanh^2.
template <class S>
struct Capped {
    typename S::Vector x, slope;
};

template <class S>
struct Softcap {
    explicit Softcap(const LogitMap *map)
        : to_unit(S::broadcast(to_unit_of(map))),
          softcap(S::broadcast(map->softcap)),
          near_limit(S::broadcast(1 / to_unit_of(map))) {}

    // Formed first: the logit times the scale may be beyond fp32 where this is not.
    static float to_unit_of(const LogitMap *map) {
        const float quotient = map->scale / map->softcap;
        return quotient < FLT_MAX ? quotient : FLT_MAX;
    }

    // For |a| < 1: a times a minimax polynomial in a^2, relative error below 6e-8. A sum of few terms would lose the
    // relative accuracy of a small tanh if it did not start with 1.
    Capped<S> near(typename S::Vector logit) const {
        const auto one = S::broadcast(1), a = logit * to_unit, square = a * a;
        auto p = S::fma(square, S::broadcast(0x1.153436p-10f), S::broadcast(-0x1.9a1154p-8f));
        p = S::fma(p, square, S::broadcast(0x1.4d89d2p-6f));
        p = S::fma(p, square, S::broadcast(-0x1.b640dep-5f));
        p = S::fma(p, square, S::broadcast(0x1.10ecaap-3f));
        p = S::fma(p, square, S::broadcast(-0x1.55546cp-2f));
        const auto tanh = a * S::fma(p, square, one);
        return {softcap * tanh, one - tanh * tanh};
    }

    // Elsewhere with e = exp(-2 |a|), so that the derivative has no cancellation:
    //
    //     tanh = 2 / (1 + e) - 1,  1 - tanh^2 = 4 e / (1 + e)^2
    //
    // A derivative below 2^-125 is 0.
    Capped<S> operator()(typename S::Vector logit) const {
        const auto one = S::broadcast(1), two = S::broadcast(2), lowest = S::broadcast(-127 * static_cast<float>(ln2));
        const auto magnitude = S::abs(logit);
        const auto above_infinity = S::max(S::broadcast(-FLT_MAX), logit);  // whose product with 0 would be NaN
        const auto x = S::clamp(S::broadcast(-2) * (S::abs(above_infinity) * to_unit), lowest);
        const Reduced<S> reduced = reduce<S, false>(x);
        const auto exp_r = S::fma(reduced.p, reduced.r, one);
        const auto e = S::power_of_two(exp_r, reduced.k_plus_magic, S::broadcast(magic), x, lowest);
        const auto inverse = one / (one + e);
        // 0 for a finite logit, -inf for -inf: a class that is masked out remains so. NaN for NaN and +inf.
        const auto not_finite = logit - above_infinity;
        const auto far = S::copy_sign(softcap * S::fma(two, inverse, S::broadcast(-1)), logit) + not_finite;
        const auto far_slope = S::broadcast(4) * (e * inverse) * inverse;
        const Capped<S> near_0 = near(logit);
        return {S::select_less(magnitude, near_limit, near_0.x, far),
                S::select_less(magnitude, near_limit, near_0.slope, far_slope)};
    }

    struct Pair {
        Capped<S> a, b;
    };
    // The same for two vectors, and quicker if all in them is near.
    Pair operator()(typename S::Pair logits) const {
        if (S::all_less(S::max(S::abs(logits.a), S::abs(logits.b)), near_limit))
            return {near(logits.a), near(logits.b)};
        return {(*this)(logits.a), (*this)(logits.b)};
    }

    typename S::Vector to_unit, softcap, near_limit;
};

// From logits to x - max, in the three ways that x is made of a logit. The anchor is the largest logit; with a softcap,
// the largest x, and its differences are of what the cap has already made.
//
// Scaling the difference instead of the logits leaves it exact for logits that are near each other.
template <class S>
struct Plain {
    static constexpr bool caps = false;
    explicit Plain(const LogitMap *, float anchor_value) : anchor(S::broadcast(anchor_value)) {}
    static double x(const LogitMap *, float logit) { return static_cast<double>(logit); }

    typename S::Pair operator()(typename S::Pair logits) const { return {logits.a - anchor, logits.b - anchor}; }

    typename S::Vector anchor;
};

template <class S>
struct Scaled {
    static constexpr bool caps = false;
    Scaled(const LogitMap *map, float anchor_value)
        : anchor(S::broadcast(anchor_value)), scale(S::broadcast(map->scale)) {}
    static double x(const LogitMap *map, float logit) {
        return static_cast<double>(map->scale) * static_cast<double>(logit);
    }

    typename S::Pair operator()(typename S::Pair logits) const {
        return {(logits.a - anchor) * scale, (logits.b - anchor) * scale};
    }

    typename S::Vector anchor, scale;
};

template <class S>
struct Softcapped {
    static constexpr bool caps = true;
    explicit Softcapped(float anchor_value) : anchor(S::broadcast(anchor_value)) {}
    static double x(const LogitMap *map, float logit) {
        return static_cast<double>(Softcap<S>(map)(S::broadcast(logit)).x[0]);
    }

    // The x of a smaller logit may be rounded to more than that of the largest: with an enormous cap, to so much more
    // that its exponential would be infinite.
    typename S::Pair operator()(typename S::Pair capped) const {
        const auto zero = S::broadcast(0);
        return {S::min(zero, capped.a - anchor), S::min(zero, capped.b - anchor)};
    }

    typename S::Vector anchor;
};

}  // namespace
}  // namespace gh::cpu
