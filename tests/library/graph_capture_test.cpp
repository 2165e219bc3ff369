// A call can be captured into a CUDA graph, in every capture mode, and replayed on new logits.
#include <gtest/gtest.h>

#include <string>

#include "check.h"
#include "cuda.h"

namespace test {
namespace {

class GraphCapture : public ::testing::TestWithParam<cudaStreamCaptureMode> {
protected:
    Random random = make_random();

    template <typename Body>
    cudaGraphExec_t capture_in_mode(Body body) {
        return capture(body, GetParam());
    }
};

std::string mode_name(const ::testing::TestParamInfo<cudaStreamCaptureMode> &info) {
    switch (info.param) {
        case cudaStreamCaptureModeGlobal: return "Global";
        case cudaStreamCaptureModeThreadLocal: return "ThreadLocal";
        default: return "Relaxed";
    }
}

INSTANTIATE_TEST_SUITE_P(All, GraphCapture,
                         ::testing::Values(cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                           cudaStreamCaptureModeRelaxed),
                         mode_name);

// Small and large rows, few and many: the strategies that an engine may choose from.
constexpr int64_t shapes[][2] = {{5, 10}, {300, 1000}, {3, 128256}, {70, 50257}};

TEST_P(GraphCapture, ReplaysAddUpOnFreshLogits) {
    for (gh_dtype dtype : all_dtypes)
        for (const auto &shape : shapes) {
            Problem problem = random_problem(random, dtype, shape[0], shape[1]);
            Placed placed(problem);
            gh_status status = -1;
            cudaGraphExec_t graph = capture_in_mode([&] { status = call(placed.arguments); });
            ASSERT_EQ(status, GH_SUCCESS) << gh_last_error();
            EXPECT_TRUE(placed.unchanged()) << "capturing already ran something";
            for (int replay = 0; replay < 2; replay++) {
                placed.fill(problem);
                CUDA_CHECK(cudaGraphLaunch(graph, engine().stream()));
                const Outcome outcome = placed.fetch();
                check(problem, outcome);
                problem = random_problem(random, dtype, shape[0], shape[1]);
                problem.ce_sum = outcome.ce_sum;  // the next replay adds to what this one left
                problem.z_sum = outcome.z_sum;
                problem.n_valid = outcome.n_valid;
            }
            CUDA_CHECK(cudaGraphExecDestroy(graph));
        }
}

TEST_P(GraphCapture, SeveralCallsInOneGraph) {
    const Problem first = random_problem(random, GH_DTYPE_BF16, 20, 5000);
    const Problem second = random_problem(random, GH_DTYPE_F32, 7, 333);
    Placed one(first), two(second);
    cudaGraphExec_t graph = capture_in_mode([&] {
        EXPECT_EQ(call(one.arguments), GH_SUCCESS) << gh_last_error();
        EXPECT_EQ(call(two.arguments), GH_SUCCESS) << gh_last_error();
    });
    CUDA_CHECK(cudaGraphLaunch(graph, engine().stream()));
    check(first, one.fetch());
    check(second, two.fetch());
    CUDA_CHECK(cudaGraphExecDestroy(graph));
}

// A call that is refused leaves the capture as valid as it was.
TEST_P(GraphCapture, ARefusedCallDoesNotInvalidateTheCapture) {
    const Problem problem = random_problem(random, GH_DTYPE_F16, 9, 777);
    Placed placed(problem);
    Arguments wrong = placed.arguments;
    wrong.z_sum = wrong.ce_sum;
    cudaGraphExec_t graph = capture_in_mode([&] {
        EXPECT_EQ(call(wrong), GH_ERROR_OVERLAP) << gh_last_error();
        EXPECT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
    });
    CUDA_CHECK(cudaGraphLaunch(graph, engine().stream()));
    check(problem, placed.fetch());
    CUDA_CHECK(cudaGraphExecDestroy(graph));
}

}  // namespace
}  // namespace test
