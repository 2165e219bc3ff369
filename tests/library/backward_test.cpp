// The backward pass from saved statistics gives the bits of the one-pass call; from a plain lse, what fp32 can carry.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine.h"
#include "of_every_dtype.h"
#include "option_call.h"
#include "option_check.h"

namespace test {
namespace {

class Backward : public OfEveryDtype {
protected:
    OptionProblem draw(int64_t batch, int64_t vocab) {
        constexpr double deviations[] = {0.1, 1, 10};
        OptionProblem problem = random_option_problem(random, dtype, batch, vocab, deviations[uniform(random, 0, 2)]);
        randomize_options(random, problem);
        problem.reduction = static_cast<gh_reduction>(uniform(random, 0, 2));
        problem.offset = problem.dlogits_offset = uniform(random, 0, 3);
        problem.padding = problem.dlogits_padding = 3 * uniform(random, 0, 2);
        ignore_one_in(random, 6, problem);
        return problem;
    }

    // What an earlier call saves.
    OptionOutcome saved_by(OptionProblem problem) {
        problem.outputs.add(Output::row_statistics);
        return run(problem);
    }

    void expect_one_pass_gradient(const OptionProblem &problem, const OptionOutcome &saved) {
        const OptionOutcome one_pass = run(problem);
        OptionProblem backward = backward_from(problem, saved);
        for (Gradient kind : {Gradient::in_place, Gradient::out_of_place}) {
            backward.gradient = kind;
            EXPECT_TRUE(run(backward).dlogits == one_pass.dlogits) << problem.describe();
        }
    }
};

INSTANTIATE_OF_EVERY_DTYPE(Backward);

constexpr int64_t shapes[][2] = {{9, 1}, {30, 2}, {17, 33}, {20, 1000}, {6, 4096}, {3, 50257}, {1, 200003}};

TEST_P(Backward, FromTheOnePassCallItself) {
    for (const auto &shape : shapes) {
        const OptionProblem problem = draw(shape[0], shape[1]);
        expect_one_pass_gradient(problem, saved_by(problem));
    }
}

TEST_P(Backward, FromAForwardPass) {
    for (const auto &shape : shapes) {
        const OptionProblem problem = draw(shape[0], shape[1]);
        OptionProblem forward = problem;
        forward.gradient = Gradient::none;
        expect_one_pass_gradient(problem, saved_by(forward));
    }
}

// A nearly certain class's log-probability may round to more than 0. That must not change the sign of a gradient of 0,
// whichever outputs the one-pass call had: they decide which kernel computes it.
TEST_P(Backward, ZerosKeepTheirSign) {
    for (int64_t vocab : {2, 3, 5, 33}) {
        OptionProblem problem = random_option_problem(random, dtype, 3000, vocab, 8);
        problem.dloss = 0;
        problem.row_dloss = random_floats(random, problem.batch, -2, -1);
        problem.offset = problem.dlogits_offset = uniform(random, 0, 3);
        for (const Outputs &outputs :
             {Outputs{Output::row_statistics}, Outputs{Output::row_statistics, Output::row_argmax},
              Outputs{Output::row_statistics, Output::row_entropy}}) {
            problem.outputs = outputs;
            expect_one_pass_gradient(problem, run(problem));
        }
    }
}

// The upstream gradients need not have been known, for the same bits.
TEST_P(Backward, FromAForwardPassWithOtherUpstreamGradients) {
    for (const auto &shape : shapes) {
        const OptionProblem problem = draw(shape[0], shape[1]);
        OptionProblem forward = problem;
        forward.dloss = 1;
        forward.row_dloss.clear();
        forward.gradient = Gradient::none;
        if (!problem.row_dentropy.empty()) forward.outputs.add(Output::row_entropy);
        expect_one_pass_gradient(problem, saved_by(forward));
    }
}

// Nor need the weights and the rest of the loss. Other terms may be summed in another order, so the bits are not
// promised.
TEST_P(Backward, FromAForwardPassWithAnotherLoss) {
    for (const auto &shape : shapes) {
        const OptionProblem problem = draw(shape[0], shape[1]);
        OptionProblem forward = problem;
        randomize_options(random, forward);
        forward.logit_scale = problem.logit_scale;
        forward.softcap = problem.softcap;
        forward.reduction = static_cast<gh_reduction>(uniform(random, 0, 2));
        forward.gradient = Gradient::none;
        if (!problem.row_dentropy.empty()) forward.outputs.add(Output::row_entropy);
        OptionProblem backward = backward_from(problem, saved_by(forward));
        for (Gradient kind : {Gradient::in_place, Gradient::out_of_place}) {
            backward.gradient = kind;
            run_and_check(backward);
        }
    }
}

// What is out of an lse's reach: a large common offset, a nearly certain and a nearly impossible label.
TEST_P(Backward, StatisticsCarryWhatAnLseCannot) {
    for (double offset : {0.0, 300.0, -2000.0})
        for (double lead : {0.0, 12.0, 40.0, -40.0}) {
            OptionProblem problem = draw(5, 700);
            for (int64_t i = 0; i < problem.batch; i++)
                for (int64_t j = 0; j < problem.vocab; j++) {
                    const bool at_label = j == problem.labels[static_cast<size_t>(i)];
                    problem.set(i, j, problem.logit(i, j) + offset + (at_label ? lead : 0));
                }
            const OptionOutcome saved = saved_by(problem);
            expect_one_pass_gradient(problem, saved);
            OptionProblem backward = backward_from(problem, saved);
            run_and_check(backward);
        }
}

TEST_P(Backward, RowsThatAreNanStayNan) {
    OptionProblem problem = draw(4, 600);
    problem.labels = {1, 2, 3, problem.ignore_index};
    problem.set(0, 100, NAN);
    problem.fill(2, -INFINITY);
    problem.fill(3, NAN);
    problem.softcap = 0;
    const OptionOutcome saved = saved_by(problem);
    expect_one_pass_gradient(problem, saved);
    const OptionProblem backward = backward_from(problem, saved);
    const OptionOutcome outcome = run_and_check(backward);
    for (int64_t j = 0; j < problem.vocab; j++) {
        ASSERT_TRUE(std::isnan(gradient(backward, outcome, 0, j)));
        ASSERT_TRUE(std::isnan(gradient(backward, outcome, 2, j)));
        ASSERT_EQ(gradient(backward, outcome, 3, j), 0.0);
    }
}

// The lse is exact but for its rounding to fp32; the oracle allows what the header says that this costs.
TEST_P(Backward, FromAPlainLse) {
    for (const auto &shape : shapes)
        for (double offset : {0.0, 100.0}) {
            OptionProblem problem = draw(shape[0], shape[1]);
            problem.row_dentropy.clear();
            for (int64_t i = 0; i < problem.batch; i++)
                for (int64_t j = 0; j < problem.vocab; j++) problem.set(i, j, problem.logit(i, j) + offset);
            for (int64_t i = 0; i < problem.batch; i++)
                problem.saved_lse.push_back(static_cast<float>(reference_row(problem, i, {1, 0}).lse.value));
            run_and_check(problem);
        }
}

// p does not depend on where the lse comes from: log N more makes every probability N times less likely.
TEST_P(Backward, AnLseOfMoreClassesScalesTheProbabilities) {
    OptionProblem problem(dtype, 1, 4);
    problem.label_smoothing = 0;
    problem.saved_lse = {static_cast<float>(std::log(4.0) + std::log(2.0))};  // as if the row had 8 equal classes
    const OptionOutcome outcome = run(problem);
    for (int64_t j = 0; j < 4; j++)
        EXPECT_NEAR(gradient(problem, outcome, 0, j), j == 0 ? -0.875 : 0.125, 1e-6) << problem.describe();
}

}  // namespace
}  // namespace test
