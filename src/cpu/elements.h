// Logits in memory, and as vectors of floats.
//
// The sweeps are written once, over a layer of SIMD operations; each instruction set's source file defines such a layer
// and includes sweeps.h.
//
// Everything here and in the sweeps has internal linkage, and nothing but C functions may be called that is not
// inlined: a function that the linker may merge with another file's copy could carry AVX-512 code into a program for a
// processor without it.
//
// A layer `S` has
//   Vector, width       `width` floats, with the operators + - * /
//   Pair                two Vectors a, b: what load() makes of 2 * width elements, in an order of its own, which
//                       store() undoes. (The halves of a 32-bit word are quicker to separate than to spread out.)
//   load, store         to and from F32, F16 and BF16; rounding to nearest even, also to denormals. The only NaNs that
//                       store() need cope with are quiet, with a payload that an element can hold.
//   load_floats         of 2 * width floats, in the order that load() has for elements of another type
//   broadcast, fma      fma(a, b, c) = a * b + c
//   max(a, b), min      b where a or b is NaN
//   abs(a)
//   select_less(a, b, x, y)  x where a < b, else y
//   all_less(a, b)      whether a < b everywhere
//   copy_sign(a, b)     a >= 0 with the sign of b
//   reduce_max          of one Vector's floats, none of them NaN
//   Sum                 as many doubles as a Vector has floats: add(Vector), total()
//   clamp(x, lowest)    x, or max(lowest, x) for the layers whose power_of_two() needs it
//   power_of_two(p, k, zero, x, lowest)  p * 2^(k - zero), for k and zero as Exponent makes them from x; exactly 0 for
//                       x <= lowest, where k - zero is -127
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/kernels.h"

namespace gh::cpu {
namespace {

// The dtypes, and whether a gradient needs exponentials that are good to the last bits of fp32.
struct F32 {
    using Element = float;
    static constexpr Element minus_infinity = -INFINITY;
    static constexpr bool precise = true;
};
struct F16 {
    using Element = uint16_t;
    static constexpr Element minus_infinity = 0xfc00;
    static constexpr bool precise = false;
};
struct BF16 {
    using Element = uint16_t;
    static constexpr Element minus_infinity = 0xff80;
    static constexpr bool precise = false;
};

template <class S>
inline constexpr int64_t pair_size = 2 * S::width;

// The last, incomplete pair of an array, completed with `filling`.
template <class S, class T>
struct Tail {
    alignas(64) typename T::Element elements[pair_size<S>];

    explicit Tail(float filling) {
        const auto v = S::broadcast(filling);
        S::store(T{}, elements, {v, v});
    }
    Tail(const void *x, int64_t count, float filling = -INFINITY) : Tail(filling) {
        memcpy(elements, x, static_cast<size_t>(count) * sizeof(elements[0]));
    }
};

template <class S, class T>
float load_one(const void *x) {
    const Tail<S, T> tail(x, 1);
    return S::load(T{}, tail.elements).a[0];
}

template <class S, class T>
void store_one(void *x, float value) {
    const Tail<S, T> tail(value);
    memcpy(x, tail.elements, sizeof(tail.elements[0]));
}

}  // namespace
}  // namespace gh::cpu
