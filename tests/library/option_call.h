// Calls with options in an engine's memory.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine.h"
#include "option_problem.h"

namespace test {

// A tensor of rows in engine memory. What lies between the rows may be neither read nor written: it is NaN, forbidden
// where a sanitizer can see it, and compared by fetch().
class StridedRows {
public:
    StridedRows(Engine &engine, const Rows &rows, int64_t padding, int64_t offset);
    ~StridedRows();
    StridedRows(const StridedRows &) = delete;
    StridedRows &operator=(const StridedRows &) = delete;

    void *data() const { return memory_.data(); }
    int64_t stride() const { return vocab_ + padding_; }
    void upload(const std::vector<unsigned char> &elements);
    void upload_nan();
    std::vector<unsigned char> fetch(const char *name) const;  // fails the test if anything around the rows changed

private:
    size_t row_bytes() const { return static_cast<size_t>(vocab_) * element_bytes_; }
    size_t stride_bytes() const { return static_cast<size_t>(stride()) * element_bytes_; }
    void forbid_padding() const;
    void permit_padding() const;

    Engine &engine_;
    int64_t batch_, vocab_, padding_;
    size_t element_bytes_;
    Guarded memory_;
};

// A problem in an engine's memory, and the call that solves it.
class PlacedOptions {
public:
    explicit PlacedOptions(const OptionProblem &problem, Engine &where = engine());

    gh_cross_entropy_options options;  // as they will be passed

    const void *logits() const { return logits_.data(); }
    void *dlogits() const;  // null without a gradient
    const void *labels() const { return labels_.memory->data(); }
    const void *saved_statistics() const { return saved_statistics_; }

    gh_status call() const;
    void fill(const OptionProblem &problem);  // which differs in logits, labels and `before` at most
    OptionOutcome fetch() const;              // also fails the test if an input or memory around an argument changed

private:
    struct Input {
        std::unique_ptr<Guarded> memory;
        std::vector<unsigned char> bytes;
    };
    template <typename T>
    const T *place(const std::vector<T> &values);
    template <typename T>
    T *output(Output which) const {
        const auto &memory = outputs_[static_cast<size_t>(which)];
        return memory ? static_cast<T *>(memory->data()) : nullptr;
    }
    static void expect_unchanged(const Input &input, const char *name);
    void place_outputs();
    void place_workspace();

    Engine &engine_;
    OptionProblem problem_;
    StridedRows logits_;
    std::unique_ptr<StridedRows> dlogits_;  // out of place
    Input labels_;
    std::vector<Input> inputs_;  // the others that the problem has
    const void *saved_statistics_;
    const float *saved_lse_;
    std::array<std::unique_ptr<Guarded>, output_count> outputs_;
    std::unique_ptr<Guarded> workspace_;
};

// Places the problem, calls, waits, fetches.
OptionOutcome run(const OptionProblem &problem, Engine &where = engine());

}  // namespace test
