// The sweeps over logits, compiled once for each instruction set and chosen at run time.
#pragma once

#include <cstdint>

#include "greyhound/greyhound.h"

namespace gh::cpu {

// In the order of preference.
enum class Isa { portable, avx2, avx512 };

// The structs below have no initialisers and no functions: those would be code that the linker may take from the file
// of any instruction set.

// From a logit to the x that the softmax is of: x = scale * logit, or with a softcap that is not 0,
// x = softcap * tanh(scale * logit / softcap). But -inf stays -inf, and +inf becomes NaN with a softcap.
struct LogitMap {
    float scale;
    float softcap;
};

// A sum of exponentials, kept as scale * exp(x) so that it cannot overflow, with x that of the largest logit, `max`.
// `scale` is NaN if a logit was NaN or +inf, and 0 if there was none or all were -inf; `max` is then the lowest finite
// float.
struct ExpSum {
    float max;
    double x;
    double scale;
    double distance;  // the sum of exp(x_j - x) * (x - x_j); NaN if it was not asked for
};

// A sum of weights, and of the weights times how far each x is below the x of a given logit.
struct WeightedDistance {
    double weight;
    double distance;
};

// dlogits_j = (exp(-d_j) * (factor + slope * d_j) - shift * w_j) * (1 - tanh^2), with d_j = x - x_j for the x of the
// anchor, and tanh that of the softcap.
struct GradientTerms {
    double factor;
    double slope;
    double shift;
};

// The kernels of one dtype. Elements are contiguous and aligned to themselves, no more. What becomes of an element does
// not depend on the address, so that a row gives the same bits wherever it lies in a batch. `y` may be `x`.
struct Kernels {
    // The sum of exp(x_j) over `count` elements but the one at `label`, which need not be among them. `map` is null if
    // x_j is the logit itself. The sum is the same with and without the distance.
    ExpSum (*exp_sum)(const void *x, int64_t count, int64_t label, const LogitMap *map, bool with_distance);

    // Over all of `count` elements, none of which is NaN or greater than `max`. Weights that are null are 1. A weight
    // of 0 makes even an infinite distance 0.
    WeightedDistance (*weighted_distance)(const void *x, int64_t count, float max, const LogitMap &map,
                                          const float *weights);

    // The first index of a value that is among the elements, none of which is NaN.
    int64_t (*find)(const void *x, int64_t count, float value);

    // y[i] = exp(x[i] - max) * factor, for finite `max` and no x[i] that is greater than `max` or NaN. A finite
    // `factor` beyond the range of float is taken for the nearest one in it.
    void (*exp_scale)(const void *x, void *y, int64_t count, float max, double factor);

    // The gradient of any call; no element is above the anchor by much. `anchor` is a logit, or with a softcap an x,
    // and no x is then taken for more.
    // Weights that are null are 1.
    void (*gradient)(const void *x, void *y, int64_t count, const LogitMap &map, float anchor,
                     const GradientTerms &terms, const float *weights);

    // x[i] *= factor, for a factor that is no NaN with a payload.
    void (*scale)(void *x, int64_t count, float factor);

    // The x of one logit, with the bits that the sweeps work with.
    double (*map)(const LogitMap &map, float logit);

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
