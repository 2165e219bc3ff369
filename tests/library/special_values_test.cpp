// NaN and infinities do exactly what the header says, wherever in a row they stand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "check.h"
#include "engine.h"
#include "of_every_dtype.h"

namespace test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

class SpecialValues : public OfEveryDtype {
protected:
    double gradient(const Problem &problem, const Outcome &outcome, int64_t row, int64_t column) {
        return decode(dtype, load_bits(outcome.dlogits, dtype, row * problem.vocab + column));
    }

    void expect_nan_row(const Problem &problem, const Outcome &outcome, int64_t row) {
        for (int64_t j = 0; j < problem.vocab; j++)
            ASSERT_TRUE(std::isnan(gradient(problem, outcome, row, j))) << "column " << j << ", " << problem.describe();
    }
};

INSTANTIATE_OF_EVERY_DTYPE(SpecialValues);

// First, last, middle, and both sides of the boundaries at which vectors, warps, blocks and tiles end.
std::vector<int64_t> positions(int64_t vocab) {
    std::vector<int64_t> result = {0, vocab / 2, vocab - 1};
    for (int64_t boundary : {4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192})
        for (int64_t position : {boundary - 1, boundary})
            if (position < vocab - 1) result.push_back(position);
    return result;
}

// One row per position, with an ordinary row between any two: those stay right.
TEST_P(SpecialValues, AnyNanOrPlusInfinityMakesItsRowNan) {
    for (double special : {nan, -nan, inf})
        for (int64_t vocab : {9, 1000, 8203})
            for (bool at_target : {false, true}) {
                const std::vector<int64_t> places = positions(vocab);
                Problem problem = random_problem(random, dtype, 2 * static_cast<int64_t>(places.size()) + 1, vocab);
                problem.offset = vocab % 5;
                for (size_t k = 0; k < places.size(); k++) {
                    const size_t row = 2 * k + 1;
                    problem.set(static_cast<int64_t>(row), places[k], special);
                    problem.labels[row] = at_target ? places[k] : (places[k] + 1) % vocab;
                }
                const Outcome outcome = run(problem);
                check(problem, outcome);
                for (int64_t row = 1; row < problem.batch; row += 2) expect_nan_row(problem, outcome, row);
                EXPECT_TRUE(std::isnan(outcome.ce_sum) && std::isnan(outcome.z_sum));
            }
}

// Every kind of bad row alone: the sums must show it without help from another row.
TEST_P(SpecialValues, EachBadRowAloneMakesTheSumsNan) {
    for (int64_t vocab : {1, 2, 9, 1000, 8203})
        for (double special : {nan, inf, -inf})
            for (int64_t place : {int64_t{0}, vocab / 2, vocab - 1}) {
                Problem problem = random_problem(random, dtype, 1, vocab);
                if (special == -inf)
                    problem.fill(0, special);
                else
                    problem.set(0, place, special);
                const Outcome outcome = run(problem);
                check(problem, outcome);
                expect_nan_row(problem, outcome, 0);
                EXPECT_TRUE(std::isnan(outcome.ce_sum) && std::isnan(outcome.z_sum)) << problem.describe();
                EXPECT_EQ(outcome.n_valid, 1.0f);
            }
}

TEST_P(SpecialValues, PlusAndMinusInfinityTogetherMakeTheRowNan) {
    for (int64_t vocab : {2, 1000, 8203}) {
        Problem problem = random_problem(random, dtype, 2, vocab);
        problem.set(0, 0, -inf);
        problem.set(0, vocab - 1, inf);
        problem.labels = {0, vocab - 1};  // the label on -inf, and on a row that is all -inf but for +inf
        problem.fill(1, -inf);
        problem.set(1, vocab - 1, inf);
        const Outcome outcome = run(problem);
        check(problem, outcome);
        expect_nan_row(problem, outcome, 0);
        expect_nan_row(problem, outcome, 1);
    }
}

TEST_P(SpecialValues, AColumnOfMinusInfinityHasGradientZero) {
    for (int64_t vocab : {9, 1000, 8203})
        for (float multiplier : {0.0f, 1e-2f}) {
            const std::vector<int64_t> places = positions(vocab);
            Problem problem = random_problem(random, dtype, static_cast<int64_t>(places.size()), vocab);
            problem.z_loss_multiplier = multiplier;
            for (size_t k = 0; k < places.size(); k++) {
                problem.set(static_cast<int64_t>(k), places[k], -inf);
                problem.labels[k] = (places[k] + 1) % vocab;
            }
            const Outcome outcome = run(problem);
            check(problem, outcome);
            EXPECT_TRUE(std::isfinite(outcome.ce_sum) && std::isfinite(outcome.z_sum));
            for (size_t k = 0; k < places.size(); k++)
                EXPECT_EQ(gradient(problem, outcome, static_cast<int64_t>(k), places[k]), 0.0) << places[k];
        }
}

