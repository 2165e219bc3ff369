// The contract of gh_cross_entropy_fwd_bwd in double precision, with the error that fp32 arithmetic is allowed.
//
// u = 2^-24 is the rounding error of one fp32 operation. With m = max x, d_j = m - x_j, S = sum_j exp(-d_j):
//
//   exp(-d_j)  The argument d_j * log2(e) is rounded in the difference, the constant and the product:
//              3 u d_j relative to the result, and 4 u from an exponential good to 2 ulp.
//   S          Each addition rounds by u. Rows are summed in at least P independent partial sums, 256
//              unless a test knows of fewer, so that one meets at most V / P terms (a rescaling by an
//              online maximum is part of its term): u (4 + V / P + 3 D), where D is the mean of d_j
//              weighted by exp(-d_j).
//   p_j        The two above, the quotient (3 u with a reciprocal), the scale and the reductions
//              between lanes: u (16 + V / P + 3 (d_j + D)).
//   loss       log1p(O / T), with O the sum of the other classes and T the target's term. The
//              logarithm's derivative turns the relative error of O / T into the same times O / S;
//              4 u relative come on top for the logarithm itself.
//   lse        m + log S: the relative error of S, 2 u log S, and the rounding of m and of the sum.
//
// An engine may flush what is below the smallest normal fp32, 2^-126, to zero. Last, the result is
// rounded to the dtype once, and rounding is monotonic: an engine is right exactly if its result
// lies between the roundings of (value - error) and (value + error).
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace test {

constexpr double u = 0x1p-24;

struct Row {
    bool counted = false;  // false for an ignored row
    double loss = 0, loss_error = 0;
    double lse = 0, lse_error = 0;
    std::vector<double> gradient, gradient_error;  // errors before the rounding to dtype
};

// A label out of range gives NaN, as on a CUDA stream.
Row reference_row(const Problem &problem, int64_t row, int partial_sums = 256);

}  // namespace test
