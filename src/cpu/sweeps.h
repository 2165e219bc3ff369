// The two sweeps over logits: the sum of exponentials, which reads them, and the gradient, which replaces them. Written
// once, over a layer of SIMD operations; each instruction set's source file defines such a layer and includes this.
//
// Everything here has internal linkage, and nothing but C functions may be called that is not inlined: a function that
// the linker may merge with another file's copy could carry AVX-512 code into a program for a processor without it.
//
// A layer `S` has
//   Vector, width       `width` floats, with the operators + - *
//   Pair                two Vectors a, b: what load() makes of 2 * width elements, in an order of its own, which
//                       store() undoes. (The halves of a 32-bit word are quicker to separate than to spread out.)
//   load, store         to and from F32, F16 and BF16; rounding to nearest even, also to denormals. The only NaN that
//                       store() need cope with is the quiet one without payload.
//   broadcast, fma      fma(a, b, c) = a * b + c
//   max(a, b)           b where a or b is NaN
//   reduce_max          of one Vector's floats, none of them NaN
//   Sum                 as many doubles as a Vector has floats: add(Vector), total()
//   clamp(x, lowest)    x, or max(x, lowest) for the layers whose power_of_two() needs it
//   power_of_two(p, k, zero, x, lowest)  p * 2^(k - zero), for k and zero as Exponent makes them from x; exactly 0 for
//                       x <= lowest, where k - zero is -127
#pragma once

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/kernels.h"

namespace gh::cpu {
namespace {

// The dtypes, and whether a gradient needs exponentials that are good to the last bits of fp32.
struct F32 {
    using Element = float;
    static constexpr bool precise = true;
};
struct F16 {
    using Element = uint16_t;
    static constexpr bool precise = false;
};
struct BF16 {
    using Element = uint16_t;
    static constexpr bool precise = false;
};

template <class S>
inline constexpr int64_t pair_size = 2 * S::width;

// Adding this to a float rounds it to an integer, and leaves that in the low bits.
constexpr float magic = 0x1.8p23f;
constexpr double ln2 = 0x1.62e42fefa39efp-1;

// exp(x - max) for x <= max, as 2^(k - power) * exp(r) * a number near 1 that is the same for the whole row:
//
//     x - anchor = k * ln2 + r,  max - anchor = power * ln2 + rest,  exp(x - max) = 2^(k - power) * exp(r - rest)
//
// With anchor = max that is the usual way, and x - max is rounded before it is used: an error of up to
// 6e-8 * |x - max| in the result. With anchor = 0 there is no such error, but x must not be large.
//
// The power is made too large by 2^40, and the product with the caller's factor sets it right. So only that last
// product can become denormal and is rounded as such; and what is 2^-167 of the row's largest exponential becomes 0.
constexpr float bias = 0x1p40f;

template <class S>
struct Exponent {
    explicit Exponent(float max) : Exponent(max, 0) {}
    Exponent(float anchor_value, float power)
        : anchor(S::broadcast(anchor_value)),
          zero(S::broadcast(magic + power - 40)),
          lowest(S::broadcast((power - 167) * static_cast<float>(ln2))) {}

    typename S::Vector anchor, zero, lowest;
};

// exp(x - max) * exp(rest) * bias; NaN for NaN. The polynomials for exp(r), |r| <= ln2 / 2, are minimax ones that
// start with 1 + r. Relative error below 1.2e-7 if `precise`, else below 1.8e-7 + 2e-9 * |k|, both plus that of the
// anchor.
template <class S, bool precise>
inline typename S::Vector exp_biased(typename S::Vector x, const Exponent<S> &exponent) {
    x = S::clamp(x - exponent.anchor, exponent.lowest);
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
    p = S::fma(p, r, S::broadcast(1));
    p = S::fma(p, r, S::broadcast(1));
    return S::power_of_two(p, k_plus_magic, exponent.zero, x, exponent.lowest);
}

// The last, incomplete pair of an array, completed with -inf.
template <class S, class T>
struct Tail {
    alignas(64) typename T::Element elements[pair_size<S>];

