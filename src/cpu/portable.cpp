// The sweeps for any processor, in the compiler's 16-byte vectors: SSE2 on x86-64, NEON on AArch64.
#include "cpu/sweeps.h"

namespace gh::cpu {
namespace {

struct Portable {
    static constexpr int width = 4;
    typedef float Vector __attribute__((vector_size(16)));
    typedef uint32_t Bits __attribute__((vector_size(16)));
    struct Pair {
        Vector a, b;
    };
    struct Sum {
        double lanes[width] = {};

        void add(Vector v) {
            for (int i = 0; i < width; i++) lanes[i] += static_cast<double>(v[i]);
        }
        double total() const { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }
    };

    static Vector broadcast(float x) { return Vector{x, x, x, x}; }
    static Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }
    static Vector max(Vector a, Vector b) { return a > b ? a : b; }
    static Vector min(Vector a, Vector b) { return a < b ? a : b; }

    static Vector abs(Vector a) { return float_of(bits_of(a) & 0x7fffffff); }
    static Vector select_less(Vector a, Vector b, Vector x, Vector y) { return a < b ? x : y; }
    static bool all_less(Vector a, Vector b) {
        const auto less = a < b;
        return less[0] & less[1] & less[2] & less[3];
    }
    static Vector copy_sign(Vector a, Vector b) { return float_of(bits_of(a) | (bits_of(b) & 0x80000000)); }

    static float reduce_max(Vector v) {
        const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
        return a > b ? a : b;
    }

    // The power is put together from its bits, which are 0 for 2^-127.
    static Vector clamp(Vector x, Vector lowest) { return max(lowest, x); }
    static Vector power_of_two(Vector p, Vector k, Vector zero, Vector, Vector) {
        return p * float_of((bits_of(k) + (127 - bits_of(zero))) << 23);
    }

    static Pair load(F32, const float *x) { return load_as<Pair>(x); }
    static void store(F32, float *x, Pair v) { memcpy(x, &v, sizeof(v)); }

    static Pair load(F16, const uint16_t *x) {
        return {float_from_f16(load_as<Halves>(x)), float_from_f16(load_as<Halves>(x + width))};
    }
    static void store(F16, uint16_t *x, Pair v) {
        const Halves a = __builtin_convertvector(f16_from_float(v.a), Halves);
        const Halves b = __builtin_convertvector(f16_from_float(v.b), Halves);
        memcpy(x, &a, sizeof(a));
        memcpy(x + width, &b, sizeof(b));
    }

    template <class T>
    static Pair load_floats(T, const float *x) {
        return load(F32{}, x);
    }

    // The pair holds the elements in the lower and in the upper halves of the words.
    static Pair load(BF16, const uint16_t *x) {
        const Bits bits = load_as<Bits>(x);
        return {float_of(bits << 16), float_of(bits & 0xffff0000)};
    }
    static void store(BF16, uint16_t *x, Pair v) {
        const Bits bits = round_to_bf16(v.a) >> 16 | (round_to_bf16(v.b) & 0xffff0000);
        memcpy(x, &bits, sizeof(bits));
    }
    static Pair load_floats(BF16, const float *x) {
        constexpr int lower = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 1, upper = 1 - lower;
        return {Vector{x[lower], x[2 + lower], x[4 + lower], x[6 + lower]},
                Vector{x[upper], x[2 + upper], x[4 + upper], x[6 + upper]}};
    }

private:
    typedef uint16_t Halves __attribute__((vector_size(8)));

    template <class V>
    static V load_as(const void *x) {
        V v;
        memcpy(&v, x, sizeof(v));
        return v;
    }
    template <class V>
    static Bits bits_of(V v) {
        return load_as<Bits>(&v);
    }
    static Vector float_of(Bits bits) { return load_as<Vector>(&bits); }
    static Bits select(Bits mask, Bits a, Bits b) { return (mask & a) | (~mask & b); }

    // Rounded to nearest even in the upper half of each word; the lower half is left dirty.
    static Bits round_to_bf16(Vector v) {
        const Bits bits = bits_of(v);
        return bits + (bits >> 16 & 1) + 0x7fff;
    }

    static Vector float_from_f16(Halves halves) {
        const Bits bits = __builtin_convertvector(halves, Bits);
        const Bits magnitude = (bits & 0x7fff) << 13;
        // The exponents' biases differ by 112. A multiplication sets that right for denormals too.
        const Bits finite = bits_of(float_of(magnitude) * broadcast(0x1p112f));
        const Bits is_finite = bits_of(magnitude < 0x7c00 << 13);
        return float_of(select(is_finite, finite, magnitude | 0x7f800000) | (bits & 0x8000) << 16);
    }

    static Bits f16_from_float(Vector v) {
        const Bits bits = bits_of(v), magnitude = bits & 0x7fffffff;
        const Bits normal = (magnitude - (112 << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
        // The unit in the last place of 0.5f is the smallest fp16 denormal, so that the addition rounds to it.
        const Bits denormal = bits_of(float_of(magnitude) + broadcast(0.5f)) - 0x3f000000;
        const Bits is_denormal = bits_of(float_of(magnitude) < broadcast(0x1p-14f));
        const Bits is_overflow = bits_of(float_of(magnitude) >= broadcast(65520));
        const Bits is_nan = bits_of(v != v);
        const Bits rounded = select(is_overflow, Bits{} + 0x7c00, select(is_denormal, denormal, normal));
        return rounded | (is_nan & 0x7e00) | (bits >> 16 & 0x8000);
    }
};

}  // namespace

const Kernels &portable_kernels(gh_dtype dtype) {
    return kernels_of<Portable>(dtype);
}

}  // namespace gh::cpu
