// The two engines, written independently, give the same answers to calls with options.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "cuda.h"
#include "of_every_dtype.h"
#include "option_call.h"
#include "option_check.h"

namespace test {
namespace {

class OptionsEnginesAgree : public OfEveryDtype {
protected:
    const std::unique_ptr<Engine> host = make_host_engine();

    OptionProblem draw(int64_t batch, int64_t vocab) {
        OptionProblem problem = random_full_problem(random, dtype, batch, vocab);
        problem.offset = uniform(random, 0, 7);
        problem.padding = uniform(random, 0, 1) * uniform(random, 1, 20);
        ignore_one_in(random, 10, problem);
        return problem;
    }
};

INSTANTIATE_OF_EVERY_DTYPE(OptionsEnginesAgree);

// Each within the oracle's error, hence within twice that of each other; what is exact is the same.
TEST_P(OptionsEnginesAgree, OnLargeRandomProblems) {
    for (const auto &shape : {std::pair<int64_t, int64_t>{24, 128256}, {61, 50257}, {700, 4096}, {9000, 257}}) {
        const OptionProblem problem = draw(shape.first, shape.second);
        const OptionOutcome a = run(problem, *host), b = run(problem);
        check(problem, a);
        check(problem, b);
        EXPECT_TRUE(a.bytes(Output::row_argmax) == b.bytes(Output::row_argmax)) << problem.describe();
        for (Output output : {Output::n_valid, Output::n_correct, Output::n_out_of_range})
            EXPECT_EQ(a.number(output), b.number(output)) << problem.describe();
    }
}

enum class Kind { finite, plus_infinity, minus_infinity, nan };

Kind kind_of(double value) {
    if (std::isnan(value)) return Kind::nan;
    if (std::isinf(value)) return value > 0 ? Kind::plus_infinity : Kind::minus_infinity;
    return Kind::finite;
}

void expect_same_kinds(const OptionProblem &problem, const OptionOutcome &a, const OptionOutcome &b) {
    for (Output output : {Output::row_loss, Output::row_lse, Output::row_target_log_prob, Output::row_entropy,
                          Output::loss, Output::z_loss, Output::n_correct}) {
        const std::vector<float> x = a.numbers(output), y = b.numbers(output);
        for (size_t i = 0; i < x.size(); i++)
            EXPECT_EQ(kind_of(double{x[i]}), kind_of(double{y[i]}))
                << "output " << static_cast<int>(output) << "[" << i << "] = " << x[i] << " and " << y[i];
    }
    EXPECT_TRUE(a.bytes(Output::row_argmax) == b.bytes(Output::row_argmax));
    for (int64_t i = 0; i < problem.batch; i++)
        for (int64_t j = 0; j < problem.vocab; j++) {
            const double x = gradient(problem, a, i, j), y = gradient(problem, b, i, j);
            ASSERT_EQ(kind_of(x), kind_of(y)) << "dlogits[" << i << "][" << j << "] = " << x << " and " << y;
        }
}

// Products of 0 and infinity, and whatever else special values, extreme weights and out-of-range labels lead to: the
// engines agree on what is NaN and what is infinite. Magnitudes are such that no finite result overflows.
TEST_P(OptionsEnginesAgree, OnWhatBecomesNanOrInfinite) {
    const double inf = std::numeric_limits<double>::infinity();
    for (int k = 0; k < 300 && !HasFailure(); k++) {
        OptionProblem problem = draw(uniform(random, 1, 8), uniform(random, 1, 300));
        SCOPED_TRACE("case " + std::to_string(k) + ": " + problem.describe());
        auto anywhere = [&](double value) {
            problem.set(uniform(random, 0, problem.batch - 1), uniform(random, 0, problem.vocab - 1), value);
        };
        const int64_t count = uniform(random, 0, 2 * problem.batch);
        for (int64_t i = 0; i < count; i++) anywhere(uniform(random, 0, 7) == 0 ? inf : -inf);
        if (uniform(random, 0, 3) == 0) anywhere(std::numeric_limits<double>::quiet_NaN());
        if (uniform(random, 0, 3) == 0) problem.labels[0] = problem.vocab;
        // What a label out of range adds to the D of a weighted mean is left open.
        if (!problem.class_weights.empty() && problem.reduction == GH_REDUCTION_MEAN) problem.labels[0] = 0;
        if (uniform(random, 0, 3) == 0) problem.label_smoothing = 1;
        for (float &weight : problem.class_weights)
            if (uniform(random, 0, 2) == 0) weight = 0;
        for (float &upstream : problem.row_dloss)
            if (uniform(random, 0, 4) == 0) upstream = 0;
        expect_same_kinds(problem, run(problem, *host), run(problem));
    }
}

// Without label smoothing, whose loss may become infinite earlier on CUDA: its sums are fp32.
TEST_P(OptionsEnginesAgree, OnExtremeScalesAndSoftcaps) {
    for (const Extreme &extreme : extremes)
        for (int64_t vocab : {1, 8, 100, 4096, 8203, 50257}) {
            OptionProblem problem = random_extreme_problem(random, dtype, vocab, extreme);
            problem.offset = uniform(random, 0, 1);
            SCOPED_TRACE(problem.describe());
            expect_same_kinds(problem, run(problem, *host), run(problem));
            if (HasFailure()) return;
        }
}

}  // namespace
}  // namespace test
