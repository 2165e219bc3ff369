// Calls with options, on CUDA streams: captured into graphs, and on many streams at once, each with its own workspace.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "cuda.h"
#include "of_every_dtype.h"
#include "option_call.h"
#include "option_check.h"

namespace test {
namespace {

class OptionsOnStreams : public OfEveryDtype {
protected:
    OptionProblem draw(int64_t batch, int64_t vocab) {
        OptionProblem problem = random_full_problem(random, dtype, batch, vocab);
        problem.with_workspace = true;
        problem.gradient = static_cast<Gradient>(uniform(random, 0, 2));
        return problem;
    }
};

INSTANTIATE_OF_EVERY_DTYPE(OptionsOnStreams);

// Small and large rows, few and many: the strategies that an engine may choose from.
constexpr int64_t shapes[][2] = {{5, 10}, {300, 1000}, {3, 128256}, {70, 50257}};

// Also on other logits and labels than those of the capture.
TEST_P(OptionsOnStreams, ReplaysGiveTheBitsOfADirectCall) {
    for (const auto &shape : shapes)
        for (int round = 0; round < 3; round++) {
            OptionProblem problem = draw(shape[0], shape[1]);
            PlacedOptions placed(problem);
            gh_status status = -1;
            cudaGraphExec_t graph = capture([&] { status = placed.call(); });
            ASSERT_EQ(status, GH_SUCCESS) << gh_last_error() << ", " << problem.describe();
            for (int replay = 0; replay < 3; replay++) {
                placed.fill(problem);
                CUDA_CHECK(cudaGraphLaunch(graph, engine().stream()));
                expect_same_bits(run(problem), placed.fetch(), problem);
                randomize(random, problem);
                ignore_one_in(random, 4, problem);
            }
            CUDA_CHECK(cudaGraphExecDestroy(graph));
        }
}

TEST_P(OptionsOnStreams, ForwardAndBackwardInOneGraph) {
    for (const auto &shape : shapes) {
        OptionProblem forward = draw(shape[0], shape[1]);
        forward.gradient = Gradient::none;
        const OptionOutcome saved = run(forward);
        const OptionProblem backward = backward_from(forward, saved);
        PlacedOptions first(forward), second(backward);
        gh_status statuses[] = {-1, -1};
        cudaGraphExec_t graph = capture([&] {
            statuses[0] = first.call();
            statuses[1] = second.call();
        });
        EXPECT_EQ(statuses[0], GH_SUCCESS) << gh_last_error();
        EXPECT_EQ(statuses[1], GH_SUCCESS) << gh_last_error();
        CUDA_CHECK(cudaGraphLaunch(graph, engine().stream()));
        expect_same_bits(saved, first.fetch(), forward);
        expect_same_bits(run(backward), second.fetch(), backward);
        CUDA_CHECK(cudaGraphExecDestroy(graph));
    }
}

// *dloss_ptr is read when the stream gets there, not when the call is made.
TEST_P(OptionsOnStreams, TheDeviceScalarIsReadInStreamOrder) {
    OptionProblem problem = draw(64, 5000);
    problem.gradient = Gradient::out_of_place;
    problem.dloss_ptr = 3.0f;
    PlacedOptions placed(problem);
    float *scalar = static_cast<float *>(engine().allocate(2 * sizeof(float)));
    const float values[] = {-1, 3};
    engine().upload(scalar, values, sizeof(values));
    placed.options.dloss_ptr = scalar;
    cudaGraphExec_t graph = capture([&] {
        CUDA_CHECK(cudaMemcpyAsync(scalar, scalar + 1, sizeof(float), cudaMemcpyDeviceToDevice, engine().stream()));
        EXPECT_EQ(placed.call(), GH_SUCCESS) << gh_last_error();
    });
    CUDA_CHECK(cudaGraphLaunch(graph, engine().stream()));
    expect_same_bits(run(problem), placed.fetch(), problem);
    CUDA_CHECK(cudaGraphExecDestroy(graph));
    engine().release(scalar);
}

// Every thread puts a call on each of its streams before it waits for any of them.
TEST_P(OptionsOnStreams, ManyStreamsAtOnceEachWithItsWorkspace) {
    constexpr size_t count = 6;
    std::vector<OptionProblem> problems;
    for (size_t k = 0; k < count * count; k++) {
        problems.push_back(draw(uniform(random, 1, 300), uniform(random, 1, 9000)));
        problems.back().reduction = GH_REDUCTION_MEAN;
    }
    std::vector<OptionOutcome> outcomes(problems.size());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < count; t++)
        threads.emplace_back([&, t] {
            std::vector<std::unique_ptr<CudaEngine>> engines;
            std::vector<std::unique_ptr<PlacedOptions>> calls;
            for (size_t k = 0; k < count; k++) {
                engines.push_back(std::make_unique<CudaEngine>());
                calls.push_back(std::make_unique<PlacedOptions>(problems[t * count + k], *engines.back()));
            }
            std::vector<gh_status> statuses;
            for (const auto &placed : calls) statuses.push_back(placed->call());
            for (size_t k = 0; k < count; k++) {
                outcomes[t * count + k] = calls[k]->fetch();
                outcomes[t * count + k].status = statuses[k];
            }
        });
    for (std::thread &thread : threads) thread.join();
    for (size_t k = 0; k < problems.size(); k++) {
        ASSERT_EQ(outcomes[k].status, GH_SUCCESS);
        expect_same_bits(run(problems[k]), outcomes[k], problems[k]);
    }
}

TEST_P(OptionsOnStreams, TheWorkspaceSizeDependsOnTheDeviceAlone) {
    size_t size = 0, other_size = 1;
    ASSERT_EQ(gh_cross_entropy_workspace_size(engine().stream(), &size), GH_SUCCESS) << gh_last_error();
    EXPECT_GT(size, 0u);
    EXPECT_LT(size, size_t{1} << 20);
    CudaEngine other;
    ASSERT_EQ(gh_cross_entropy_workspace_size(other.stream(), &other_size), GH_SUCCESS) << gh_last_error();
    EXPECT_EQ(size, other_size);
    cudaGraphExec_t graph =
        capture([&] { EXPECT_EQ(gh_cross_entropy_workspace_size(engine().stream(), &other_size), GH_SUCCESS); });
    EXPECT_EQ(size, other_size);
    CUDA_CHECK(cudaGraphExecDestroy(graph));
}

}  // namespace
}  // namespace test