    Tail(const typename T::Element *x, int64_t count) {
        const auto nothing = S::broadcast(-INFINITY);
        S::store(T{}, elements, {nothing, nothing});
        memcpy(elements, x, static_cast<size_t>(count) * sizeof(*x));
    }
};

// The exponentials of one pair, added.
template <class S, class T>
inline typename S::Vector exp_pair(const typename T::Element *x, const Exponent<S> &exponent) {
    const auto v = S::load(T{}, x);
    return exp_biased<S, true>(v.a, exponent) + exp_biased<S, true>(v.b, exponent);
}

// Adds the exponentials of at most `block_pairs` pairs to `sum`. The block is read twice, the second time from the
// nearest cache. Only eight numbers at a time are added in fp32: a lane that holds the row's largest exponential would
// lose a bit with every few small ones that are added to it.
constexpr int64_t block_pairs = 64;

template <class S, class T>
inline void add_block(ExpSum &sum, const typename T::Element *x, int64_t pairs) {
    auto max_a = S::broadcast(-FLT_MAX), max_b = max_a;
    for (int64_t i = 0; i < pairs; i++) {
        const auto v = S::load(T{}, x + i * pair_size<S>);
        max_a = S::max(v.a, max_a);
        max_b = S::max(v.b, max_b);
    }
    const float block_max = S::reduce_max(S::max(max_a, max_b));
    if (block_max > sum.max) {
        if (sum.scale != 0) sum.scale *= exp(static_cast<double>(sum.max) - static_cast<double>(block_max));
        sum.max = block_max;
    }

    const Exponent<S> exponent(sum.max);
    typename S::Sum block_sum;
    for (; pairs >= 4; pairs -= 4, x += 4 * pair_size<S>) {
        const auto first = exp_pair<S, T>(x, exponent) + exp_pair<S, T>(x + pair_size<S>, exponent);
        const auto second =
            exp_pair<S, T>(x + 2 * pair_size<S>, exponent) + exp_pair<S, T>(x + 3 * pair_size<S>, exponent);
        block_sum.add(first + second);
    }
    for (; pairs > 0; pairs--, x += pair_size<S>) block_sum.add(exp_pair<S, T>(x, exponent));
    sum.scale += block_sum.total();
}

template <class S, class T>
ExpSum exp_sum(const void *data, int64_t count) {
    const auto *x = static_cast<const typename T::Element *>(data);
    ExpSum sum{-FLT_MAX, 0};
    const int64_t pairs = count / pair_size<S>;
    for (int64_t i = 0; i < pairs; i += block_pairs)
        add_block<S, T>(sum, x + i * pair_size<S>, pairs - i < block_pairs ? pairs - i : block_pairs);
    if (const int64_t rest = count % pair_size<S>) {
        const Tail<S, T> tail(x + pairs * pair_size<S>, rest);
        add_block<S, T>(sum, tail.elements, 1);
    }
    sum.scale *= 1 / static_cast<double>(bias);
    return sum;
}

template <class S, class T>
inline void exp_scale_pair(typename T::Element *x, const Exponent<S> &exponent, typename S::Vector factor) {
    const auto v = S::load(T{}, x);
    S::store(T{}, x,
             {exp_biased<S, T::precise>(v.a, exponent) * factor, exp_biased<S, T::precise>(v.b, exponent) * factor});
}

template <class S, class T>
void exp_scale(void *data, int64_t count, float max, double factor_value) {
    // From 1024 on, x - max is exact for every x whose result is not 0: the two are within a factor of 2.
    const bool anchor_at_0 = T::precise && fabsf(max) < 1024;
    const double power = anchor_at_0 ? nearbyint(static_cast<double>(max) / ln2) : 0;
    const Exponent<S> exponent(anchor_at_0 ? 0 : max, static_cast<float>(power));
    if (anchor_at_0) factor_value *= exp(power * ln2 - static_cast<double>(max));

    // A factor beyond fp32 would turn the zeros of -inf columns into NaN.
    const double largest = static_cast<double>(FLT_MAX);
    factor_value = factor_value > largest ? largest : factor_value < -largest ? -largest : factor_value;
    const auto factor = S::broadcast(static_cast<float>(factor_value) / bias);

    auto *x = static_cast<typename T::Element *>(data);
    const int64_t pairs = count / pair_size<S>;
    for (int64_t i = 0; i < pairs; i++) exp_scale_pair<S, T>(x + i * pair_size<S>, exponent, factor);
    if (const int64_t rest = count % pair_size<S>) {
        x += pairs * pair_size<S>;
        Tail<S, T> tail(x, rest);
        exp_scale_pair<S, T>(tail.elements, exponent, factor);
        memcpy(x, tail.elements, static_cast<size_t>(rest) * sizeof(*x));
    }
}

template <class S, class T>
float load_one(const void *x) {
    const Tail<S, T> tail(static_cast<const typename T::Element *>(x), 1);
    return S::load(T{}, tail.elements).a[0];
}

template <class S, class T>
void store_one(void *x, float value) {
    const auto v = S::broadcast(value);
    alignas(64) typename T::Element elements[pair_size<S>];
    S::store(T{}, elements, {v, v});
    memcpy(x, elements, sizeof(elements[0]));
}

template <class S, class T>
constexpr Kernels make_kernels() {
    return {exp_sum<S, T>, exp_scale<S, T>, load_one<S, T>, store_one<S, T>};
}

template <class S>
const Kernels &kernels_of(gh_dtype dtype) {
    static constexpr Kernels f32 = make_kernels<S, F32>(), f16 = make_kernels<S, F16>(), bf16 = make_kernels<S, BF16>();
    return dtype == GH_DTYPE_F32 ? f32 : dtype == GH_DTYPE_F16 ? f16 : bf16;
}

}  // namespace
}  // namespace gh::cpu
