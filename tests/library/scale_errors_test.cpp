// Wrong arguments of gh_scale_dlogits: the right code, a message that names the argument and its value, nothing
// written, and an engine that still works.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "scale_call.h"

namespace test {
namespace {

constexpr int64_t max = std::numeric_limits<int64_t>::max();

[[gnu::format(printf, 1, 2)]] std::string text(const char *format, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

class ScaleErrors : public ::testing::Test {
protected:
    struct Call {
        char *dlogits;
        gh_dtype dtype;
        int64_t batch, vocab, stride;
        char *dloss_ptr;
    };

    Random random = make_random();
    const ScaleProblem problem = random_scale_problem(random, GH_DTYPE_F32, 4, 12, 3, 4);
    const PlacedScale placed{problem};
    const Call right{static_cast<char *>(placed.dlogits()),       GH_DTYPE_F32, 4, 12, 16,
                     reinterpret_cast<char *>(placed.dloss_ptr())};

    static gh_status call(const Call &c) {
        return gh_scale_dlogits(c.dlogits, c.dtype, c.batch, c.vocab, c.stride, reinterpret_cast<float *>(c.dloss_ptr),
                                engine().stream());
    }

    void expect_refused(const Call &wrong, gh_status status, const std::string &message) {
        EXPECT_EQ(call(wrong), status) << gh_last_error();
        EXPECT_EQ(gh_last_error(), message);
        EXPECT_TRUE(placed.unchanged()) << message;
    }

    void TearDown() override { EXPECT_TRUE(run_and_check(problem)); }
};

TEST_F(ScaleErrors, NullPointers) {
    Call wrong = right;
    wrong.dlogits = nullptr;
    expect_refused(wrong, GH_ERROR_NULL_POINTER, "dlogits = NULL: must point to [batch, vocab] elements");
    wrong = right;
    wrong.dloss_ptr = nullptr;
    expect_refused(wrong, GH_ERROR_NULL_POINTER, "dloss_ptr = NULL: must point to one float");
    wrong.batch = 0;
    expect_refused(wrong, GH_ERROR_NULL_POINTER, "dloss_ptr = NULL: must point to one float");
}

TEST_F(ScaleErrors, Dtypes) {
    for (gh_dtype dtype : {-1, 3, 1 << 30}) {
        Call wrong = right;
        wrong.dtype = dtype;
        expect_refused(wrong, GH_ERROR_INVALID_DTYPE,
                       text("dtype = %d: not a gh_dtype (F32 = 0, F16 = 1, BF16 = 2)", dtype));
    }
}

TEST_F(ScaleErrors, Sizes) {
    Call wrong = right;
    wrong.batch = -1;
    expect_refused(wrong, GH_ERROR_INVALID_SIZE, "batch = -1: must not be negative");
    wrong = right;
    wrong.vocab = 0;
    expect_refused(wrong, GH_ERROR_INVALID_SIZE, "vocab = 0: must be at least 1");
    wrong = right;
    wrong.vocab = wrong.stride = max / 8;
    expect_refused(wrong, GH_ERROR_INVALID_SIZE,
                   text("batch = 4 x vocab = %" PRId64 " elements of 4 bytes: exceeds the address space", max / 8));
}

TEST_F(ScaleErrors, RowStrides) {
    for (int64_t stride : {int64_t{11}, int64_t{1}, int64_t{-1}, int64_t{-16}, -max}) {
        Call wrong = right;
        wrong.stride = stride;
        expect_refused(wrong, GH_ERROR_INVALID_SIZE,
                       text("dlogits_row_stride = %" PRId64 ": must be 0 or at least vocab (12)", stride));
    }
    Call wrong = right;
    wrong.stride = max / 4;
    expect_refused(
        wrong, GH_ERROR_INVALID_SIZE,
        text("dlogits_row_stride = %" PRId64 " x batch = 4 elements of 4 bytes: exceeds the address space", max / 4));
}

TEST_F(ScaleErrors, Misalignment) {
    for (int bytes : {1, 2, 3}) {
        Call wrong = right;
        wrong.dlogits += bytes;
        expect_refused(wrong, GH_ERROR_MISALIGNED_POINTER,
                       text("dlogits = %p: must be aligned to 4 bytes", static_cast<void *>(wrong.dlogits)));
        wrong = right;
        wrong.dloss_ptr += bytes;
        expect_refused(wrong, GH_ERROR_MISALIGNED_POINTER,
                       text("dloss_ptr = %p: must be aligned to 4 bytes", static_cast<void *>(wrong.dloss_ptr)));
    }
    Call wrong = right;
    wrong.dtype = GH_DTYPE_BF16;
    wrong.dlogits += 1;
    expect_refused(wrong, GH_ERROR_MISALIGNED_POINTER,
                   text("dlogits = %p: must be aligned to 2 bytes", static_cast<void *>(wrong.dlogits)));
}

// The first and the last element, and the gap between two rows.
TEST_F(ScaleErrors, OverlapIsFoundToTheByte) {
    const int64_t bytes = problem.elements() * 4;
    for (int64_t at : {int64_t{0}, int64_t{13 * 4}, bytes - 4}) {
        Call wrong = right;
        wrong.dloss_ptr = wrong.dlogits + at;
        expect_refused(wrong, GH_ERROR_OVERLAP,
                       text("dloss_ptr = %p (4 bytes) overlaps dlogits = %p (%" PRId64 " bytes)",
                            static_cast<void *>(wrong.dloss_ptr), static_cast<void *>(wrong.dlogits), bytes));
    }
}

// The floats just before and just after are free to be used.
TEST_F(ScaleErrors, NeighboursDoNotOverlap) {
    const ScaleProblem memory = random_scale_problem(random, GH_DTYPE_F32, 1, 12, 1);
    for (bool after : {false, true}) {
        ScaleProblem whole = memory;
        const float dloss = 0.5f;
        std::memcpy(&whole.dlogits[after ? 44 : 0], &dloss, 4);
        const PlacedScale place(whole);
        char *const first = static_cast<char *>(place.dlogits());
        const Call neighbours{first + (after ? 0 : 4), GH_DTYPE_F32, 1, 11, 0, first + (after ? 44 : 0)};
        ASSERT_EQ(call(neighbours), GH_SUCCESS) << gh_last_error();
        const std::vector<unsigned char> outcome = place.fetch();
        ScaleProblem part{GH_DTYPE_F32, 1, 11, 0, 0, dloss, {}};
        const auto rows = [&](const std::vector<unsigned char> &bytes) {
            return std::vector<unsigned char>(bytes.begin() + (after ? 0 : 4), bytes.end() - (after ? 4 : 0));
        };
        part.dlogits = rows(whole.dlogits);
        check_scaled(part, rows(outcome));
    }
}

}  // namespace
}  // namespace test
