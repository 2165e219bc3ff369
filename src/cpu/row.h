// The arithmetic of one row: from the sums over its logits to its loss, and to the numbers that its gradient is made
// with. Everything is in double precision.
#pragma once

#include "cpu/kernels.h"
#include "cross_entropy.h"

namespace gh::cpu {

// The sum over both, in an order that the caller fixes.
ExpSum merge(const ExpSum &a, const ExpSum &b);
// `max_x` and `a_x`, `b_x` are the x that the distances are measured from.
WeightedDistance merge(const WeightedDistance &a, double a_x, const WeightedDistance &b, double b_x, double max_x);

// What the gradient needs of a row's logits: greyhound.h's row_statistics.
struct RowStatistics {
    // Over every class but the label's, as in ExpSum.
    float max;
    // The label's logit; NaN if there is no such class.
    float target;
    double scale;
    double distance;
    double reserved;
};
static_assert(sizeof(RowStatistics) == GH_ROW_STATISTICS_BYTES && alignof(RowStatistics) == 8);

// The softmax of a row. What is "relative" is relative to exp(x) of the row's largest x, or to the exp(lse) that the
// caller gave.
struct Softmax {
    float anchor;            // of that x, as the gradient's sweep takes it
    double sum;              // of all exponentials, relative
    double log_sum;          // lse - x
    double lse;              // log(sum of exp(x_j))
    double target_share;     // p of the label
    double others_share;     // 1 - p of the label, without cancellation
    double target_loss;      // -log p of the label
    double target_distance;  // x - x_y
    double others_distance;  // how much further x is than the largest of the others
    double mean_distance;    // sum of p_j * (x - x_j); NaN if the statistics are without it

    bool is_nan() const { return target_loss != target_loss; }
    double entropy() const { return log_sum + mean_distance; }
};

// `max_x` and `target_x` are the x of the two logits.
Softmax softmax_of(const RowStatistics &row, const LogitMap &map, double max_x, double target_x);

// From an lse alone, with the accuracy that it has. Only the shares, the sum and the lse are known then.
Softmax softmax_of(float lse, const LogitMap &map, double target_x);

// What is the same for all rows of a call.
struct Formula {
    double label_smoothing;
    double smoothing_share;  // label_smoothing / vocab
    double total_weight;     // of all classes
    double z_loss_multiplier;
    double logit_scale;
};

// The row's loss without the z-loss. `others` is over every class but the label's, and from the largest x of them.
double row_loss(const Formula &formula, const Softmax &softmax, double target_weight, const WeightedDistance &others);

// A row's upstream gradients.
struct Upstream {
    double loss;
    double entropy;
};

struct RowGradient {
    GradientTerms terms;
    float anchor;
    float target;  // the gradient at the label
    bool is_nan;
};

// `target_slope` is the softcap's derivative at the label.
RowGradient row_gradient(const Formula &formula, const Softmax &softmax, double target_weight, double target_slope,
                         const Upstream &upstream);

}  // namespace gh::cpu
