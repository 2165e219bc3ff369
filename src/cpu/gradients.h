// The sweeps that write the gradient, over the logits or elsewhere.
#pragma once

#include "cpu/blocks.h"
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

// Replaces each pair by what `convert` makes of its index, of it, and of the weights there, if there are any; the last
// one is completed.
template <class S, class T, class Convert>
[[gnu::always_inline]] inline void convert_pairs(const void *from, void *to, int64_t count, const float *weights,
                                                 const Convert &convert) {
    using Element = typename T::Element;
    const auto *x = static_cast<const Element *>(from);
    auto *y = static_cast<Element *>(to);
    const int64_t rest = count % pair_size<S>, whole = count - rest;
    for (int64_t i = 0; i < whole; i += pair_size<S>)
        S::store(T{}, y + i,
                 convert(i / pair_size<S>, S::load(T{}, x + i), weights == nullptr ? nullptr : weights + i));
    if (rest == 0) return;
    Tail<S, T> tail(x + whole, rest);
    const auto v = S::load(T{}, tail.elements);
    const auto last = [&](const float *weight) { return convert(whole / pair_size<S>, v, weight); };
    S::store(T{}, tail.elements,
             weights == nullptr ? last(nullptr) : last(Tail<S, F32>(weights + whole, rest, 0).elements));
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

    convert_pairs<S, T>(x, y, count, nullptr, [&](int64_t, typename S::Pair v, const float *) {
        v.a = exp_biased<S, T::precise>(v.a - anchor, exponent) * factor;
        v.b = exp_biased<S, T::precise>(v.b - anchor, exponent) * factor;
        return v;
    });
}

// GradientTerms for the sweep: the gradient from x - anchor. `with_slope`: is the slope anything but 0?
template <class S, class T, bool with_slope>
struct GradientOf {
    explicit GradientOf(const GradientTerms &terms)
        : GradientOf(terms, bias_for(fmax(fabs(terms.factor), fabs(terms.slope)))) {}

    [[gnu::always_inline]] typename S::Vector operator()(typename S::Vector difference,
                                                         typename S::Vector weight) const {
        const auto d = with_slope ? S::max(exponent.lowest, difference) : difference;
        const auto exp_factor = with_slope ? S::fma(minus_slope, d, factor) : factor;
        return S::fma(minus_shift, weight, exp_biased<S, T::precise>(d, exponent) * exp_factor);
    }

private:
    // Distances are taken for 116 at most, where the exponential is 0. Then factor + slope * distance must be finite.
    static constexpr double largest = static_cast<double>(FLT_MAX) / 2;

    GradientOf(const GradientTerms &terms, float bias)
        : exponent(bias),
          factor(S::broadcast(to_float(terms.factor, largest) * unbias(bias))),
          minus_slope(S::broadcast(-to_float(terms.slope, largest / 128) * unbias(bias))),
          minus_shift(S::broadcast(-to_float(terms.shift, largest))) {}

    Exponent<S> exponent;
    typename S::Vector factor, minus_slope, minus_shift;
};

template <class S, class T, bool with_slope>
void gradient_by(const void *from, void *to, int64_t count, const LogitMap &map, float anchor,
                 const GradientTerms &terms, const float *weights) {
    const GradientOf<S, T, with_slope> gradient_of(terms);
    const auto weights_at = [](const float *weight) __attribute__((always_inline)) {
        const auto one = S::broadcast(1);
        return weight == nullptr ? typename S::Pair{one, one} : S::load_floats(T{}, weight);
    };
    if (map.softcap == 0) {
        const Scaled<S> difference(&map, anchor);
        const auto convert = [&](int64_t, typename S::Pair v, const float *weight) __attribute__((always_inline)) {
            const auto d = difference(v), w = weights_at(weight);
            return typename S::Pair{gradient_of(d.a, w.a), gradient_of(d.b, w.b)};
        };
        convert_pairs<S, T>(from, to, count, weights, convert);
        return;
    }
    const Softcap<S> cap(&map);
    const Softcapped<S> difference(anchor);
    const auto *x = static_cast<const typename T::Element *>(from);
    auto *y = static_cast<typename T::Element *>(to);
    for (int64_t begin = 0; begin < count; begin += block_size<S>) {
        const int64_t size = count - begin < block_size<S> ? count - begin : block_size<S>;
        const CappedBlock<S, true> capped(Block<S, T>(x + begin, size, T::minus_infinity), cap);
        const auto convert = [&](int64_t i, typename S::Pair, const float *weight) __attribute__((always_inline)) {
            const auto d = difference(capped[i]), slope = capped.slope(i), w = weights_at(weight);
            return typename S::Pair{gradient_of(d.a, w.a) * slope.a, gradient_of(d.b, w.b) * slope.b};
        };
        convert_pairs<S, T>(x + begin, y + begin, size, weights == nullptr ? nullptr : weights + begin, convert);
    }
}

template <class S, class T>
void gradient(const void *x, void *y, int64_t count, const LogitMap &map, float anchor, const GradientTerms &terms,
              const float *weights) {
    if (terms.slope == 0)
        gradient_by<S, T, false>(x, y, count, map, anchor, terms, weights);
    else
        gradient_by<S, T, true>(x, y, count, map, anchor, terms, weights);
}

template <class S, class T>
void scale(void *x, int64_t count, float factor_value) {
    const auto factor = S::broadcast(factor_value);
    convert_pairs<S, T>(x, x, count, nullptr, [&](int64_t, typename S::Pair v, const float *) {
        v.a = v.a * factor;
        v.b = v.b * factor;
        return v;
    });
}

}  // namespace
}  // namespace gh::cpu
