// gh_scale_dlogits reads *dloss_ptr when the stream gets there, also in every replay of a graph.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cuda.h"
#include "of_every_dtype.h"
#include "scale_call.h"

namespace test {
namespace {

class ScaleOnStreams : public OfEveryDtype {};

INSTANTIATE_OF_EVERY_DTYPE(ScaleOnStreams);

constexpr int64_t shapes[][2] = {{5, 10}, {300, 1000}, {70, 50257}};

TEST_P(ScaleOnStreams, ReplaysReadTheirOwnFactor) {
    for (const auto &shape : shapes)
        for (int64_t padding : {0, 3}) {
            PlacedScale placed(random_scale_problem(random, dtype, shape[0], shape[1], 7, padding));
            gh_status status = -1;
            cudaGraphExec_t graph = capture([&] { status = placed.call(); });
            ASSERT_EQ(status, GH_SUCCESS) << gh_last_error();
            EXPECT_TRUE(placed.unchanged()) << "capturing already ran something";
            for (float dloss : {0.3f, 1.0f, -2.0f}) {
                const ScaleProblem problem = random_scale_problem(random, dtype, shape[0], shape[1], dloss, padding);
                placed.fill(problem);
                CUDA_CHECK(cudaGraphLaunch(graph, engine().stream()));
                ASSERT_TRUE(check_scaled(problem, placed.fetch()));
            }
            CUDA_CHECK(cudaGraphExecDestroy(graph));
        }
}

// The factor is written by work that the stream has yet to do when the call is made.
TEST_P(ScaleOnStreams, TheFactorIsReadInTheStreamsOrder) {
    ScaleProblem problem = random_scale_problem(random, dtype, 200, 50257, 1);
    const PlacedScale placed(problem);
    float *late = nullptr;
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void **>(&late), sizeof(float)));
    *late = 0.1f;
    for (int i = 0; i < 20; i++) ASSERT_EQ(placed.call(), GH_SUCCESS) << gh_last_error();
    CUDA_CHECK(cudaMemcpyAsync(placed.dloss_ptr(), late, sizeof(float), cudaMemcpyHostToDevice, engine().stream()));
    ASSERT_EQ(placed.call(), GH_SUCCESS) << gh_last_error();
    engine().finish();
    std::vector<unsigned char> outcome(problem.dlogits.size());
    engine().download(outcome.data(), placed.dlogits(), outcome.size());
    CUDA_CHECK(cudaFreeHost(late));
    problem.dloss = 0.1f;
    check_scaled(problem, outcome);
}

TEST_P(ScaleOnStreams, MemoryOfTheOtherSideIsRefused) {
    const std::unique_ptr<Engine> host = make_host_engine();
    const ScaleProblem problem = random_scale_problem(random, dtype, 3, 100, 2);
    const PlacedScale on_device(problem), on_host(problem, *host);
    const auto call = [&](const PlacedScale &dlogits, const PlacedScale &dloss, gh_stream stream) {
        return gh_scale_dlogits(dlogits.dlogits(), dtype, 3, 100, 0, dloss.dloss_ptr(), stream);
    };
    EXPECT_EQ(call(on_device, on_host, GH_STREAM_HOST), GH_ERROR_UNREACHABLE_POINTER) << gh_last_error();
    EXPECT_EQ(call(on_host, on_device, GH_STREAM_HOST), GH_ERROR_UNREACHABLE_POINTER) << gh_last_error();
    int pageable = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, 0));
    if (!pageable) {
        EXPECT_EQ(call(on_device, on_host, engine().stream()), GH_ERROR_UNREACHABLE_POINTER) << gh_last_error();
        EXPECT_EQ(call(on_host, on_device, engine().stream()), GH_ERROR_UNREACHABLE_POINTER) << gh_last_error();
    }
    EXPECT_TRUE(on_device.unchanged());
    EXPECT_TRUE(on_host.unchanged());
    EXPECT_TRUE(run_and_check(problem)) << "the context is not usable any more";
}

}  // namespace
}  // namespace test