// As with a vocabulary padded to a round size, or a mask: whole vectors and tiles of -inf, first or last.
TEST_P(SpecialValues, RunsOfMinusInfinityAreSkipped) {
    for (int64_t vocab : {64, 1000, 8203, 33000})
        for (int64_t finite : {int64_t{1}, vocab / 3}) {
            Problem problem = random_problem(random, dtype, 3, vocab);
            for (int64_t j = 0; j < vocab; j++) {
                if (j >= finite) problem.set(0, j, -inf);
                if (j < vocab - finite) problem.set(1, j, -inf);
                if (j % 2 == 0) problem.set(2, j, -inf);
            }
            problem.labels = {finite - 1, vocab - finite, 1};
            const Outcome outcome = run(problem);
            check(problem, outcome);
            if (finite == 1) {  // certain: exactly no loss, and a gradient of exactly 0
                EXPECT_EQ(gradient(problem, outcome, 0, 0), 0.0);
                EXPECT_EQ(gradient(problem, outcome, 1, vocab - 1), 0.0);
            }
        }
}

TEST_P(SpecialValues, ACertainTargetHasExactlyNoLoss) {
    Problem problem(dtype, 1, 1000);
    problem.fill(0, -inf);
    problem.set(0, 400, -3.5);
    problem.labels = {400};
    const Outcome outcome = run(problem);
    check(problem, outcome);
    EXPECT_EQ(outcome.ce_sum, 0.0f);
    EXPECT_EQ(outcome.z_sum, 12.25f);
}

TEST_P(SpecialValues, ATargetOfMinusInfinityHasInfiniteLoss) {
    for (int64_t vocab : {2, 9, 1000, 8203})
        for (int64_t label : positions(vocab)) {
            Problem problem = random_problem(random, dtype, 1, vocab);
            problem.set(0, label, -inf);
            problem.labels[0] = label;
            const Outcome outcome = run(problem);
            check(problem, outcome);
            EXPECT_EQ(outcome.ce_sum, static_cast<float>(inf)) << problem.describe();
            EXPECT_TRUE(std::isfinite(outcome.z_sum)) << problem.describe();
        }
}

// 2 * z_loss_multiplier * lse may overflow; what has probability 0 keeps its gradient of 0, and the label's its -1.
TEST_P(SpecialValues, ProbabilityZeroStaysZeroUnderAnyZLoss) {
    for (int64_t vocab : {2, 9, 1000, 8203})
        for (float multiplier : {1e38f, 2e38f, -2e38f}) {
            Problem problem(dtype, 2, vocab);
            problem.z_loss_multiplier = multiplier;
            for (int64_t row : {0, 1}) {
                problem.fill(row, -inf);
                problem.set(row, vocab - 1, 10);
            }
            problem.labels = {vocab - 1, 0};
            const Outcome outcome = run(problem);
            for (int64_t j = 0; j + 1 < vocab; j++) {
                EXPECT_EQ(gradient(problem, outcome, 0, j), 0.0) << problem.describe();
                EXPECT_EQ(gradient(problem, outcome, 1, j), j == 0 ? -1.0 : 0.0) << problem.describe();
            }
            // The only finite logit has probability 1, so its gradient is the z-loss's, far beyond any dtype.
            EXPECT_FALSE(std::isnan(gradient(problem, outcome, 0, vocab - 1))) << problem.describe();
        }
}

TEST_P(SpecialValues, AZLossOfZeroSlopeChangesNothing) {
    Problem problem(dtype, 1, 1);  // lse is 0
    problem.set(0, 0, 0);
    problem.z_loss_multiplier = 2e38f;
    EXPECT_EQ(gradient(problem, run(problem), 0, 0), 0.0);
}

// The difference of the two extremes overflows fp32: probabilities are exactly 1 and 0.
TEST_P(SpecialValues, BothFiniteExtremesInOneRow) {
    const double most = largest(dtype);
    Problem problem(dtype, 2, 515);
    for (int64_t i = 0; i < problem.batch; i++) {
        problem.fill(i, -most);
        problem.set(i, 300, most);
    }
    problem.labels = {300, 2};
    const Outcome outcome = run(problem);
    check(problem, outcome);
    EXPECT_EQ(gradient(problem, outcome, 0, 300), 0.0);
    EXPECT_EQ(gradient(problem, outcome, 1, 300), 1.0);
    EXPECT_EQ(gradient(problem, outcome, 1, 2), -1.0);
}

}  // namespace
}  // namespace test
