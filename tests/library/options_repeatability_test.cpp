// The same call gives the same bits: on the host for any number of threads; on a CUDA stream the gradient and the
// outputs per row, and with a workspace the sums too.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine.h"
#include "of_every_dtype.h"
#include "option_call.h"
#include "option_check.h"

namespace test {
namespace {

class OptionsRepeatability : public OfEveryDtype {
protected:
    OptionProblem draw(int64_t batch, int64_t vocab) {
        OptionProblem problem = random_full_problem(random, dtype, batch, vocab);
        problem.with_workspace = true;
        problem.before = 3;
        problem.offset = 1;
        ignore_one_in(random, 10, problem);
        return problem;
    }
};

INSTANTIATE_OF_EVERY_DTYPE(OptionsRepeatability);

constexpr int64_t shapes[][2] = {{1, 200064}, {3, 50257}, {64, 4099}, {1500, 33}};

TEST_P(OptionsRepeatability, RunToRunWithAWorkspace) {
    for (const auto &shape : shapes) {
        const OptionProblem problem = draw(shape[0], shape[1]);
        const OptionOutcome first = run_and_check(problem);
        for (int repeat = 0; repeat < 4; repeat++) expect_same_bits(first, run(problem), problem);
    }
}

TEST_P(OptionsRepeatability, RunToRunWithoutAWorkspace) {
    for (const auto &shape : shapes) {
        OptionProblem problem = draw(shape[0], shape[1]);
        problem.reduction = GH_REDUCTION_SUM;
        problem.with_workspace = false;
        if (engine().is_cuda()) {  // whose floating-point sums are added up in any order then
            problem.outputs.remove(Output::loss);
            problem.outputs.remove(Output::z_loss);
        }
        const OptionOutcome first = run_and_check(problem);
        for (int repeat = 0; repeat < 4; repeat++) expect_same_bits(first, run(problem), problem);
    }
}

// What a workspace holds has no meaning: another call's leavings are as good as the garbage that run() puts there.
TEST_P(OptionsRepeatability, AWorkspaceMayBeUsedByOneCallAfterAnother) {
    std::vector<OptionProblem> problems;
    for (const auto &shape : shapes) {
        problems.push_back(draw(shape[0], shape[1]));
        problems.back().reduction = GH_REDUCTION_MEAN;
    }
    const PlacedOptions owner(problems[0]);
    std::vector<std::unique_ptr<PlacedOptions>> calls;
    for (const OptionProblem &problem : problems) {
        calls.push_back(std::make_unique<PlacedOptions>(problem));
        calls.back()->options.workspace = owner.options.workspace;
    }
    for (const auto &placed : calls) ASSERT_EQ(placed->call(), GH_SUCCESS) << gh_last_error();
    for (size_t k = 0; k < problems.size(); k++) expect_same_bits(run(problems[k]), calls[k]->fetch(), problems[k]);
}

TEST_P(OptionsRepeatability, AnyNumberOfThreads) {
    if (engine().is_cuda()) GTEST_SKIP() << "host threads do not matter to a CUDA stream";
    // The OpenMP runtime that the library brought into this process; the setting holds for calls of this thread.
    const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    const auto get_threads = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    if (set_threads == nullptr || get_threads == nullptr) GTEST_SKIP() << "the library was built without OpenMP";
    const int before = get_threads();
    for (const auto &shape : shapes) {
        const OptionProblem problem = draw(shape[0], shape[1]);
        set_threads(1);
        const OptionOutcome one = run(problem);
        const OptionProblem backward = backward_from(problem, one);
        for (int threads : {2, 3, 8}) {
            set_threads(threads);
            expect_same_bits(one, run(problem), problem);
            EXPECT_TRUE(run(backward).dlogits == one.dlogits) << backward.describe();
        }
        set_threads(before);
    }
}

}  // namespace
}  // namespace test
