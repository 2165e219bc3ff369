// What is computed of several vectors of a row at once.
#pragma once

#include <cfloat>

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/row_math.cuh"

namespace gh {

// The largest element; NaN only if all are.
template <typename T, int count>
__device__ __forceinline__ float max_element(const uint4 (&x)[count]) {
    uint4 max = x[0];
#pragma unroll
    for (int i = 1; i < count; i++) max = Element<T>::larger(max, x[i]);
    return Element<T>::max(max);
}

template <typename T, int count>
__device__ __forceinline__ float max_magnitude(const uint4 (&x)[count]) {
    uint4 max = Element<T>::magnitudes(x[0]);
#pragma unroll
    for (int i = 1; i < count; i++) max = Element<T>::larger(max, Element<T>::magnitudes(x[i]));
    return Element<T>::max(max);
}

// Sums of two kinds of elements in turn, so that one addition need not wait for the other.
template <typename T, int count, typename Term>
__device__ __forceinline__ float sum_elements(const uint4 (&x)[count], Term term) {
    constexpr int per_vector = Element<T>::per_vector;
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int i = 0; i < count; i++) {
        float f[per_vector];
        Element<T>::unpack(x[i], f);
#pragma unroll
        for (int k = 0; k < per_vector; k += 2) {
            even += term(f[k]);
            odd += term(f[k + 1]);
        }
    }
    return even + odd;
}

// exp(x - max), summed over the elements, of plain terms.
template <typename T, int count>
__device__ __forceinline__ float sum_exp(const Scale<Terms::plain> &scale, const uint4 (&x)[count], float max) {
    if constexpr (fuses_powers<T>) {
        const FusedPowers powers(scale, max);
        if (powers.hold()) {
            const float sum =
                sum_elements<T>(x, [&](float f) { return ptx::ex2_approx_ftz(fmaf(f, scale.bits, -powers.product)); });
            return sum * ptx::ex2_approx_ftz(-powers.excess);
        }
    }
    return sum_elements<T>(x, [&](float f) { return scale.exp_minus(f, max); });
}

// The class weights of a vector whose first column is `column`.
template <typename T>
__device__ __forceinline__ void load_class_weights(const CallParameters &p, int column,
                                                   float (&weights)[Element<T>::per_vector]) {
    const float *const first = p.class_weights + column;
    if (reinterpret_cast<uintptr_t>(first) % 16 == 0) {
#pragma unroll
        for (int k = 0; k < Element<T>::per_vector; k += 4) {
            const float4 four = __ldg(reinterpret_cast<const float4 *>(first + k));
            weights[k] = four.x;
            weights[k + 1] = four.y;
            weights[k + 2] = four.z;
            weights[k + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int k = 0; k < Element<T>::per_vector; k++) weights[k] = __ldg(first + k);
    }
}

// Sums over some of a row's classes, all relative to the same maximum, as in Moments.
struct ClassSums {
    float exp = 0.0f;
    float entropy = 0.0f;
    float below = 0.0f;  // with the same weight for all classes: 1
};

// Adds the elements of some vectors; `power(float)` is log2 of the exponential, and `counts(i)` says whether vector i
// is part of the row. If it is not, its elements are -inf.
template <typename T, bool with_below, bool with_entropy, int count, typename Power, typename Counts>
__device__ __forceinline__ void add_classes(ClassSums &sums, const uint4 (&x)[count], Power power, Counts counts) {
    constexpr int per_vector = Element<T>::per_vector;
    // In two parts each, so that one addition need not wait for the other.
    float exp[2] = {sums.exp, 0.0f}, entropy[2] = {sums.entropy, 0.0f};
#pragma unroll
    for (int i = 0; i < count; i++) {
        float f[per_vector], below[2] = {0.0f, 0.0f};
        Element<T>::unpack(x[i], f);
#pragma unroll
        for (int k = 0; k < per_vector; k++) {
            const float y = power(f[k]), e = ptx::ex2_approx_ftz(y);
            exp[k % 2] += e;
            if (with_below) below[k % 2] += y;
            if (with_entropy) entropy[k % 2] = fmaf(e, fmaxf(y, -FLT_MAX), entropy[k % 2]);
        }
        if (with_below && counts(i)) sums.below += below[0] + below[1];
    }
    sums.exp = exp[0] + exp[1];
    sums.entropy = entropy[0] + entropy[1];
}

}  // namespace gh
