// A CUDA stream where there is no CUDA: a clear error, nothing written, and a host engine that goes on
// working. In a build with the CUDA engine this program runs with every device hidden.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "check.h"
#include "engine.h"

namespace test {
namespace {

#ifdef GREYHOUND_TEST_CUDA
constexpr gh_status expected = GH_ERROR_NO_DEVICE;
#else
constexpr gh_status expected = GH_ERROR_NO_CUDA;
#endif

TEST(StreamsWithoutCuda, AnswerWithAnError) {
#ifdef GREYHOUND_TEST_CUDA
    ASSERT_FALSE(has_cuda_device()) << "run this program with CUDA_VISIBLE_DEVICES=-1";
#endif
    Random random = make_random();
    // The default stream, and the handles of cudaStreamLegacy and cudaStreamPerThread.
    for (intptr_t handle : {0, 1, 2})
        for (gh_dtype dtype : all_dtypes) {
            Placed placed(random_problem(random, dtype, 3, 10));
            const Arguments host = placed.arguments;
            placed.arguments.stream = reinterpret_cast<gh_stream>(handle);
            EXPECT_EQ(call(placed.arguments), expected) << gh_last_error();
            EXPECT_NE(std::string(gh_last_error()), "");
            EXPECT_TRUE(placed.unchanged());
            EXPECT_EQ(call(host), GH_SUCCESS) << gh_last_error();
        }
}

TEST(StreamsWithoutCuda, SoDoTheCallsWithOptions) {
    gh_cross_entropy_options options = GH_CROSS_ENTROPY_OPTIONS_INIT;
    const float logits[4] = {1, 2, 3, 4}, lse[2] = {3, 5};
    float dlogits[4] = {9, 9, 9, 9}, loss = 9;
    const int64_t labels[2] = {0, 1};
    for (intptr_t handle : {0, 1, 2}) {
        const auto stream = reinterpret_cast<gh_stream>(handle);
        options.loss = nullptr;
        EXPECT_EQ(
            gh_cross_entropy_backward(logits, dlogits, GH_DTYPE_F32, labels, 2, 2, nullptr, lse, &options, stream),
            expected)
            << gh_last_error();
        options.loss = &loss;
        EXPECT_EQ(gh_cross_entropy(logits, dlogits, GH_DTYPE_F32, labels, 2, 2, &options, stream), expected)
            << gh_last_error();
        // A batch of no rows has sums to overwrite.
        options.sums = GH_SUMS_OVERWRITE;
        EXPECT_EQ(gh_cross_entropy(nullptr, nullptr, GH_DTYPE_F32, nullptr, 0, 2, &options, stream), expected);
        options.sums = GH_SUMS_ADD;
        EXPECT_EQ(gh_cross_entropy(nullptr, nullptr, GH_DTYPE_F32, nullptr, 0, 2, &options, stream), GH_SUCCESS);
        size_t size = 9;
        EXPECT_EQ(gh_cross_entropy_workspace_size(stream, &size), expected) << gh_last_error();
        EXPECT_EQ(size, 9u);
        EXPECT_EQ(gh_scale_dlogits(dlogits, GH_DTYPE_F32, 2, 2, 0, lse, stream), expected) << gh_last_error();
    }
    for (float value : dlogits) EXPECT_EQ(value, 9);
    EXPECT_EQ(loss, 9);
}

// What is wrong with the arguments themselves comes first, so that it is found without a GPU.
TEST(StreamsWithoutCuda, ArgumentsAreStillChecked) {
    Random random = make_random();
    Placed placed(random_problem(random, GH_DTYPE_F32, 3, 10));
    placed.arguments.stream = nullptr;
    placed.arguments.vocab = -1;
    EXPECT_EQ(call(placed.arguments), GH_ERROR_INVALID_SIZE) << gh_last_error();
    EXPECT_STREQ(gh_last_error(), "vocab = -1: must be at least 1");
}

}  // namespace
}  // namespace test
