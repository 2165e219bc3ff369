// The contract of gh_cross_entropy and gh_cross_entropy_backward in double precision, with the error that fp32
// arithmetic is allowed. It follows the formulas of the header term by term and shares nothing with the engines.
//
// u, P, d_j, D, S and the errors of exponentials, of their sums and of the loss without options are those of oracle.h.
// T_j = exp(-d_j). What the options add:
//
//   x_j        E_j, absolute. 0 for plain logits. logit_scale rounds once, u |t_j|, unless it is a power of 2. With
//              softcap, c * tanh(t_j / c): the quotient is good to 2 u, and tanh to 8 u absolute (4 units in the last
//              place of 1: an exponential and a quotient give no more), so that with tau = tanh
//              E_j = (1 - tau^2) (E_t + 2 u |t_j|) + 8 u c + u |x_j|.
//   T_j        Its argument is m - x_j: E_j + E_m, relative, on top of 3 u d_j. M is the mean of all that, weighted
//              by p.
//   S          sigma = u (16 + V / P) + M, relative. lse adds u (2 log S + |m| + |lse|) to it.
//   p_j        sigma + 3 u d_j + E_j + E_m, relative.
//   smoothing  sum_j w_j (lse - x_j) = W log S + sum_j w_j d_j, where nothing cancels: both sums are good to
//              u (8 + 2 V / P) relative to their terms' absolute values, log S to sigma, d_j to E_j + E_m.
//   entropy    log S + D, where D = sum_j p_j d_j. Nothing cancels either: sigma + 2 u log S, and in every term of D
//              the relative errors of p_j and of d_j.
//   slope      L = dloss_i / dlse = (1 - e) w_y + e W / N + 2 z lse: 4 u of each term, the error of W, and that of lse.
//   dloss_i    p_j L - e / N w_j. At the label the two terms that nearly cancel are taken together,
//              (K T_y - (1 - e) w_y O) / S with K = L - (1 - e) w_y, and so have the errors of p_y and of O / S.
//   dentropy   -p_j (log p_j + entropy) = p_j (d_j - D): the factor has the absolute errors of d_j, log S and entropy.
//   chain      s (1 - tau^2): 20 u absolute from the error of tau.
//   upstream   dloss * *dloss_ptr * row_dloss / D: 4 u, and the error of D, which is a sum of fp32 numbers.
//
// An lse from elsewhere is rounded to fp32: u |lse| more in every p_j, as the header says, and 4 u of the terms that
// then cancel at the label.
//
// What the header leaves open is not asked for here: what a label out of range, which has no weight, adds to the D of a
// weighted mean. D is NaN then.
#pragma once

#include <cstdint>
#include <vector>

#include "option_problem.h"

namespace test {

struct Bounded {
    double value = 0, error = 0;
};

struct OptionRow {
    bool counted = false;  // false for an ignored row
    bool in_range = false;
    int64_t argmax = -1;
    Bounded loss, z_loss, lse, target_log_prob, entropy;
    std::vector<double> gradient, gradient_error;  // errors before the rounding to dtype
};

// What the reduction divides by.
Bounded denominator(const OptionProblem &problem);

OptionRow reference_row(const OptionProblem &problem, int64_t row, const Bounded &denominator, int partial_sums = 256);

// The same for a row of logits that need not be values of any dtype.
OptionRow reference_row(const OptionProblem &problem, int64_t row, const std::vector<double> &logits,
                        const Bounded &denominator, int partial_sums = 256);

}  // namespace test
