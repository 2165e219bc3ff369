// The two sweeps over logits, compiled once for each instruction set and chosen at run time.
#pragma once

#include <cstdint>

#include "greyhound/greyhound.h"

namespace gh::cpu {

// In the order of preference.
enum class Isa { portable, avx2, avx512 };

// A sum of exponentials, kept as scale * exp(max) so that it cannot overflow. `scale` is NaN if a logit was NaN or
// +inf, and 0 if there was none or all were -inf; `max` is then the lowest finite float.
struct ExpSum {
    float max;
    double scale;
};

// The kernels of one dtype. Elements are contiguous and aligned to themselves, no more. What becomes of an element does
// not depend on the address, so that a row gives the same bits wherever it lies in a batch.
struct Kernels {
    // The sum of exp(x[i]) over `count` elements.
    ExpSum (*exp_sum)(const void *x, int64_t count);

    // x[i] = exp(x[i] - max) * factor, for finite `max` and no x[i] that is greater than `max` or NaN. A `factor`
    // beyond the range of float is taken for the nearest one in it.
    void (*exp_scale)(void *x, int64_t count, float max, double factor);

    float (*load)(const void *x);
    void (*store)(void *x, float value);
};

// Whether this build has kernels for `isa` and this processor can run them.
bool available(Isa isa);

// The last of the available ones.
Isa best_isa();

// The kernels of an available instruction set. The instruction sets differ in the order of summation, and so in the
// last bits of their results.
const Kernels &kernels(Isa isa, gh_dtype dtype);

// Defined by one source file for each instruction set; avx2 and avx512 on x86-64 only.
const Kernels &portable_kernels(gh_dtype dtype);
const Kernels &avx2_kernels(gh_dtype dtype);
const Kernels &avx512_kernels(gh_dtype dtype);

}  // namespace gh::cpu
