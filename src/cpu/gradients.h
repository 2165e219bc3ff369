// The sweeps that write the gradient, over the logits or elsewhere.
#pragma once

#include "cpu/elements.h"
#include "cpu/vector_math.h"

namespace gh::cpu {
namespace {

// The bias of exponentials that a factor of this size is multiplied with, so that dividing it by 2^bias makes it no
// denormal.
inline float bias_for(double factor) {
    return fabs(factor) < 0x1p-60 ? 0 : usual_bias;
}

inline float unbias(float bias) {
    return bias == 0 ? 1 : usual_unbias;
}

// A number that is beyond fp32, but not infinite, is taken for the largest: the zeros of -inf columns stay so.
inline float to_float(double value, double largest) {
    if (fabs(value) > DBL_MAX) return static_cast<float>(value);
    return static_cast<float>(value > largest ? largest : value < -largest ? -largest : value);
}

// Replaces each pair by what `convert` makes of it and of the weights there, if there are any; the last one is
// completed.
template <class S, class T, class Convert>
inline void convert_pairs(const void *from, void *to, int64_t count, const float *weights, const Convert &convert) {
    using Element = typename T::Element;
    const auto *x = static_cast<const Element *>(from);
    auto *y = static_cast<Element *>(to);
    const int64_t rest = count % pair_size<S>, whole = count - rest;
    for (int64_t i = 0; i < whole; i += pair_size<S>)
        S::store(T{}, y + i, convert(S::load(T{}, x + i), weights == nullptr ? nullptr : weights + i));
    if (rest == 0) return;
    Tail<S, T> tail(x + whole, rest);
    const auto v = S::load(T{}, tail.elements);
    S::store(T{}, tail.elements,
             weights == nullptr ? convert(v, nullptr) : convert(v, Tail<S, F32>(weights + whole, rest, 0).elements));
    memcpy(y + whole, tail.elements, static_cast<size_t>(rest) * sizeof(Element));
}

template <class S, class T>
void exp_scale(const void *x, void *y, int64_t count, float max, double factor_value) {
    // From 1024 on, x - max is exact for every x whose result is not 0: the two are within a factor of 2.
    const bool anchor_at_0 = T::precise && fabsf(max) < 1024;
    const double power = anchor_at_0 ? nearbyint(static_cast<double>(max) / ln2) : 0;
    const float bias = bias_for(factor_value);
    const Exponent<S> exponent(bias, static_cast<float>(power));
    const auto anchor = S::broadcast(anchor_at_0 ? 0 : max);
    if (anchor_at_0) factor_value *= exp(power * ln2 - static_cast<double>(max));
    const auto factor = S::broadcast(to_float(factor_value, static_cast<double>(FLT_MAX)) * unbias(bias));

    convert_pairs<S, T>(x, y, count, nullptr, [&](typename S::Pair v, const float *) {
        v.a = exp_biased<S, T::precise>(v.a - anchor, exponent) * factor;
        v.b = exp_biased<S, T::precise>(v.b - anchor, exponent) * factor;
        return v;
    });
}

template <class S, class T, class Difference>
void gradient_by(const void *x, void *y, int64_t count, const LogitMap &map, float anchor, const GradientTerms &terms,
                 const float *weights) {
    const Difference difference(&map, anchor);
    const float bias = bias_for(fmax(fabs(terms.factor), fabs(terms.slope)));
    const Exponent<S> exponent(bias);
    // Distances are taken for 116 at most, where the exponential is 0. Then factor + slope * distance must be finite.
    const double largest = static_cast<double>(FLT_MAX) / 2;
    const auto factor = S::broadcast(to_float(terms.factor, largest) * unbias(bias));
    const auto minus_slope = S::broadcast(-to_float(terms.slope, largest / 128) * unbias(bias));
    const auto minus_shift = S::broadcast(-to_float(terms.shift, largest));
    const auto one = S::broadcast(1);

    const auto convert = [&](typename S::Vector logit, typename S::Vector weight) {
        auto derivative = one;
        typename S::Vector d;
        if constexpr (Difference::has_slope)
            d = difference(logit, derivative);
        else
            d = difference(logit);
        d = S::max(exponent.lowest, d);
        const auto terms_of_exp = exp_biased<S, T::precise>(d, exponent) * S::fma(minus_slope, d, factor);
        const auto result = S::fma(minus_shift, weight, terms_of_exp);
        if constexpr (Difference::has_slope) return result * derivative;
        return result;
    };
    convert_pairs<S, T>(x, y, count, weights, [&](typename S::Pair v, const float *weight) {
        auto w = typename S::Pair{one, one};
        if (weight != nullptr) w = S::load_floats(T{}, weight);
        return typename S::Pair{convert(v.a, w.a), convert(v.b, w.b)};
    });
}

template <class S, class T>
void gradient(const void *x, void *y, int64_t count, const LogitMap &map, float anchor, const GradientTerms &terms,
              const float *weights) {
    if (map.softcap == 0)
        gradient_by<S, T, Scaled<S>>(x, y, count, map, anchor, terms, weights);
    else
        gradient_by<S, T, Softcapped<S>>(x, y, count, map, anchor, terms, weights);
}

template <class S, class T>
void scale(void *x, int64_t count, float factor_value) {
    const auto factor = S::broadcast(factor_value);
    convert_pairs<S, T>(x, x, count, nullptr, [&](typename S::Pair v, const float *) {
        v.a = v.a * factor;
        v.b = v.b * factor;
        return v;
    });
}

}  // namespace
}  // namespace gh::cpu
