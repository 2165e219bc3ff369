// From a row's sums to its loss and to the two numbers that its gradient is made with.
#pragma once

#include "cpu/kernels.h"

namespace gh::cpu {

// The sum over both, in an order that the caller fixes.
ExpSum merge(const ExpSum &a, const ExpSum &b);

struct RowResult {
    double loss;
    double lse;
    // Of every column but the label's, dlogits = exp(x - max) * factor.
    float max;
    double factor;
    float target_gradient;

    bool is_nan() const { return loss != loss; }
};

// `others` is the sum over every class but the label's, whose logit is `target`.
RowResult finish_row(const ExpSum &others, float target, float z_loss_multiplier);

}  // namespace gh::cpu
