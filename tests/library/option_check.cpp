#include "option_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "option_call.h"
#include "oracle.h"

namespace test {
namespace {

// One fp32 output. An engine may flush what is below the smallest normal number to 0; what has no error is exact.
void check_number(const char *name, int64_t row, float got, const Bounded &expected) {
    if (std::isnan(expected.value)) {
        EXPECT_TRUE(std::isnan(got)) << name << "[" << row << "] = " << got << ", not NaN";
        return;
    }
    const double error = expected.error == 0 ? 0 : expected.error + 0x1p-126;
    const double lowest = decode(GH_DTYPE_F32, encode(GH_DTYPE_F32, expected.value - error));
    const double highest = decode(GH_DTYPE_F32, encode(GH_DTYPE_F32, expected.value + error));
    EXPECT_TRUE(got >= lowest && got <= highest)
        << name << "[" << row << "] = " << got << ", not in [" << lowest << ", " << highest << "]";
}

// A sum over rows, divided by D and added to what the output held. Adding n rows in fp32, in any order, rounds by at
// most u * magnitude each time.
class Total {
public:
    void add(const Bounded &row) {
        rows_++;
        sum_.value += row.value;
        sum_.error += row.error;
        magnitude_ += std::fabs(row.value);
    }

    Bounded reduced(const Bounded &denominator, double before) const {
        if (denominator.value == 0) return {before, 0};
        const double scale = std::fabs(1 / denominator.value), value = sum_.value / denominator.value;
        if (!std::isfinite(value)) return {value, 0};
        return {before + value, scale * sum_.error + denominator.error * scale * std::fabs(value) +
                                    u * (rows_ + 4) * (std::fabs(before) + scale * magnitude_)};
    }

private:
    double rows_ = 0, magnitude_ = 0;
    Bounded sum_;
};

}  // namespace

double gradient(const OptionProblem &problem, const OptionOutcome &outcome, int64_t row, int64_t column) {
    return decode(problem.dtype, load_bits(outcome.dlogits, problem.dtype, row * problem.vocab + column));
}

void check_gradient(const OptionProblem &problem, const OptionRow &expected, int64_t row,
                    const std::vector<unsigned char> &dlogits) {
    const gh_dtype dtype = problem.dtype;
    for (int64_t j = 0; j < problem.vocab; j++) {
        const uint32_t bits = load_bits(dlogits, dtype, row * problem.vocab + j);
        const double value = expected.gradient[static_cast<size_t>(j)];
        const double error = expected.gradient_error[static_cast<size_t>(j)];
        if (bits == encode(dtype, value)) continue;
        const double got = decode(dtype, bits);
        if (std::isnan(value) && std::isnan(got)) continue;
        const double lowest = decode(dtype, encode(dtype, value - error));
        const double highest = decode(dtype, encode(dtype, value + error));
        // An ignored row is +0, bit for bit.
        if (!expected.counted || !(got >= lowest && got <= highest)) {
            ADD_FAILURE() << "dlogits[" << row << "][" << j << "] = " << got << ", not in [" << lowest << ", "
                          << highest << "]; label " << problem.labels[static_cast<size_t>(row)] << ", logit "
                          << problem.logit(row, j);
            return;
        }
    }
}

void check(const OptionProblem &problem, const OptionOutcome &outcome, int partial_sums) {
    SCOPED_TRACE(problem.describe());
    const Bounded D = denominator(problem);
    const bool is_open = std::isnan(D.value);  // see option_oracle.h: what D is, and so what follows from it
    Total losses, z_losses;
    double valid = 0, correct = 0, out_of_range = 0;
    for (int64_t i = 0; i < problem.batch; i++) {
        if (::testing::Test::HasFailure()) return;  // one row's are enough
        const OptionRow row = reference_row(problem, i, D, partial_sums);
        if (!outcome.dlogits.empty() && !(is_open && row.counted && row.in_range))
            check_gradient(problem, row, i, outcome.dlogits);
        auto check_output = [&](Output output, const char *name, const Bounded &expected) {
            if (problem.outputs.has(output)) check_number(name, i, outcome.number(output, i), expected);
        };
        check_output(Output::row_loss, "row_loss", row.loss);
        check_output(Output::row_lse, "row_lse", row.lse);
        check_output(Output::row_target_log_prob, "row_target_log_prob", row.target_log_prob);
        check_output(Output::row_entropy, "row_entropy", row.entropy);
        if (problem.outputs.has(Output::row_argmax)) {
            EXPECT_EQ(outcome.argmax(i), row.argmax) << "row " << i;
        }
        if (!row.counted) continue;
        losses.add(row.loss);
        z_losses.add(row.z_loss);
        valid++;
        if (!row.in_range) out_of_range++;
        // A row that is NaN has -1 for its argmax, and may have -1 for its label too.
        if (row.argmax >= 0 && row.argmax == problem.labels[static_cast<size_t>(i)]) correct++;
    }
    const double before = problem.sums == GH_SUMS_ADD ? double{problem.before} : 0;
    auto check_sum = [&](Output output, const char *name, const Bounded &expected) {
        if (problem.outputs.has(output)) check_number(name, 0, outcome.number(output), expected);
    };
    auto check_count = [&](Output output, const char *name, double count) {
        if (problem.outputs.has(output)) {
            EXPECT_EQ(outcome.number(output), before + count) << name;
        }
    };
    if (!is_open) check_sum(Output::loss, "loss", losses.reduced(D, before));
    if (!is_open) check_sum(Output::z_loss, "z_loss", z_losses.reduced(D, before));
    check_count(Output::n_valid, "n_valid", valid);
    check_count(Output::n_correct, "n_correct", correct);
    check_count(Output::n_out_of_range, "n_out_of_range", out_of_range);
}

void expect_same_bits(const OptionOutcome &a, const OptionOutcome &b, const OptionProblem &problem) {
    EXPECT_TRUE(a.dlogits == b.dlogits) << problem.describe();
    for (size_t k = 0; k < output_count; k++)
        EXPECT_TRUE(a.outputs[k] == b.outputs[k]) << "output " << k << ", " << problem.describe();
}

OptionOutcome run_and_check(const OptionProblem &problem) {
    OptionOutcome outcome = run(problem);
    if (outcome.status == GH_SUCCESS) check(problem, outcome);
    return outcome;
}

}  // namespace test
