// The sweeps for AVX-512 (F, BW, DQ, VL).
#include <immintrin.h>

#include "cpu/sweeps.h"

namespace gh::cpu {
namespace {

struct Avx512 {
    using Vector = __m512;
    static constexpr int width = 16;
    struct Pair {
        Vector a, b;
    };
    struct Sum {
        __m512d low = _mm512_setzero_pd(), high = low;

        void add(Vector v) {
            low = low + _mm512_cvtps_pd(_mm512_castps512_ps256(v));
            high = high + _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        }
        double total() const { return _mm512_reduce_add_pd(low + high); }
    };

    static Vector broadcast(float x) { return _mm512_set1_ps(x); }
    static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
    static Vector max(Vector a, Vector b) { return _mm512_max_ps(a, b); }
    static Vector min(Vector a, Vector b) { return _mm512_min_ps(a, b); }

    static Vector abs(Vector a) { return _mm512_abs_ps(a); }
    static Vector select_less(Vector a, Vector b, Vector x, Vector y) { return _mm512_mask_mov_ps(y, less(a, b), x); }
    static bool all_less(Vector a, Vector b) { return less(a, b) == 0xffff; }
    static Vector copy_sign(Vector a, Vector b) { return _mm512_or_ps(a, _mm512_and_ps(b, broadcast(-0.0f))); }

    static float reduce_max(Vector v) { return _mm512_reduce_max_ps(v); }

    // vscalefps rounds correctly to denormals and to 0, but a result that is too small costs it more than a hundred
    // cycles. Logits that mask a class with a large negative number must not pay that: they are masked out.
    static Vector clamp(Vector x, Vector) { return x; }
    static Vector power_of_two(Vector p, Vector k, Vector zero, Vector x, Vector lowest) {
        return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, lowest, _CMP_NLE_UQ), p, k - zero);
    }

    static Pair load(F32, const float *x) { return {_mm512_loadu_ps(x), _mm512_loadu_ps(x + width)}; }
    static void store(F32, float *x, Pair v) {
        _mm512_storeu_ps(x, v.a);
        _mm512_storeu_ps(x + width, v.b);
    }

    static Pair load(F16, const uint16_t *x) {
        return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x))),
                _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x + width)))};
    }
    static void store(F16, uint16_t *x, Pair v) {
        constexpr int nearest_even = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(x), _mm512_cvtps_ph(v.a, nearest_even));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(x + width), _mm512_cvtps_ph(v.b, nearest_even));
    }

    template <class T>
    static Pair load_floats(T, const float *x) {
        return load(F32{}, x);
    }

    // The pair holds the even and the odd elements.
    static Pair load(BF16, const uint16_t *x) {
        const __m512i bits = _mm512_loadu_si512(x);
        return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)),
                _mm512_castsi512_ps(_mm512_and_si512(bits, upper_half()))};
    }
    static void store(BF16, uint16_t *x, Pair v) {
        const __m512i even = _mm512_srli_epi32(round_to_bf16(v.a), 16);
        constexpr int even_or_masked_odd = 0xf8;  // a | (b & c)
        _mm512_storeu_si512(x, _mm512_ternarylogic_epi32(even, round_to_bf16(v.b), upper_half(), even_or_masked_odd));
    }
    static Pair load_floats(BF16, const float *x) {
        const Pair v = load(F32{}, x);
        const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        return {_mm512_permutex2var_ps(v.a, even, v.b), _mm512_permutex2var_ps(v.a, odd, v.b)};
    }

private:
    static __mmask16 less(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }

    static __m512i upper_half() { return _mm512_set1_epi32(static_cast<int>(0xffff0000)); }

    // Rounded to nearest even in the upper half of each word; the lower half is left dirty.
    static __m512i round_to_bf16(Vector v) {
        const __m512i bits = _mm512_castps_si512(v);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    }
};

}  // namespace

const Kernels &avx512_kernels(gh_dtype dtype) {
    return kernels_of<Avx512>(dtype);
}

}  // namespace gh::cpu
