// The two sweeps over logits: the sum of exponentials, which reads them, and the gradient, which replaces them. Written
// once, over a layer of SIMD operations; each instruction set's source file defines such a layer and includes this.
//
// Everything here has internal linkage, and nothing but C functions may be called that is not inlined: a function that
// the linker may merge with another file's copy could carry AVX-512 code into a program for a processor without it.
//
// A layer `S` has
//   Vector, width     `width` floats, with the operators + - *
//   Pair              two Vectors a, b: what load() makes of 2 * width elements, in an order of its own, which store()
//                     undoes. (The halves of a 32-bit word are quicker to separate than to spread out.)
//   load, store       to and from F32, F16 and BF16; rounding to nearest even, also to denormals. The only NaN that
//                     store() need cope with is the quiet one without payload.
//   broadcast, fma(a, b, c) = a * b + c
//   max(a, b)         b where a or b is NaN
//   power_of_two(p, k, k_plus_magic)  p * 2^(k + bias); exactly 0 if k == lowest_k
//   bias, lowest_k    constants
#pragma once

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/kernels.h"

namespace gh::cpu {
namespace {

struct F32 {
    using Element = float;
};
struct F16 {
    using Element = uint16_t;
};
struct BF16 {
    using Element = uint16_t;
};

template <class S>
inline constexpr int64_t pair_size = 2 * S::width;

// exp(x) * 2^bias for x <= 0, within 1.5 ulp; NaN for NaN, and exactly 0 below e^(lowest_k * log(2)).
template <class S>
inline typename S::Vector exp_biased(typename S::Vector x) {
    // Adding 1.5 * 2^23 rounds to an integer, and leaves it in the low bits.
    constexpr float magic = 0x1.8p23f;
    constexpr float log2_e = 0x1.715476p0f;
    // log(2) in two parts; the first has so few bits that k * log2_high is exact even without FMA.
    constexpr float log2_high = 0x1.62ep-1f, log2_low = 0x1.0bfbe8p-15f;

    // Also keeps -inf from becoming NaN below.
    x = S::max(S::broadcast(S::lowest_k * (log2_high + log2_low)), x);
    const auto k_plus_magic = S::fma(x, S::broadcast(log2_e), S::broadcast(magic));
    const auto k = k_plus_magic - S::broadcast(magic);
    auto r = S::fma(k, S::broadcast(-log2_high), x);
    r = S::fma(k, S::broadcast(-log2_low), r);

    // exp(r) for |r| <= log(2) / 2: the minimax polynomial of degree 6 that starts with 1 + r; off by at most 3.1e-9.
    auto p = S::fma(r, S::broadcast(0x1.6a2448p-10f), S::broadcast(0x1.1239d6p-7f));
    p = S::fma(p, r, S::broadcast(0x1.5558f2p-5f));
    p = S::fma(p, r, S::broadcast(0x1.555492p-3f));
    p = S::fma(p, r, S::broadcast(0x1.fffffcp-2f));
    p = S::fma(p, r, S::broadcast(1));
    p = S::fma(p, r, S::broadcast(1));
    return S::power_of_two(p, k, k_plus_magic);
}

template <class S>
inline float reduce_max(typename S::Vector v) {
    float m = v[0];
    for (int i = 1; i < S::width; i++) m = m < v[i] ? v[i] : m;
    return m;
}

template <class S>
inline double reduce_add(typename S::Vector v) {
    double sum = 0;
    for (int i = 0; i < S::width; i++) sum += static_cast<double>(v[i]);
    return sum;
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
constexpr int64_t block_pairs = 32;

template <class S, class T>
inline void add_block(ExpSum &sum, const typename T::Element *x, int64_t pairs) {
    auto max_a = S::broadcast(-FLT_MAX), max_b = max_a;
    for (int64_t i = 0; i < pairs; i++) {
        const auto v = S::load(T{}, x + i * pair_size<S>);
        max_a = S::max(v.a, max_a);
        max_b = S::max(v.b, max_b);
    }
    const float block_max = reduce_max<S>(S::max(max_a, max_b));
    if (block_max > sum.max) {
        if (sum.scale != 0) sum.scale *= exp(static_cast<double>(sum.max) - static_cast<double>(block_max));
        sum.max = block_max;
    }

    const auto max = S::broadcast(sum.max);
    auto sum_a = S::broadcast(0), sum_b = sum_a;
    for (int64_t i = 0; i < pairs; i++) {
        const auto v = S::load(T{}, x + i * pair_size<S>);
        sum_a = sum_a + exp_biased<S>(v.a - max);
        sum_b = sum_b + exp_biased<S>(v.b - max);
    }
    sum.scale += reduce_add<S>(sum_a + sum_b);
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
    S::store(T{}, x, {exp_biased<S>(v.a - max) * factor, exp_biased<S>(v.b - max) * factor});
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
