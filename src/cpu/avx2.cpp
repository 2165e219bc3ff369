// The sweeps for AVX2 with FMA and F16C.
#include <immintrin.h>

#include "cpu/sweeps.h"

namespace gh::cpu {
namespace {

struct Avx2 {
    using Vector = __m256;
    static constexpr int width = 8;
    struct Pair {
        Vector a, b;
    };
    struct Sum {
        __m256d low = _mm256_setzero_pd(), high = low;

        void add(Vector v) {
            low = low + _mm256_cvtps_pd(_mm256_castps256_ps128(v));
            high = high + _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        }
        double total() const {
            const __m256d sums = low + high;
            const __m128d sum = _mm256_castpd256_pd128(sums) + _mm256_extractf128_pd(sums, 1);
            return _mm_cvtsd_f64(sum + _mm_unpackhi_pd(sum, sum));
        }
    };

    static Vector broadcast(float x) { return _mm256_set1_ps(x); }
    static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
    static Vector max(Vector a, Vector b) { return _mm256_max_ps(a, b); }
    static Vector min(Vector a, Vector b) { return _mm256_min_ps(a, b); }

    static Vector abs(Vector a) { return _mm256_andnot_ps(broadcast(-0.0f), a); }
    static Vector select_less(Vector a, Vector b, Vector x, Vector y) { return _mm256_blendv_ps(y, x, less(a, b)); }
    static bool all_less(Vector a, Vector b) { return _mm256_movemask_ps(less(a, b)) == 0xff; }
    static Vector copy_sign(Vector a, Vector b) { return _mm256_or_ps(a, _mm256_and_ps(b, broadcast(-0.0f))); }

    static float reduce_max(Vector v) {
        __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        m = _mm_max_ps(m, _mm_movehl_ps(m, m));
        return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
    }

    // The power is put together from its bits, which are 0 for 2^-127.
    static Vector clamp(Vector x, Vector lowest) { return max(lowest, x); }
    static Vector power_of_two(Vector p, Vector k, Vector zero, Vector, Vector) {
        const __m256i to_exponent = _mm256_sub_epi32(_mm256_set1_epi32(127), _mm256_castps_si256(zero));
        const __m256i exponent = _mm256_add_epi32(_mm256_castps_si256(k), to_exponent);
        return p * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    }

    static Pair load(F32, const float *x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + width)}; }
    static void store(F32, float *x, Pair v) {
        _mm256_storeu_ps(x, v.a);
        _mm256_storeu_ps(x + width, v.b);
    }

    static Pair load(F16, const uint16_t *x) {
        return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x))),
                _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x + width)))};
    }
    static void store(F16, uint16_t *x, Pair v) {
        constexpr int nearest_even = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        _mm_storeu_si128(reinterpret_cast<__m128i *>(x), _mm256_cvtps_ph(v.a, nearest_even));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(x + width), _mm256_cvtps_ph(v.b, nearest_even));
    }

    template <class T>
    static Pair load_floats(T, const float *x) {
        return load(F32{}, x);
    }

    // The pair holds the even and the odd elements.
    static Pair load(BF16, const uint16_t *x) {
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)),
                _mm256_castsi256_ps(_mm256_and_si256(bits, upper_half()))};
    }
    static void store(BF16, uint16_t *x, Pair v) {
        const __m256i even = _mm256_srli_epi32(round_to_bf16(v.a), 16);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(x), _mm256_blend_epi16(even, round_to_bf16(v.b), 0xaa));
    }
    static Pair load_floats(BF16, const float *x) {
        const Pair v = load(F32{}, x);
        return {in_order(_mm256_shuffle_ps(v.a, v.b, _MM_SHUFFLE(2, 0, 2, 0))),
                in_order(_mm256_shuffle_ps(v.a, v.b, _MM_SHUFFLE(3, 1, 3, 1)))};
    }

private:
    static Vector less(Vector a, Vector b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }

    // From quarters of 64 bits that a shuffle within 128 bits has left as 0, 2, 1, 3.
    static Vector in_order(Vector v) {
        return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), _MM_SHUFFLE(3, 1, 2, 0)));
    }

    static __m256i upper_half() { return _mm256_set1_epi32(static_cast<int>(0xffff0000)); }

    // Rounded to nearest even in the upper half of each word; the lower half is left dirty.
    static __m256i round_to_bf16(Vector v) {
        const __m256i bits = _mm256_castps_si256(v);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    }
};

}  // namespace

const Kernels &avx2_kernels(gh_dtype dtype) {
    return kernels_of<Avx2>(dtype);
}

}  // namespace gh::cpu
