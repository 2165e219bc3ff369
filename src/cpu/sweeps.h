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
//   reduce_add          of one Vector's floats, in double
//   bias                a power of 2: what power_of_two() multiplies with besides
//   clamp(x)            x, or max(x, lowest_exponent) for the layers whose power_of_two() needs it
//   power_of_two(p, k, k_plus_magic, x)  p * 2^k * bias, for k = x / log(2) rounded; exactly 0 for x <= lowest_exponent
#pragma once

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/kernels.h"

namespace gh::cpu {
namespace {

// The dtypes, and whether their exponentials must be good to the last bits of fp32.
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

// Below this, exp(x) times a factor of up to 4 rounds to 0 in fp32.
constexpr float lowest_exponent = -153 * 0x1.62e43p-1f;

// exp(x) * bias for x <= 0; NaN for NaN. The relative error is below 1.2e-7 if `precise`, else 1.8e-7 + 6e-8 * |x|.
template <class S, bool precise>
inline typename S::Vector exp_biased(typename S::Vector x) {
    // Adding 1.5 * 2^23 rounds to an integer, and leaves it in the low bits.
    constexpr float magic = 0x1.8p23f;
    constexpr float log2_e = 0x1.715476p0f;
    x = S::clamp(x);
    const auto k_plus_magic = S::fma(x, S::broadcast(log2_e), S::broadcast(magic));
    const auto k = k_plus_magic - S::broadcast(magic);

    // r = x - k * log(2), and exp(r) for |r| <= log(2) / 2 by the minimax polynomials that start with 1 + r.
    typename S::Vector r, p;
    if constexpr (precise) {
        // log(2) in two parts; the first has so few bits that k times it is exact even without FMA.
        r = S::fma(k, S::broadcast(-0x1.62ep-1f), x);
        r = S::fma(k, S::broadcast(-0x1.0bfbe8p-15f), r);
        p = S::fma(r, S::broadcast(0x1.6a2448p-10f), S::broadcast(0x1.1239d6p-7f));
        p = S::fma(p, r, S::broadcast(0x1.5558f2p-5f));
        p = S::fma(p, r, S::broadcast(0x1.555492p-3f));
        p = S::fma(p, r, S::broadcast(0x1.fffffcp-2f));
    } else {
        r = S::fma(k, S::broadcast(-0x1.62e43p-1f), x);
        p = S::fma(r, S::broadcast(0x1.106282p-7f), S::broadcast(0x1.5729f4p-5f));
        p = S::fma(p, r, S::broadcast(0x1.5557aep-3f));
        p = S::fma(p, r, S::broadcast(0x1.fffdfcp-2f));
    }
    p = S::fma(p, r, S::broadcast(1));
    p = S::fma(p, r, S::broadcast(1));
    return S::power_of_two(p, k, k_plus_magic, x);
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

// Adds the exponentials of at most `block_pairs` pairs to `sum`. The block is read twice, the second time from the
// nearest cache; its own short sums are in fp32, the sum of the blocks is in double.
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

    const auto max = S::broadcast(sum.max);
    auto sum_a = S::broadcast(0), sum_b = sum_a;
    for (int64_t i = 0; i < pairs; i++) {
        const auto v = S::load(T{}, x + i * pair_size<S>);
        sum_a = sum_a + exp_biased<S, T::precise>(v.a - max);
        sum_b = sum_b + exp_biased<S, T::precise>(v.b - max);
    }
    sum.scale += S::reduce_add(sum_a + sum_b);
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
    sum.scale *= 1 / static_cast<double>(S::bias);
    return sum;
}

template <class S, class T>
inline void exp_scale_pair(typename T::Element *x, typename S::Vector max, typename S::Vector factor) {
    const auto v = S::load(T{}, x);
    S::store(T{}, x, {exp_biased<S, T::precise>(v.a - max) * factor, exp_biased<S, T::precise>(v.b - max) * factor});
}

template <class S, class T>
void exp_scale(void *data, int64_t count, float max_value, float factor_value) {
    auto *x = static_cast<typename T::Element *>(data);
    const auto max = S::broadcast(max_value), factor = S::broadcast(factor_value / S::bias);
    const int64_t pairs = count / pair_size<S>;
    for (int64_t i = 0; i < pairs; i++) exp_scale_pair<S, T>(x + i * pair_size<S>, max, factor);
    if (const int64_t rest = count % pair_size<S>) {
        x += pairs * pair_size<S>;
        Tail<S, T> tail(x, rest);
        exp_scale_pair<S, T>(tail.elements, max, factor);
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
