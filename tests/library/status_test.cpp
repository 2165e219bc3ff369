// Versions, the text of every status, and the last error as each thread sees it.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "greyhound/greyhound.h"

namespace {

constexpr gh_status all_statuses[] = {GH_SUCCESS,
                                      GH_ERROR_NULL_POINTER,
                                      GH_ERROR_INVALID_SIZE,
                                      GH_ERROR_INVALID_DTYPE,
                                      GH_ERROR_INVALID_VALUE,
                                      GH_ERROR_MISALIGNED_POINTER,
                                      GH_ERROR_OVERLAP,
                                      GH_ERROR_UNREACHABLE_POINTER,
                                      GH_ERROR_LABEL_OUT_OF_RANGE,
                                      GH_ERROR_NO_CUDA,
                                      GH_ERROR_NO_DEVICE,
                                      GH_ERROR_UNSUPPORTED_DEVICE,
                                      GH_ERROR_CUDA};

// A call that fails because of its batch.
gh_status fail_with(int64_t batch) {
    float sum = 0;
    return gh_cross_entropy_fwd_bwd(nullptr, GH_DTYPE_F32, nullptr, batch, 1, 0, -100, &sum, nullptr, nullptr,
                                    GH_STREAM_HOST);
}

TEST(Version, HeaderAndLibraryAgree) {
    EXPECT_EQ(gh_version(), GH_VERSION);
    EXPECT_EQ(gh_version() >> 16, static_cast<uint32_t>(GH_VERSION_MAJOR));
    EXPECT_EQ(gh_version() >> 8 & 0xff, static_cast<uint32_t>(GH_VERSION_MINOR));
    EXPECT_EQ(gh_version() & 0xff, static_cast<uint32_t>(GH_VERSION_PATCH));
    EXPECT_EQ(gh_version_string(), std::to_string(GH_VERSION_MAJOR) + "." + std::to_string(GH_VERSION_MINOR) + "." +
                                       std::to_string(GH_VERSION_PATCH));
}

TEST(StatusString, EveryStatusHasALineOfItsOwn) {
    std::set<std::string> lines;
    for (gh_status status : all_statuses) {
        const std::string line = gh_status_string(status);
        EXPECT_FALSE(line.empty());
        EXPECT_NE(line, "unknown status");
        EXPECT_EQ(line.find('\n'), std::string::npos);
        EXPECT_TRUE(lines.insert(line).second) << "\"" << line << "\" is said of two statuses";
    }
}

TEST(StatusString, UnknownValuesAreSaidToBeUnknown) {
    for (gh_status status : {-1, 13, 1000, INT32_MAX, INT32_MIN})
        EXPECT_STREQ(gh_status_string(status), "unknown status") << status;
}

TEST(LastError, IsEmptyInAFreshThread) {
    ASSERT_EQ(fail_with(-5), GH_ERROR_INVALID_SIZE);
    std::string in_other_thread = "not asked";
    std::thread([&] { in_other_thread = gh_last_error(); }).join();
    EXPECT_EQ(in_other_thread, "");
    EXPECT_STREQ(gh_last_error(), "batch = -5: must not be negative");
}

TEST(LastError, TheTextStaysUntilTheNextFailure) {
    ASSERT_EQ(fail_with(-6), GH_ERROR_INVALID_SIZE);
    const char *kept = gh_last_error();
    EXPECT_EQ(fail_with(0), GH_SUCCESS);
    gh_status_string(GH_ERROR_CUDA);
    EXPECT_STREQ(kept, "batch = -6: must not be negative");
    ASSERT_EQ(fail_with(-7), GH_ERROR_INVALID_SIZE);
    EXPECT_STREQ(gh_last_error(), "batch = -7: must not be negative");
}

TEST(LastError, EachThreadSeesItsOwn) {
    constexpr int64_t thread_count = 8, calls = 2000;
    std::vector<int64_t> mixed_up(thread_count);
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < thread_count; t++)
        threads.emplace_back([t, &mixed_up] {
            for (int64_t k = 0; k < calls; k++) {
                const int64_t batch = -1 - t - thread_count * k;
                fail_with(batch);
                mixed_up[static_cast<size_t>(t)] +=
                    gh_last_error() != "batch = " + std::to_string(batch) + ": must not be negative";
            }
        });
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(mixed_up, std::vector<int64_t>(thread_count, 0));
}

}  // namespace
