// Rows whose label is ignore_index: gradient exactly +0, nothing added, logits not looked at.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "check.h"
#include "engine.h"
#include "of_every_dtype.h"

namespace test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

class IgnoredRows : public OfEveryDtype {
protected:
    // Marks the rows that `chosen` names as ignored and fills them with `value`.
    template <typename Chosen>
    void ignore(Problem &problem, double value, Chosen chosen) {
        for (int64_t i = 0; i < problem.batch; i++) {
            int64_t &label = problem.labels[static_cast<size_t>(i)];
            if (chosen(i)) {
                label = problem.ignore_index;
                problem.fill(i, value);
            } else if (label == problem.ignore_index) {
                label = (label + 1) % problem.vocab;
            }
        }
    }
};

INSTANTIATE_OF_EVERY_DTYPE(IgnoredRows);

constexpr int64_t indices[] = {-100, -1, 0, 3, INT64_MIN, INT64_MAX};

TEST_P(IgnoredRows, NoneSomeAlternatingAndAll) {
    for (int64_t index : indices)
        for (int64_t vocab : {5, 1000, 4099})
            for (int pattern = 0; pattern < 4; pattern++) {
                Problem problem = random_problem(random, dtype, 13, vocab);
                problem.ignore_index = index;
                problem.offset = pattern;
                problem.z_loss_multiplier = 1e-3f;
                problem.n_valid = 2;
                ignore(problem, 1, [&](int64_t i) {
                    return pattern == 3 || (pattern == 2 && i % 2 == 0) || (pattern == 1 && uniform(random, 0, 3) == 0);
                });
                run_and_check(problem);
            }
}

// The oracle never looks at an ignored row, so any leak shows.
TEST_P(IgnoredRows, NotANumberDoesNotLeakOutOfThem) {
    for (double poison : {nan, inf, -inf}) {
        Problem problem = random_problem(random, dtype, 140, 777);
        ignore(problem, poison, [](int64_t i) { return i % 3 != 1; });
        const Outcome outcome = run(problem);
        check(problem, outcome);
        EXPECT_TRUE(std::isfinite(outcome.ce_sum) && std::isfinite(outcome.z_sum));
    }
}

TEST_P(IgnoredRows, AllIgnoredLeavesTheAccumulatorsBitwiseAlone) {
    Problem problem = random_problem(random, dtype, 10, 50);
    ignore(problem, nan, [](int64_t) { return true; });
    problem.ce_sum = 0.1f;
    problem.z_sum = 0.2f;
    problem.n_valid = 0.3f;
    const Outcome outcome = run(problem);
    check(problem, outcome);
    EXPECT_EQ(outcome.ce_sum, 0.1f);
    EXPECT_EQ(outcome.z_sum, 0.2f);
    EXPECT_EQ(outcome.n_valid, 0.3f);
}

TEST_P(IgnoredRows, OneClassWhichIsIgnored) {
    Problem problem(dtype, 4, 1);
    problem.ignore_index = 0;
    for (int64_t i = 0; i < problem.batch; i++) problem.fill(i, nan);
    run_and_check(problem);
}

// 2^24 is where a float counter would stop: here it only has to count exactly below.
TEST_P(IgnoredRows, TheCountIsExact) {
    Problem problem = random_problem(random, dtype, 30011, 2);
    problem.n_valid = 16000000;
    ignore(problem, 0, [](int64_t i) { return i % 7 == 0; });
    run_and_check(problem);
}

}  // namespace
}  // namespace test
