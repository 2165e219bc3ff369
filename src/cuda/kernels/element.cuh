// The three element types: how 16 bytes of logits become floats, and floats 16 bytes of gradient.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace gh {

template <typename T>
struct Element;

template <>
struct Element<float> {
    static constexpr int per_vector = 4;
    static constexpr uint32_t minus_infinity = 0xff800000u;  // fills a 32-bit word
    __device__ static float to_float(float x) { return x; }
    __device__ static float from_bits(uint32_t bits) { return __uint_as_float(bits); }
    __device__ static float from_float(float x) { return x; }
    __device__ static uint32_t to_bits(float x) { return __float_as_uint(x); }
    // Ones where two words have equal elements, else zeros.
    __device__ static uint32_t equal(uint32_t a, uint32_t b) {
        return __uint_as_float(a) == __uint_as_float(b) ? ~0u : 0u;
    }
    __device__ static void unpack(uint4 v, float *x) {
        x[0] = __uint_as_float(v.x);
        x[1] = __uint_as_float(v.y);
        x[2] = __uint_as_float(v.z);
        x[3] = __uint_as_float(v.w);
    }
    __device__ static uint4 pack(const float *x) {
        return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
    }
    __device__ static float max(uint4 v) {
        return fmaxf(fmaxf(__uint_as_float(v.x), __uint_as_float(v.y)),
                     fmaxf(__uint_as_float(v.z), __uint_as_float(v.w)));
    }
    // Of each two elements at the same place; NaN only if both are.
    __device__ static uint4 larger(uint4 a, uint4 b) {
        return make_uint4(__float_as_uint(fmaxf(__uint_as_float(a.x), __uint_as_float(b.x))),
                          __float_as_uint(fmaxf(__uint_as_float(a.y), __uint_as_float(b.y))),
                          __float_as_uint(fmaxf(__uint_as_float(a.z), __uint_as_float(b.z))),
                          __float_as_uint(fmaxf(__uint_as_float(a.w), __uint_as_float(b.w))));
    }
    // Without the signs.
    __device__ static uint4 magnitudes(uint4 v) {
        return make_uint4(v.x & 0x7fffffffu, v.y & 0x7fffffffu, v.z & 0x7fffffffu, v.w & 0x7fffffffu);
    }
};

template <>
struct Element<__half> {
    static constexpr int per_vector = 8;
    static constexpr uint32_t minus_infinity = 0xfc00fc00u;
    __device__ static float to_float(__half x) { return __half2float(x); }
    __device__ static float from_bits(uint32_t bits) {
        return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    }
    __device__ static __half from_float(float x) { return __float2half_rn(x); }
    __device__ static uint16_t to_bits(float x) { return __half_as_ushort(from_float(x)); }
    __device__ static __half2 as_pair(uint32_t word) { return reinterpret_cast<const __half2 &>(word); }
    __device__ static uint32_t equal(uint32_t a, uint32_t b) { return __heq2_mask(as_pair(a), as_pair(b)); }
    __device__ static void unpack_pair(uint32_t word, float *x) {
        const float2 pair = __half22float2(as_pair(word));
        x[0] = pair.x;
        x[1] = pair.y;
    }
    __device__ static uint32_t pack_pair(const float *x) {
        const __half2 pair = __floats2half2_rn(x[0], x[1]);
        return reinterpret_cast<const uint32_t &>(pair);
    }
    __device__ static void unpack(uint4 v, float *x) {
        unpack_pair(v.x, x);
        unpack_pair(v.y, x + 2);
        unpack_pair(v.z, x + 4);
        unpack_pair(v.w, x + 6);
    }
    __device__ static uint4 pack(const float *x) {
        return make_uint4(pack_pair(x), pack_pair(x + 2), pack_pair(x + 4), pack_pair(x + 6));
    }
    __device__ static uint4 magnitudes(uint4 v) {
        return make_uint4(v.x & 0x7fff7fffu, v.y & 0x7fff7fffu, v.z & 0x7fff7fffu, v.w & 0x7fff7fffu);
    }
    __device__ static uint32_t larger_pair(uint32_t a, uint32_t b) {
        const __half2 pair = __hmax2(as_pair(a), as_pair(b));
        return reinterpret_cast<const uint32_t &>(pair);
    }
    __device__ static uint4 larger(uint4 a, uint4 b) {
        return make_uint4(larger_pair(a.x, b.x), larger_pair(a.y, b.y), larger_pair(a.z, b.z), larger_pair(a.w, b.w));
    }
    __device__ static float max(uint4 v) {
        float pair[2];
        unpack_pair(larger_pair(larger_pair(v.x, v.y), larger_pair(v.z, v.w)), pair);
        return fmaxf(pair[0], pair[1]);
    }
};

