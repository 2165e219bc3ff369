// One call of gh_cross_entropy or gh_cross_entropy_backward: its input, held in ordinary host memory whatever engine
// will run it, and its outcome.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "problem.h"

namespace test {

// What a call may be asked for, apart from the gradient.
enum class Output {
    row_loss,
    row_lse,
    row_target_log_prob,
    row_entropy,
    row_argmax,
    row_statistics,
    loss,
    z_loss,
    n_valid,
    n_correct,
    n_out_of_range
};

constexpr size_t output_count = 11;

class Outputs {
public:
    Outputs() = default;
    Outputs(std::initializer_list<Output> outputs) {
        for (Output output : outputs) add(output);
    }
    // Everything that a call with this reduction may be asked for.
    static Outputs all(gh_reduction reduction);

    bool has(Output output) const { return bits_[static_cast<size_t>(output)]; }
    bool empty() const { return bits_.none(); }
    void add(Output output) { bits_.set(static_cast<size_t>(output)); }
    void remove(Output output) { bits_.reset(static_cast<size_t>(output)); }
    std::string describe() const { return bits_.to_string(); }

private:
    std::bitset<output_count> bits_;
};

enum class Gradient { none, in_place, out_of_place };

struct OptionProblem : Rows {
    using Rows::Rows;

    Gradient gradient = Gradient::in_place;
    int64_t padding = 0;          // elements between two rows of logits, and of dlogits in place
    int64_t dlogits_padding = 0;  // out of place
    int64_t dlogits_offset = 0;   // likewise, as Rows::offset
    gh_label_dtype label_dtype = GH_LABEL_I64;

    gh_reduction reduction = GH_REDUCTION_SUM;
    float label_smoothing = 0, logit_scale = 1, softcap = 0, dloss = 1;
    std::optional<float> dloss_ptr;
    std::vector<float> class_weights, row_dloss, row_dentropy;  // empty: NULL

    Outputs outputs;
    gh_sums sums = GH_SUMS_ADD;
    float before = 0;             // what each summed output holds before the call
    bool with_workspace = false;  // a call that cannot do without gets one anyway

    // What an earlier call saved. If either is there, the call is one of gh_cross_entropy_backward.
    std::vector<unsigned char> saved_statistics;
    std::vector<float> saved_lse;

    bool is_backward() const { return !saved_statistics.empty() || !saved_lse.empty(); }
    double weight(int64_t column) const;  // 1 without class weights
    bool in_range(int64_t label) const { return label >= 0 && label < vocab; }
    // Within lines of 128 bytes, those of logits and those of dlogits: else a backward call may give other bits.
    bool rows_start_alike() const;

    std::string describe() const;
};

struct OptionOutcome {
    gh_status status = GH_SUCCESS;
    std::vector<unsigned char> dlogits;                            // bits of [batch, vocab]; empty without a gradient
    std::array<std::vector<unsigned char>, output_count> outputs;  // bytes; empty if not asked for

    const std::vector<unsigned char> &bytes(Output output) const { return outputs[static_cast<size_t>(output)]; }
    float number(Output output, int64_t row = 0) const;  // of an output that is made of floats
    std::vector<float> numbers(Output output) const;
    int64_t argmax(int64_t row) const;
};

// The backward call with the same options, from what the outcome has in row_statistics.
OptionProblem backward_from(const OptionProblem &problem, const OptionOutcome &outcome);

// Normal logits with the given deviation and uniform labels.
OptionProblem random_option_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, double deviation = 1);

// Every option, the reduction too, drawn at random, and every output asked for.
OptionProblem random_full_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, double deviation = 1);

// Turns every option on or off, at random; not memory, reduction or outputs.
void randomize_options(Random &random, OptionProblem &problem);

// Valid, but far from usual.
struct Extreme {
    float logit_scale, softcap;
};
constexpr Extreme extremes[] = {{3e38f, 0},     {1e-38f, 0},     {1, 1e-38f},      {1, 1e38f},
                                {1e38f, 1e38f}, {3e38f, 1e-38f}, {1e-38f, 1e-38f}, {1e-38f, 1e38f}};

// Rows of ordinary logits, of zeros, and of both, with every output.
OptionProblem random_extreme_problem(Random &random, gh_dtype dtype, int64_t vocab, const Extreme &extreme);

std::vector<float> random_floats(Random &random, int64_t count, double lowest, double highest);

}  // namespace test
