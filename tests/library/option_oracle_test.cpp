// The oracle of the calls with options, against closed forms, the header's formulas taken literally, and finite
// differences.
#include "option_oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "oracle.h"

namespace test {
namespace {

class OptionOracle : public ::testing::Test {
protected:
    Random random = make_random();

    double real(double lowest, double highest) {
        return std::uniform_real_distribution<double>(lowest, highest)(random);
    }

    // One row with every term that has a gradient, each of them off now and then.
    OptionProblem draw(int64_t vocab) {
        OptionProblem problem = random_option_problem(random, GH_DTYPE_F32, 1, vocab, real(0.1, 4));
        auto chance = [&] { return uniform(random, 0, 3) > 0; };
        if (chance()) problem.label_smoothing = static_cast<float>(real(0, 1));
        if (chance()) problem.z_loss_multiplier = static_cast<float>(real(-0.5, 0.5));
        if (chance()) problem.logit_scale = static_cast<float>(real(0.2, 3));
        if (chance()) problem.softcap = static_cast<float>(real(1, 8));
        if (chance()) problem.dloss = static_cast<float>(real(-3, 3));
        if (chance()) problem.dloss_ptr = static_cast<float>(real(-3, 3));
        if (chance()) problem.class_weights = random_floats(random, vocab, 0, 3);
        if (chance()) problem.row_dloss = random_floats(random, 1, -3, 3);
        if (chance()) problem.row_dentropy = random_floats(random, 1, -3, 3);
        problem.reduction = static_cast<gh_reduction>(uniform(random, 0, 2));
        return problem;
    }

