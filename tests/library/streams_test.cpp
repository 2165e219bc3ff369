// Every kind of stream: default, legacy, per thread, blocking or not, of the current device or another.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "cuda.h"

namespace test {
namespace {

class Streams : public ::testing::Test {
protected:
    Random random = make_random();

    void run_on(CudaEngine &where) {
        for (gh_dtype dtype : all_dtypes) {
            const Problem problem = random_problem(random, dtype, 70, 3001);
            check(problem, run(problem, where));
        }
    }
};

TEST_F(Streams, TheDefaultStreamHandles) {
    for (cudaStream_t handle : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
        CudaEngine where(0, handle);
        run_on(where);
    }
}

TEST_F(Streams, AStreamThatSynchronisesWithTheDefaultStream) {
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreate(&stream));
    {
        CudaEngine where(0, stream);
        run_on(where);
    }
    CUDA_CHECK(cudaStreamDestroy(stream));
}

// The call returns at once, and its work starts after the stream's earlier work.
TEST_F(Streams, WorkIsOrderedAfterTheStreamsEarlierWork) {
    const Problem problem = random_problem(random, GH_DTYPE_BF16, 500, 4096);
    Placed placed(problem);
    void *source = engine().allocate(problem.logits.size());
    engine().upload(source, problem.logits.data(), problem.logits.size());
    // Each call consumes the logits that the copy queued before it brings: out of order, it would read
    // gradients. The sums start anew in each round.
    for (int round = 0; round < 20; round++) {
        for (float *sum : {placed.arguments.ce_sum, placed.arguments.z_sum, placed.arguments.n_valid})
            CUDA_CHECK(cudaMemsetAsync(sum, 0, sizeof(float), engine().stream()));
        CUDA_CHECK(cudaMemcpyAsync(placed.arguments.logits, source, problem.logits.size(), cudaMemcpyDeviceToDevice,
                                   engine().stream()));
        ASSERT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
    }
    check(problem, placed.fetch());
    engine().release(source);
}

// Every thread puts a call on each of its streams before it waits for any of them.
TEST_F(Streams, EightThreadsOfEightStreamsEach) {
    constexpr size_t count = 8;
    std::vector<Problem> problems;
    for (size_t k = 0; k < count * count; k++)
        problems.push_back(
            random_problem(random, all_dtypes[k % 3], uniform(random, 1, 200), uniform(random, 1, 9000)));
    std::vector<Outcome> outcomes(problems.size());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < count; t++)
        threads.emplace_back([&, t] {
            std::vector<std::unique_ptr<CudaEngine>> engines;
            std::vector<std::unique_ptr<Placed>> calls;
            for (size_t k = 0; k < count; k++) {
                engines.push_back(std::make_unique<CudaEngine>());
                calls.push_back(std::make_unique<Placed>(problems[t * count + k], *engines.back()));
            }
            std::vector<gh_status> statuses;
            for (const auto &placed : calls) statuses.push_back(call(placed->arguments));
            for (size_t k = 0; k < count; k++) {
                outcomes[t * count + k] = calls[k]->fetch();
                outcomes[t * count + k].status = statuses[k];
            }
        });
    for (std::thread &thread : threads) thread.join();
    for (size_t k = 0; k < problems.size(); k++) {
        EXPECT_EQ(outcomes[k].status, GH_SUCCESS);
        check(problems[k], outcomes[k]);
    }
}

TEST_F(Streams, ThePerThreadStreamInSeveralThreads) {
    std::vector<Problem> problems;
    for (int t = 0; t < 8; t++) problems.push_back(random_problem(random, all_dtypes[t % 3], 30, 2000 + t));
    std::vector<Outcome> outcomes(problems.size());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < problems.size(); t++)
        threads.emplace_back([&, t] {
            CudaEngine where(0, cudaStreamPerThread);
            Placed placed(problems[t], where);
            const gh_status status = call(placed.arguments);
            outcomes[t] = placed.fetch();
            outcomes[t].status = status;
        });
    for (std::thread &thread : threads) thread.join();
    for (size_t t = 0; t < problems.size(); t++) {
        EXPECT_EQ(outcomes[t].status, GH_SUCCESS);
        check(problems[t], outcomes[t]);
    }
}

// The first call of a fresh thread finds no context there yet.
TEST_F(Streams, TheFirstCallOfAThread) {
    const Problem problem = random_problem(random, GH_DTYPE_F32, 5, 100);
    Placed placed(problem);
    gh_status status = -1;
    std::thread([&] { status = call(placed.arguments); }).join();
    EXPECT_EQ(status, GH_SUCCESS);
    check(problem, placed.fetch());
}

TEST_F(Streams, AnotherDevicesStreamLeavesTheCurrentDeviceAlone) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    for (int device = device_count() - 1; device >= 0; device--) {
        CudaEngine where(device);
        for (int current : {0, 1}) {
            CurrentDevice scope(current);
            run_on(where);
            int now = -1;
            CUDA_CHECK(cudaGetDevice(&now));
            EXPECT_EQ(now, current);
        }
    }
}

TEST_F(Streams, ARefusedCallLeavesTheCurrentDeviceAlone) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    CudaEngine other(1);
    Placed here(random_problem(random, GH_DTYPE_F32, 2, 10));
    here.arguments.stream = other.stream();
    EXPECT_EQ(call(here.arguments), GH_ERROR_UNREACHABLE_POINTER) << gh_last_error();
    int now = -1;
    CUDA_CHECK(cudaGetDevice(&now));
    EXPECT_EQ(now, 0);
    EXPECT_TRUE(here.unchanged());
}

// The default stream is the current device's, so the same NULL means another device's after cudaSetDevice.
TEST_F(Streams, TheDefaultStreamFollowsTheCurrentDevice) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    for (int device : {1, 0}) {
        CurrentDevice scope(device);
        CudaEngine where(device, nullptr);
        run_on(where);
    }
}

}  // namespace
}  // namespace test
