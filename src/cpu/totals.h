// What is summed over a call's rows.
#pragma once

#include <cstdint>

#include "cross_entropy.h"

namespace gh::cpu {

struct Totals {
    double loss;         // without the z-loss
    double lse_squared;  // of which the z-loss is made
    int64_t n_valid;
    int64_t n_correct;
    int64_t n_out_of_range;

    void add(const Totals &other) {
        loss += other.loss;
        lse_squared += other.lse_squared;
        n_valid += other.n_valid;
        n_correct += other.n_correct;
        n_out_of_range += other.n_out_of_range;
    }
};

// Hands them to the caller; the two losses are divided by `divisor`.
void write_sums(const CrossEntropy &call, const Totals &totals, double divisor);

}  // namespace gh::cpu