    static std::vector<double> logits_of(const OptionProblem &problem) {
        std::vector<double> logits;
        for (int64_t j = 0; j < problem.vocab; j++) logits.push_back(problem.logit(0, j));
        return logits;
    }
};

// The derivative of the oracle's own loss and entropy, by a stencil whose error is h^4 / 30 times the fifth derivative.
// A row's terms have derivatives of order 1, scaled by up to 3 per derivative with logit_scale and 3 with each upstream
// factor: 3^5 * 3^3 * 3 * h^4 / 30 < 1e-9. Rounding adds 1e-16 * 1000 / h < 1e-9.
TEST_F(OptionOracle, GradientIsTheDerivative) {
    constexpr double h = 0x1p-10;
    for (int k = 0; k < 300; k++) {
        const OptionProblem problem = draw(k % 9 + 1);
        SCOPED_TRACE(problem.describe());
        const Bounded D = denominator(problem);
        const double upstream = double{problem.dloss} * double{problem.dloss_ptr.value_or(1)} *
                                (problem.row_dloss.empty() ? 1 : double{problem.row_dloss[0]}) / D.value;
        const double dentropy = problem.row_dentropy.empty() ? 0 : double{problem.row_dentropy[0]};
        std::vector<double> logits = logits_of(problem);
        const OptionRow here = reference_row(problem, 0, logits, D);
        for (size_t j = 0; j < logits.size(); j++) {
            const double x = logits[j];
            auto objective = [&](double steps) {
                logits[j] = x + steps * h;
                const OptionRow row = reference_row(problem, 0, logits, D);
                logits[j] = x;
                return upstream * row.loss.value + dentropy * row.entropy.value;
            };
            const double slope = (8 * (objective(1) - objective(-1)) - (objective(2) - objective(-2))) / (12 * h);
            EXPECT_NEAR(here.gradient[j], slope, 1e-8 * (1 + std::fabs(upstream))) << "column " << j;
        }
    }
}

// The header's formulas, word by word, in extended precision.
TEST_F(OptionOracle, ValuesAreTheHeadersFormulas) {
    for (int k = 0; k < 300; k++) {
        const OptionProblem problem = draw(uniform(random, 1, 40));
        SCOPED_TRACE(problem.describe());
        const size_t vocab = static_cast<size_t>(problem.vocab), y = static_cast<size_t>(problem.labels[0]);
        const std::vector<double> logits = logits_of(problem);
        std::vector<long double> x(vocab);
        long double sum = 0;
        for (size_t j = 0; j < vocab; j++) {
            const long double t = static_cast<long double>(problem.logit_scale) * logits[j];
            const long double c = problem.softcap;
            x[j] = c > 0 ? c * std::tanh(t / c) : t;
            sum += std::exp(x[j]);
        }
        const long double lse = std::log(sum), e = problem.label_smoothing;
        long double smoothing = 0, entropy = lse;
        for (size_t j = 0; j < vocab; j++) {
            smoothing += problem.weight(static_cast<int64_t>(j)) * (lse - x[j]);
            entropy -= std::exp(x[j] - lse) * x[j];
        }
        const long double loss = (1 - e) * problem.weight(problem.labels[0]) * (lse - x[y]) +
                                 e / static_cast<long double>(vocab) * smoothing +
                                 problem.z_loss_multiplier * lse * lse;
        const OptionRow row = reference_row(problem, 0, denominator(problem));
        // Fewer than 50 roundings, each by 2^-53 of a term that is at most so large.
        const double largest_term = 100 + static_cast<double>(lse * lse);
        const double tolerance = 50 * 0x1p-53 * largest_term;
        EXPECT_NEAR(row.lse.value, static_cast<double>(lse), tolerance);
        EXPECT_NEAR(row.loss.value, static_cast<double>(loss), tolerance);
        EXPECT_NEAR(row.z_loss.value, static_cast<double>(problem.z_loss_multiplier * lse * lse), tolerance);
        EXPECT_NEAR(row.target_log_prob.value, static_cast<double>(x[y] - lse), tolerance);
        EXPECT_NEAR(row.entropy.value, static_cast<double>(entropy), tolerance);
    }
}

// Without options it is the oracle of the short call, in values and in errors.
TEST_F(OptionOracle, DefaultsAgreeWithTheShortCallsOracle) {
    for (int64_t vocab : {1, 2, 100, 3000}) {
        Problem plain = random_problem(random, GH_DTYPE_BF16, 3, vocab, 5);
        plain.z_loss_multiplier = 0.01f;
        plain.labels[1] = plain.ignore_index;
        OptionProblem problem(plain.dtype, plain.batch, plain.vocab);
        static_cast<Rows &>(problem) = plain;
        for (int64_t i = 0; i < plain.batch; i++) {
            const Row expected = reference_row(plain, i);
            const OptionRow row = reference_row(problem, i, denominator(problem));
            EXPECT_EQ(row.counted, expected.counted);
            const double z = 0.01f * expected.lse * expected.lse;
            EXPECT_NEAR(row.loss.value, expected.loss + z, 1e-14);
            EXPECT_NEAR(row.lse.value, expected.lse, 1e-14);
            EXPECT_NEAR(row.lse.error, expected.lse_error, 1e-14);
            EXPECT_NEAR(row.target_log_prob.error, expected.loss_error, 1e-14);
            for (size_t j = 0; j < static_cast<size_t>(vocab); j++) {
                ASSERT_NEAR(row.gradient[j], expected.gradient[j], 1e-14);
                // Fewer than 20 roundings come on top, of what the options multiply: with p_j and the z-loss's term,
                // and at the label with the other classes' share.
                const bool at_label = static_cast<int64_t>(j) == plain.labels[static_cast<size_t>(i)];
                const double p = std::exp(plain.logit(i, static_cast<int64_t>(j)) - expected.lse);
                const double terms = (at_label ? 1 : p) * (1 + 0.02 * std::fabs(expected.lse));
                ASSERT_LE(row.gradient_error[j],
                          expected.gradient_error[j] + 20 * u * terms + 0x1p-120 * static_cast<double>(vocab));
            }
        }
    }
}

// Weighted mean, smoothing, and all, as torch.nn.functional.cross_entropy defines them: its formula for class indices
// is written out for a batch of two.
TEST_F(OptionOracle, AWeightedMeanIsThatOfPyTorch) {
    OptionProblem problem(GH_DTYPE_F32, 3, 2);
    problem.reduction = GH_REDUCTION_MEAN;
    problem.label_smoothing = 0.25f;
    problem.class_weights = {2, 0.5f};
    problem.labels = {0, 1, problem.ignore_index};
    problem.set(0, 0, std::log(3.0));  // p = 3/4, 1/4 but for the rounding of the logarithm
    problem.set(1, 1, std::log(3.0));
    const Bounded D = denominator(problem);
    EXPECT_EQ(D.value, 2.5);
    const double likely = std::log(4.0 / 3), unlikely = std::log(4.0);
    const OptionRow first = reference_row(problem, 0, D), second = reference_row(problem, 1, D);
    EXPECT_NEAR(first.loss.value, 0.75 * 2 * likely + 0.25 / 2 * (2 * likely + 0.5 * unlikely), 1e-7);
    EXPECT_NEAR(second.loss.value, 0.75 * 0.5 * likely + 0.25 / 2 * (2 * unlikely + 0.5 * likely), 1e-7);
    EXPECT_FALSE(reference_row(problem, 2, D).counted);
    // d loss_0 / d x_0 = (0.75 * 2 + 0.25 / 2 * 2.5) * 3/4 - 0.75 * 2 - 0.25 / 2 * 2, over D.
    EXPECT_NEAR(first.gradient[0], ((1.5 + 0.3125) * 0.75 - 1.5 - 0.25) / 2.5, 1e-7);
    EXPECT_NEAR(first.gradient[1], ((1.5 + 0.3125) * 0.25 - 0.0625) / 2.5, 1e-7);
}

TEST_F(OptionOracle, CertainAndUniformRows) {
    OptionProblem problem(GH_DTYPE_F32, 2, 1000);
    problem.fill(0, 7);
    problem.fill(1, -INFINITY);
    problem.set(1, 3, 12);
    problem.labels = {5, 3};
    const OptionRow even = reference_row(problem, 0, {1, 0}), certain = reference_row(problem, 1, {1, 0});
    EXPECT_NEAR(even.entropy.value, std::log(1000.0), 1e-14);
    EXPECT_EQ(even.argmax, 0);
    EXPECT_EQ(certain.loss.value, 0);
    EXPECT_EQ(certain.entropy.value, 0);
    EXPECT_EQ(certain.lse.value, 12);
    EXPECT_EQ(certain.argmax, 3);
    for (double gradient : certain.gradient) EXPECT_EQ(gradient, 0);
}

TEST_F(OptionOracle, ASoftcapLeavesInfiniteLogitsInfinite) {
    OptionProblem problem(GH_DTYPE_F32, 2, 3);
    problem.softcap = 2;
    problem.fill(0, 1);
    problem.set(0, 1, -INFINITY);
    problem.fill(1, 1);
    problem.set(1, 1, INFINITY);
    const OptionRow masked = reference_row(problem, 0, {1, 0}), infinite = reference_row(problem, 1, {1, 0});
    const double x = 2 * std::tanh(0.5);
    EXPECT_NEAR(masked.lse.value, x + std::log(2.0), 1e-15);
    EXPECT_EQ(masked.gradient[1], 0);
    EXPECT_TRUE(std::isnan(infinite.loss.value));
}

TEST_F(OptionOracle, ATermWhoseFactorIsZeroCountsForNothing) {
    OptionProblem problem(GH_DTYPE_F32, 1, 3);
    problem.set(0, 0, -INFINITY);
    problem.class_weights = {0, 1, 1};
    problem.label_smoothing = 0.5f;
    const OptionRow row = reference_row(problem, 0, {1, 0});
    EXPECT_NEAR(row.loss.value, 0.5 / 3 * 2 * std::log(2.0), 1e-15);
    EXPECT_TRUE(std::isfinite(row.loss.error));
}

// Where a softcap makes two logits equal, the argmax is still that of the logits.
TEST_F(OptionOracle, ASaturatedSoftcapKeepsTheArgmax) {
    OptionProblem problem(GH_DTYPE_F32, 1, 3);
    problem.softcap = 1;
    problem.set(0, 0, 1000);
    problem.set(0, 1, 2000);
    const OptionRow row = reference_row(problem, 0, {1, 0});
    EXPECT_EQ(row.argmax, 1);
    EXPECT_EQ(row.gradient[0], 0);
}

}  // namespace
}  // namespace test
