// One call, cut into rows and segments: what has to be done for each, whoever does it. Calls the sweeps, and reads and
// writes the caller's memory but for the sums over rows.
#pragma once

#include "cpu/kernels.h"
#include "cpu/row.h"
#include "cpu/totals.h"
#include "cross_entropy.h"

namespace gh::cpu {

// A segment is the smallest part of a row that a thread takes: large enough to be worth handing out, and few enough to
// a row for their sums to be kept on the stack.
constexpr int64_t min_segment = 8192;
constexpr int64_t max_segments = 256;

// The sums over some of a row's segments, without the label's column.
struct RowSums {
    ExpSum others;
    WeightedDistance distances;  // from others.max; only for label smoothing
    int64_t max_segment;         // where others.max is found first
};

class Work {
public:
    Work(const CrossEntropy &call, Isa isa);

    int64_t segments() const { return segments_; }
    bool has_sums() const { return call_.pass != Pass::backward; }
    bool has_gradient() const { return call_.pass != Pass::forward; }
    bool is_ignored(int64_t row) const { return call_.label(row) == call_.ignore_index; }

    // What the sums of losses are divided by.
    double divisor() const { return divisor_; }

    RowSums sum_segment(int64_t row, int64_t segment) const;
    // `left` is over the segments before those of `right`.
    static RowSums merge(const RowSums &left, const RowSums &right);

    // Writes the outputs of a row, from the sums over all its segments, and adds to `totals`. Before any of the row's
    // gradient is written.
    RowGradient finish(int64_t row, const RowSums &sums, Totals &totals) const;
    void finish_ignored(int64_t row) const;

    // In a backward pass, instead: from what an earlier call saved.
    RowGradient saved(int64_t row) const;

    // The gradient of segments [first, last).
    void write_gradient(int64_t row, int64_t first, int64_t last, const RowGradient &gradient) const;
    void write_zeros(int64_t row, int64_t first, int64_t last) const;

    void whole_row(int64_t row, Totals &totals) const;

private:
    const char *logit(int64_t row, int64_t column) const {
        return static_cast<const char *>(call_.logits) + (row * call_.logits_row_stride + column) * element_;
    }
    char *dlogit(int64_t row, int64_t column) const {
        return static_cast<char *>(call_.dlogits) + (row * call_.dlogits_row_stride + column) * element_;
    }
    int64_t begin_of(int64_t segment) const { return segment * segment_; }
    int64_t end_of(int64_t segment) const;

    RowSums sum_row(int64_t row) const;
    // The label's logit; NaN for a label that is out of range.
    float target(int64_t row) const;
    double target_weight(int64_t row) const;
    int64_t argmax(int64_t row, const RowSums &sums, float target) const;
    RowGradient gradient(int64_t row, const Softmax &softmax, float target) const;
    void fill(int64_t row, int64_t begin, int64_t end, float value) const;

    const CrossEntropy &call_;
    const Kernels &kernels_;
    const int64_t element_;  // bytes
    const int64_t segment_;
    const int64_t segments_;
    const LogitMap map_;
    const bool maps_logits_;
    const bool plain_gradient_;
    const bool needs_distances_;
    Formula formula_;
    double divisor_;
    float dloss_;
};

}  // namespace gh::cpu
