// The two engines, written independently, give the same answer on shapes that are too large for the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "check.h"
#include "cuda.h"
#include "of_every_dtype.h"

namespace test {
namespace {

class EnginesAgree : public OfEveryDtype {};

INSTANTIATE_OF_EVERY_DTYPE(EnginesAgree);

// Both engines stay within the oracle's error (see oracle.h), so they differ by twice that at most. For
// the error's D, the mean distance from the maximum, the oracle's rows are not needed: it is the entropy
// less log S, hence at most log V.
void compare(const Problem &problem) {
    SCOPED_TRACE(problem.describe());
    const std::unique_ptr<Engine> host = make_host_engine();
    const Outcome a = run(problem, *host), b = run(problem);
    const auto vocab = static_cast<double>(problem.vocab);
    const double terms = 16 + vocab / 256 + 3 * std::log(vocab);
    int64_t different = 0;
    for (int64_t i = 0; i < problem.batch; i++) {
        double max = problem.logit(i, 0);
        for (int64_t j = 1; j < problem.vocab; j++) max = std::max(max, problem.logit(i, j));
        for (int64_t j = 0; j < problem.vocab; j++) {
            const uint32_t one = load_bits(a.dlogits, problem.dtype, i * problem.vocab + j);
            const uint32_t other = load_bits(b.dlogits, problem.dtype, i * problem.vocab + j);
            if (one == other) continue;
            different++;
            const double x = decode(problem.dtype, one), y = decode(problem.dtype, other);
            if (problem.dtype == GH_DTYPE_F32) {
                // At the label the other classes' mean distance comes on top: log V below the second
                // largest logit, which for normal logits lies above 0.
                const bool at_label = j == problem.labels[static_cast<size_t>(i)];
                const double distance = max - problem.logit(i, j) + (at_label ? max + std::log(vocab) : 0);
                const double error = (2 * (terms + 3 * distance) + 2) * u * std::fabs(x);
                ASSERT_NEAR(x, y, error) << "row " << i << ", column " << j;
            } else {
                ASSERT_LE(std::max(one, other) - std::min(one, other), 1u) << "row " << i << ", column " << j;
            }
        }
    }
    // Twice the fraction that each may round differently from the exact value (see values_test.cpp).
    if (problem.dtype != GH_DTYPE_F32) {
        EXPECT_LE(static_cast<double>(different), 0.002 * static_cast<double>(problem.batch) * vocab);
    }
    const double rows = static_cast<double>(problem.batch);
    EXPECT_NEAR(a.ce_sum, b.ce_sum, 2 * u * (terms + rows) * a.ce_sum);
    EXPECT_NEAR(a.z_sum, b.z_sum, 2 * u * (terms + rows) * a.z_sum);
    EXPECT_EQ(a.n_valid, b.n_valid);
}

TEST_P(EnginesAgree, OnLargeRandomProblems) {
    for (const auto &shape : {std::pair<int64_t, int64_t>{150, 128256}, {301, 50257}, {4000, 4096}, {30000, 257}}) {
        Problem problem = random_problem(random, dtype, shape.first, shape.second);
        problem.offset = uniform(random, 0, 7);
        ignore_one_in(random, 10, problem);
        compare(problem);
    }
}

}  // namespace
}  // namespace test
