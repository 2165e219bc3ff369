#include "check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine.h"

namespace test {
namespace {

// An accumulator that held `before` and received the rows' values, whose total is `total` with an
// error of `error`. Adding n rows in fp32, in any order, rounds by at most u * magnitude each time.
void check_sum(const char *name, double got, double before, double total, double magnitude, double error, double rows) {
    const double expected = before + total;
    if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got)) << name << " = " << got << ", not NaN";
    } else if (std::fabs(expected) > std::numeric_limits<float>::max()) {
        EXPECT_EQ(got, std::copysign(INFINITY, expected)) << name;
    } else {
        EXPECT_NEAR(got, expected, error + u * (rows + 2) * (std::fabs(before) + magnitude)) << name;
    }
}

}  // namespace

bool check_gradient(const Problem &problem, const Row &expected, int64_t row, const std::vector<unsigned char> &dlogits,
                    int64_t first_element, Rounding *rounding) {
    const gh_dtype dtype = problem.dtype;
    int64_t correct = 0;
    for (int64_t j = 0; j < problem.vocab; j++) {
        const uint32_t bits = load_bits(dlogits, dtype, first_element + j);
        const double value = expected.gradient[static_cast<size_t>(j)];
        const double error = expected.gradient_error[static_cast<size_t>(j)];
        if (bits == encode(dtype, value)) {
            correct++;
            continue;
        }
        const double got = decode(dtype, bits);
        if (std::isnan(value) && std::isnan(got)) continue;
        const double lowest = decode(dtype, encode(dtype, value - error));
        const double highest = decode(dtype, encode(dtype, value + error));
        // An ignored row is +0, bit for bit.
        if (!expected.counted || !(got >= lowest && got <= highest)) {
            ADD_FAILURE() << "dlogits[" << row << "][" << j << "] = " << got << ", not in [" << lowest << ", "
                          << highest << "]; label " << problem.labels[static_cast<size_t>(row)] << "; "
                          << problem.describe();
            return false;
        }
    }
    if (rounding != nullptr && expected.counted) {
        rounding->elements += problem.vocab;
        rounding->correctly_rounded += correct;
    }
    return true;
}

Rounding check(const Problem &problem, const Outcome &outcome, int partial_sums) {
    SCOPED_TRACE(problem.describe());
    Rounding rounding;
    double ce = 0, ce_error = 0, z = 0, z_error = 0;
    int64_t counted = 0;
    bool gradients_right = true;
    for (int64_t i = 0; i < problem.batch; i++) {
        const Row row = reference_row(problem, i, partial_sums);
        if (gradients_right)
            gradients_right = check_gradient(problem, row, i, outcome.dlogits, i * problem.vocab, &rounding);
        if (!row.counted) continue;
        counted++;
        ce += row.loss;
        ce_error += row.loss_error;
        z += row.lse * row.lse;
        z_error += (2 * std::fabs(row.lse) + row.lse_error) * row.lse_error + u * row.lse * row.lse;
    }
    const auto rows = static_cast<double>(counted);
    check_sum("ce_sum", outcome.ce_sum, problem.ce_sum, ce, ce, ce_error, rows);
    if (problem.with_z_sum)
        check_sum("z_sum", outcome.z_sum, problem.z_sum, z, z, z_error, rows);
    else
        EXPECT_EQ(outcome.z_sum, problem.z_sum) << "written although NULL was passed";
    if (problem.with_n_valid)
        EXPECT_EQ(outcome.n_valid, problem.n_valid + static_cast<float>(counted));
    else
        EXPECT_EQ(outcome.n_valid, problem.n_valid) << "written although NULL was passed";
    return rounding;
}

Rounding run_and_check(const Problem &problem) {
    return check(problem, run(problem));
}

}  // namespace test
