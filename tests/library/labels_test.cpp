// Labels out of range: refused before anything is written on the host; on a CUDA stream, where nobody
// may wait for the answer, NaN in that row and in the sums, and nowhere else.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "check.h"
#include "engine.h"
#include "of_every_dtype.h"

namespace test {
namespace {

class Labels : public OfEveryDtype {
protected:
    void expect_refused(const Problem &problem, int64_t row) {
        Placed placed(problem);
        ASSERT_EQ(call(placed.arguments), GH_ERROR_LABEL_OUT_OF_RANGE) << problem.describe();
        char expected[256];
        std::snprintf(expected, sizeof expected,
                      "labels[%" PRId64 "] = %" PRId64 ": not in [0, %" PRId64 ") and not ignore_index (%" PRId64 ")",
                      row, problem.labels[static_cast<size_t>(row)], problem.vocab, problem.ignore_index);
        EXPECT_STREQ(gh_last_error(), expected);
        EXPECT_TRUE(placed.unchanged()) << problem.describe();
    }

    // The oracle has NaN for such a row, counts it, and knows what the others must be.
    void expect_nan(const Problem &problem, int64_t row) {
        const Outcome outcome = run(problem);
        check(problem, outcome);
        for (int64_t j = 0; j < problem.vocab; j++)
            ASSERT_TRUE(std::isnan(decode(dtype, load_bits(outcome.dlogits, dtype, row * problem.vocab + j)))) << j;
        EXPECT_TRUE(std::isnan(outcome.ce_sum) && std::isnan(outcome.z_sum)) << problem.describe();
    }
};

INSTANTIATE_OF_EVERY_DTYPE(Labels);

TEST_P(Labels, OutOfRange) {
    for (int64_t vocab : {1, 7, 1000, 8193})
        for (int64_t ignore_index : {int64_t{-100}, int64_t{0}, INT64_MIN})
            for (int64_t label : {vocab, vocab + 1, int64_t{-1}, int64_t{-99}, int64_t{-101}, int64_t{1} << 32,
                                  INT64_MAX, INT64_MIN, INT64_MIN + 1}) {
                if (label == ignore_index) continue;
                Problem problem = random_problem(random, dtype, 7, vocab);
                problem.ignore_index = ignore_index;
                problem.ce_sum = 1;
                const int64_t row = uniform(random, 0, problem.batch - 1);
                problem.labels[static_cast<size_t>(row)] = label;
                if (engine().is_cuda())
                    expect_nan(problem, row);
                else
                    expect_refused(problem, row);
            }
}

// A label whose low 32 bits are in range, or that is once it is scaled to bytes.
TEST_P(Labels, OutOfRangeByMoreThan32Bits) {
    for (int64_t label : {(int64_t{1} << 32) + 3, (int64_t{1} << 62) + 3, -(int64_t{1} << 32) + 3}) {
        Problem problem = random_problem(random, dtype, 3, 100);
        problem.labels[1] = label;
        if (engine().is_cuda())
            expect_nan(problem, 1);
        else
            expect_refused(problem, 1);
    }
}

TEST_P(Labels, TheFirstOfSeveralIsReported) {
    if (engine().is_cuda()) GTEST_SKIP() << "a CUDA stream does not report labels";
    Problem problem = random_problem(random, dtype, 1000, 5);
    problem.labels[2] = -100;
    for (size_t row : {977u, 500u, 321u}) problem.labels[row] = static_cast<int64_t>(row);
    expect_refused(problem, 321);
}

}  // namespace
}  // namespace test