template <>
struct Element<__nv_bfloat16> {
    static constexpr int per_vector = 8;
    static constexpr uint32_t minus_infinity = 0xff80ff80u;
    __device__ static float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
    __device__ static float from_bits(uint32_t bits) { return __uint_as_float(bits << 16); }
    __device__ static __nv_bfloat16 from_float(float x) { return __float2bfloat16_rn(x); }
    __device__ static uint16_t to_bits(float x) { return __bfloat16_as_ushort(from_float(x)); }
    __device__ static __nv_bfloat162 as_pair(uint32_t word) { return reinterpret_cast<const __nv_bfloat162 &>(word); }
    __device__ static uint32_t equal(uint32_t a, uint32_t b) { return __heq2_mask(as_pair(a), as_pair(b)); }
    __device__ static void unpack_pair(uint32_t word, float *x) {
        x[0] = __uint_as_float(word << 16);
        x[1] = __uint_as_float(word & 0xffff0000u);
    }
    __device__ static uint32_t pack_pair(const float *x) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(x[0], x[1]);
        return reinterpret_cast<const uint32_t &>(pair);
    }
    __device__ static void unpack(uint4 v, float *x) {
        unpack_pair(v.x, x);
        unpack_pair(v.y, x + 2);
        unpack_pair(v.z, x + 4);
        unpack_pair(v.w, x + 6);
    }
    __device__ static uint4 pack(const float *x) {
        return make_uint4(pack_pair(x), pack_pair(x + 2), pack_pair(x + 4), pack_pair(x + 6));
    }
    __device__ static uint4 magnitudes(uint4 v) {
        return make_uint4(v.x & 0x7fff7fffu, v.y & 0x7fff7fffu, v.z & 0x7fff7fffu, v.w & 0x7fff7fffu);
    }
    __device__ static uint32_t larger_pair(uint32_t a, uint32_t b) {
        const __nv_bfloat162 pair = __hmax2(as_pair(a), as_pair(b));
        return reinterpret_cast<const uint32_t &>(pair);
    }
    __device__ static uint4 larger(uint4 a, uint4 b) {
        return make_uint4(larger_pair(a.x, b.x), larger_pair(a.y, b.y), larger_pair(a.z, b.z), larger_pair(a.w, b.w));
    }
    __device__ static float max(uint4 v) {
        float pair[2];
        unpack_pair(larger_pair(larger_pair(v.x, v.y), larger_pair(v.z, v.w)), pair);
        return fmaxf(pair[0], pair[1]);
    }
};

// Returns element `index` of a vector and leaves -inf in its place.
template <typename T>
__device__ __forceinline__ float take_element(uint4 &vector, int index) {
    constexpr int per_word = 4 / sizeof(T);
    float taken = 0.0f;
    uint32_t *const words = &vector.x;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        if (index / per_word != w) continue;
        const int shift = index % per_word * 16;
        const uint32_t mask = per_word == 1 ? ~0u : 0xffffu << shift;
        taken = Element<T>::from_bits((words[w] & mask) >> shift);
        words[w] = (words[w] & ~mask) | (Element<T>::minus_infinity & mask);
    }
    return taken;
}

}  // namespace gh
