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
inline Reduced<S> reduce(typename S::Vector x) {
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
inline typename S::Vector exp_biased(typename S::Vector x, const Exponent<S> &exponent) {
    x = S::clamp(x, exponent.lowest);
    const Reduced<S> reduced = reduce<S, precise>(x);
    const auto exp_r = S::fma(reduced.p, reduced.r, S::broadcast(1));
    return S::power_of_two(exp_r, reduced.k_plus_magic, exponent.zero, x, exponent.lowest);
}

// softcap * tanh(a) with a = scale / softcap * logit, and its derivative by scale * logit, 1 - tanh^2. With
// e = exp(-2 |a|)
//
//     tanh = (1 - e) / (1 + e),  1 - tanh^2 = 4 e / (1 + e)^2
//
// and 1 - e is made from exp(r) - 1, so that nothing cancels: the error is a few units in the last place of either,
// for the derivative plus that of the exponent, 2^-22 |a|. A derivative below 2^-125 is 0.
template <class S>
struct Capped {
    typename S::Vector x, slope;
};

template <class S>
inline Capped<S> cap(typename S::Vector logit, typename S::Vector to_unit, typename S::Vector softcap) {
    const auto one = S::broadcast(1), lowest = S::broadcast(-127 * static_cast<float>(ln2));
    const auto above_infinity = S::max(S::broadcast(-FLT_MAX), logit);  // whose product with 0 would be NaN
    const auto a = above_infinity * to_unit;
    const auto x = S::max(lowest, S::broadcast(-2) * S::max(a, S::broadcast(0) - a));
    const Reduced<S> reduced = reduce<S, true>(x);
    const auto power = S::power_of_two(one, reduced.k_plus_magic, S::broadcast(magic), x, lowest);
    const auto exp_r_minus_1 = reduced.r * reduced.p;
    const auto e = S::fma(power, exp_r_minus_1, power);
    const auto one_minus_e = (one - power) - power * exp_r_minus_1;
    const auto inverse = one / (one + e);
    const auto magnitude = softcap * (one_minus_e * inverse);
    // 0 for a finite logit, -inf for -inf: a class that is masked out remains so. NaN for NaN and +inf.
    const auto not_finite = logit - above_infinity;
    return {S::copy_sign(magnitude, logit) + not_finite, S::broadcast(4) * (e * inverse) * inverse};
}

// From logits to x - max, in the three ways that x is made of a logit. `anchor` is the largest logit; with a softcap,
// the largest x.
//
// Scaling the difference instead of the logits leaves it exact for logits that are near each other.
template <class S>
struct Plain {
    static constexpr bool has_slope = false;
    explicit Plain(const LogitMap *, float anchor_value) : anchor(S::broadcast(anchor_value)) {}
    static double x(const LogitMap *, float logit) { return static_cast<double>(logit); }
    static float anchor_at(const LogitMap *, float logit) { return logit; }

    typename S::Vector operator()(typename S::Vector logit) const { return logit - anchor; }

    typename S::Vector anchor;
};

template <class S>
struct Scaled {
    static constexpr bool has_slope = false;
    Scaled(const LogitMap *map, float anchor_value)
        : anchor(S::broadcast(anchor_value)), scale(S::broadcast(map->scale)) {}
    static double x(const LogitMap *map, float logit) {
        return static_cast<double>(map->scale) * static_cast<double>(logit);
    }
    static float anchor_at(const LogitMap *, float logit) { return logit; }

    typename S::Vector operator()(typename S::Vector logit) const { return (logit - anchor) * scale; }
    // Half of it, which cannot overflow in fp32 unless the scale makes it.
    typename S::Vector half(typename S::Vector logit) const {
        const auto half = S::broadcast(0.5f);
        return (logit * half - anchor * half) * scale;
    }

    typename S::Vector anchor, scale;
};

template <class S>
struct Softcapped {
    static constexpr bool has_slope = true;
    Softcapped(const LogitMap *map, float anchor_value)
        : anchor(S::broadcast(anchor_value)), to_unit(to_unit_of(map)), softcap(S::broadcast(map->softcap)) {}
    static double x(const LogitMap *map, float logit) { return static_cast<double>(anchor_at(map, logit)); }
    static float anchor_at(const LogitMap *map, float logit) {
        return cap<S>(S::broadcast(logit), to_unit_of(map), S::broadcast(map->softcap)).x[0];
    }
    // Formed first: the logit times the scale may be beyond fp32 where this is not.
    static typename S::Vector to_unit_of(const LogitMap *map) {
        const float quotient = map->scale / map->softcap;
        return S::broadcast(quotient < FLT_MAX ? quotient : FLT_MAX);
    }

    typename S::Vector operator()(typename S::Vector logit) const { return cap<S>(logit, to_unit, softcap).x - anchor; }
    typename S::Vector operator()(typename S::Vector logit, typename S::Vector &slope) const {
        const Capped<S> capped = cap<S>(logit, to_unit, softcap);
        slope = capped.slope;
        return capped.x - anchor;
    }

    typename S::Vector half(typename S::Vector logit) const {
        const auto half = S::broadcast(0.5f);
        return cap<S>(logit, to_unit, softcap).x * half - anchor * half;
    }

    typename S::Vector anchor, to_unit, softcap;
};

}  // namespace
}  // namespace gh::cpu
