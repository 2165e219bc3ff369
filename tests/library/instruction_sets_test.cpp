// Every instruction set that this processor has: what is exact is the same, and the rest keeps the contract. (The other
// tests of the host engine see the best of them only.)
#include <gtest/gtest.h>

#include <cmath>

#include "api/call.h"
#include "cpu/engine.h"
#include "cpu/scale.h"
#include "option_call.h"
#include "option_check.h"
#include "scale_call.h"
#include "status.h"

namespace test {
namespace {

using gh::cpu::Isa;

class InstructionSets : public ::testing::TestWithParam<Isa> {
protected:
    Random random = make_random();
    const Isa isa = GetParam();

    void SetUp() override {
        if (!gh::cpu::available(isa)) GTEST_SKIP() << "not on this processor";
    }

    OptionProblem draw(gh_dtype dtype, int64_t batch, int64_t vocab, double deviation) {
        OptionProblem problem = random_full_problem(random, dtype, batch, vocab, deviation);
        problem.offset = uniform(random, 0, 3);
        return problem;
    }

    // What the exported functions do once they have found a call valid.
    OptionOutcome run_here(const OptionProblem &problem) {
        SCOPED_TRACE(problem.describe());
        const PlacedOptions placed(problem);
        gh::CrossEntropy call;
        call.pass = problem.is_backward()         ? gh::Pass::backward
                    : placed.dlogits() != nullptr ? gh::Pass::forward_and_backward
                                                  : gh::Pass::forward;
        call.logits = placed.logits();
        call.dlogits = placed.dlogits();
        call.dtype = problem.dtype;
        call.labels = placed.labels();
        call.batch = problem.batch;
        call.vocab = call.logits_row_stride = call.dlogits_row_stride = problem.vocab;
        call.saved_statistics = placed.saved_statistics();
        EXPECT_EQ(gh::read_options(&placed.options, call), GH_SUCCESS) << gh::last_failure();
        EXPECT_EQ(gh::cpu::cross_entropy(call, isa), GH_SUCCESS);
        return placed.fetch();
    }
};

std::string param_name(const ::testing::TestParamInfo<Isa> &info) {
    switch (info.param) {
        case Isa::portable: return "portable";
        case Isa::avx2: return "avx2";
        case Isa::avx512: return "avx512";
    }
    return "unknown";
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSets, ::testing::Values(Isa::portable, Isa::avx2, Isa::avx512), param_name);

// Rows of less than a vector, of a few, of a block of them and more, and of several segments.
constexpr int64_t shapes[][2] = {{20, 1}, {20, 2}, {20, 31}, {12, 65}, {8, 1000}, {6, 4099}, {3, 20000}};

TEST_P(InstructionSets, KeepTheContract) {
    for (gh_dtype dtype : all_dtypes)
        for (double deviation : {0.1, 1.0, 10.0, 30.0})
            for (const auto &shape : shapes) {
                const OptionProblem problem = draw(dtype, shape[0], shape[1], deviation);
                const OptionOutcome outcome = run_here(problem);
                check(problem, outcome);
                const OptionOutcome backward = run_here(backward_from(problem, outcome));
                EXPECT_TRUE(backward.dlogits == outcome.dlogits) << "backward, " << problem.describe();
                if (HasFailure()) return;
            }
}

TEST_P(InstructionSets, MakeNoNanAtExtremeScalesAndSoftcaps) {
    for (gh_dtype dtype : all_dtypes)
        for (const Extreme &extreme : extremes)
            for (int64_t vocab : {2, 100, 8203}) {
                OptionProblem problem = random_extreme_problem(random, dtype, vocab, extreme);
                problem.label_smoothing = 0.25f;
                problem.outputs = {Output::row_loss, Output::row_lse};
                const OptionOutcome outcome = run_here(problem);
                for (int64_t i = 0; i < problem.batch; i++) {
                    ASSERT_FALSE(std::isnan(outcome.number(Output::row_loss, i))) << problem.describe();
                    ASSERT_FALSE(std::isnan(outcome.number(Output::row_lse, i))) << problem.describe();
                    for (int64_t j = 0; j < vocab; j++)
                        ASSERT_FALSE(std::isnan(gradient(problem, outcome, i, j))) << problem.describe();
                }
            }
}

// There a unit in the last place is far more than an exponential can hold, and rounding may change the order of two
// logits that are next to each other.
TEST_P(InstructionSets, KeepProbabilitiesBelow1UnderAnEnormousSoftcap) {
    constexpr float cap = 1e38f;
    for (double units : {0.1, 0.3, 0.6, 0.8, 1.0, 1.1, 1.5}) {
        OptionProblem problem(GH_DTYPE_F32, 2000, 9);
        problem.softcap = problem.logit_scale = cap;
        problem.dloss = 1 / cap;  // the derivative has the scale as a factor
        problem.outputs = {Output::row_loss};
        for (int64_t i = 0; i < problem.batch; i++) {
            float logit = random_floats(random, 1, 0.95 * units, 1.05 * units)[0];
            for (int64_t j = 0; j < problem.vocab; j++, logit = std::nextafter(logit, 2.0f))
                problem.set(i, j, static_cast<double>(logit));
            problem.labels[static_cast<size_t>(i)] = uniform(random, 0, problem.vocab - 1);
        }
        const OptionOutcome outcome = run_here(problem);
        for (int64_t i = 0; i < problem.batch; i++) {
            ASSERT_TRUE(std::isfinite(outcome.number(Output::row_loss, i))) << problem.describe();
            for (int64_t j = 0; j < problem.vocab; j++)
                ASSERT_LE(std::fabs(gradient(problem, outcome, i, j)), 1 + 0x1p-20) << problem.describe();
        }
    }
}

// A softcap is computed in another way where all neighbours are small beside it.
TEST_P(InstructionSets, AGradientDoesNotDependOnItsNeighbours) {
    for (gh_dtype dtype : all_dtypes)
        for (int64_t vocab : {100, 5003}) {
            OptionProblem problem = draw(dtype, 4, vocab, 1);
            problem.softcap = random_floats(random, 1, 4, 30)[0];
            const OptionProblem backward = backward_from(problem, run_here(problem));
            const OptionOutcome expected = run_here(backward);
            OptionProblem changed = backward;
            std::vector<bool> is_changed(static_cast<size_t>(problem.batch * vocab));
            for (int64_t i = 0; i < problem.batch; i++)
                for (int64_t j = 0; j < vocab; j++) {
                    if (j == problem.labels[static_cast<size_t>(i)] || uniform(random, 0, 40) != 0) continue;
                    const double caps = static_cast<double>(random_floats(random, 1, -3, -1)[0]);
                    changed.set(i, j, caps * static_cast<double>(problem.softcap / problem.logit_scale));
                    is_changed[static_cast<size_t>(i * vocab + j)] = true;
                }
            const OptionOutcome outcome = run_here(changed);
            for (int64_t k = 0; k < problem.batch * vocab; k++) {
                if (is_changed[static_cast<size_t>(k)]) continue;
                ASSERT_EQ(load_bits(outcome.dlogits, dtype, k), load_bits(expected.dlogits, dtype, k))
                    << "element " << k << ", " << problem.describe();
            }
        }
}

TEST_P(InstructionSets, ScaleAlike) {
    for (gh_dtype dtype : all_dtypes)
        for (float factor : factors(random))
            for (int64_t vocab : {1, 77, 20000}) {
                const ScaleProblem problem = random_scale_problem(random, dtype, 3, vocab, factor, 1);
                const PlacedScale placed(problem);
                gh::cpu::scale_dlogits(
                    {placed.dlogits(), dtype, problem.batch, vocab, problem.stride(), placed.dloss_ptr()}, isa);
                ASSERT_TRUE(check_scaled(problem, placed.fetch()));
            }
}

}  // namespace
}  // namespace test
