// Wrong arguments: the right code, a message that names the argument and its value, nothing written,
// and an engine that still works.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "engine.h"

namespace test {
namespace {

[[gnu::format(printf, 1, 2)]] std::string text(const char *format, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

template <typename T>
T *displaced(T *pointer, int64_t bytes) {
    return reinterpret_cast<T *>(reinterpret_cast<uintptr_t>(pointer) + static_cast<uintptr_t>(bytes));
}

class Errors : public ::testing::Test {
protected:
    Random random = make_random();

    Problem problem(gh_dtype dtype = GH_DTYPE_F32, int64_t batch = 4, int64_t vocab = 12) {
        Problem result = random_problem(random, dtype, batch, vocab);
        result.ce_sum = 1.5f;
        result.z_sum = 2.5f;
        result.n_valid = 3;
        return result;
    }

    // Makes the wrong call and holds it to its promises.
    void expect(Placed &placed, gh_status status, const std::string &message) {
        EXPECT_EQ(call(placed.arguments), status) << gh_last_error();
        const std::string said = gh_last_error();
        EXPECT_NE(said.find(message), std::string::npos) << "\"" << said << "\" lacks \"" << message << "\"";
        EXPECT_EQ(said.find('\n'), std::string::npos) << "more than one line: " << said;
        EXPECT_TRUE(placed.unchanged()) << "a failing call wrote something; " << said;
    }

    // The engine, and on CUDA its context, must have survived every test.
    void TearDown() override { run_and_check(random_problem(random, GH_DTYPE_BF16, 3, 100)); }
};

TEST_F(Errors, UnknownDtype) {
    for (gh_dtype dtype : {-1, 3, 100, INT32_MAX, INT32_MIN}) {
        Placed placed(problem());
        placed.arguments.dtype = dtype;
        expect(placed, GH_ERROR_INVALID_DTYPE, text("dtype = %" PRId32 ":", dtype));
    }
}

TEST_F(Errors, NegativeBatch) {
    for (int64_t batch : {int64_t{-1}, INT64_MIN}) {
        Placed placed(problem());
        placed.arguments.batch = batch;
        expect(placed, GH_ERROR_INVALID_SIZE, text("batch = %" PRId64 ":", batch));
    }
}

TEST_F(Errors, VocabularyBelowOne) {
    for (int64_t vocab : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
        Placed placed(problem());
        placed.arguments.vocab = vocab;
        expect(placed, GH_ERROR_INVALID_SIZE, text("vocab = %" PRId64 ":", vocab));
    }
}

TEST_F(Errors, SizesThatOverflow) {
    const int64_t sizes[][2] = {{INT64_MAX, INT64_MAX},
                                {INT64_MAX, 1},
                                {1, INT64_MAX},
                                {int64_t{1} << 32, int64_t{1} << 32},  // the product is 2^64: 0 if it wrapped
                                {int64_t{1} << 31, int64_t{1} << 32},
                                {(int64_t{1} << 32) + 1, int64_t{1} << 31},
                                {int64_t{3} << 61, 8}};
    for (gh_dtype dtype : all_dtypes)
        for (const auto &size : sizes) {
            Placed placed(problem(dtype));
            placed.arguments.batch = size[0];
            placed.arguments.vocab = size[1];
            expect(placed, GH_ERROR_INVALID_SIZE, text("batch = %" PRId64, size[0]));
            EXPECT_NE(std::string(gh_last_error()).find(text("vocab = %" PRId64, size[1])), std::string::npos)
                << gh_last_error();
        }
}

TEST_F(Errors, LabelsAloneThatOverflow) {
    Placed placed(problem(GH_DTYPE_BF16));
    placed.arguments.batch = int64_t{1} << 61;  // bytes of logits: 2^62; of labels: 2^64
    placed.arguments.vocab = 1;
    expect(placed, GH_ERROR_INVALID_SIZE, "batch = 2305843009213693952");
}

TEST_F(Errors, MultiplierThatIsNotFinite) {
    const float inf = std::numeric_limits<float>::infinity();
    for (float multiplier : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
        Placed placed(problem());
        placed.arguments.z_loss_multiplier = multiplier;
        expect(placed, GH_ERROR_INVALID_VALUE, text("z_loss_multiplier = %g:", static_cast<double>(multiplier)));
    }
}

TEST_F(Errors, RequiredPointerIsNull) {
    Placed no_logits(problem()), no_labels(problem()), no_ce_sum(problem());
    no_logits.arguments.logits = nullptr;
    no_labels.arguments.labels = nullptr;
    no_ce_sum.arguments.ce_sum = nullptr;
    expect(no_logits, GH_ERROR_NULL_POINTER, "logits = NULL:");
    expect(no_labels, GH_ERROR_NULL_POINTER, "labels = NULL:");
    expect(no_ce_sum, GH_ERROR_NULL_POINTER, "ce_sum = NULL:");
}

TEST_F(Errors, PointerIsNotAlignedToItsElement) {
    for (gh_dtype dtype : all_dtypes)
        for (int64_t bytes = 1; bytes < static_cast<int64_t>(element_size(dtype)); bytes++) {
            Placed placed(problem(dtype));
            placed.arguments.logits = displaced(static_cast<char *>(placed.arguments.logits), bytes);
            expect(placed, GH_ERROR_MISALIGNED_POINTER, text("logits = %p:", placed.arguments.logits));
        }
    for (int64_t bytes : {1, 2, 4}) {
        Placed placed(problem());
        placed.arguments.labels = displaced(placed.arguments.labels, bytes);
        expect(placed, GH_ERROR_MISALIGNED_POINTER,
               text("labels = %p:", static_cast<const void *>(placed.arguments.labels)));
    }
    const struct {
        const char *name;
        float *Arguments::*pointer;
    } sums[] = {{"ce_sum", &Arguments::ce_sum}, {"z_sum", &Arguments::z_sum}, {"n_valid", &Arguments::n_valid}};
    for (const auto &sum : sums)
        for (int64_t bytes : {1, 2, 3}) {
            Placed placed(problem());
            float *&pointer = placed.arguments.*sum.pointer;
            pointer = displaced(pointer, bytes);
            expect(placed, GH_ERROR_MISALIGNED_POINTER, text("%s = %p:", sum.name, static_cast<void *>(pointer)));
        }
}

// Each pair of arguments, sharing anything from all of their bytes to one element at either end.
class Overlap : public Errors {
protected:
    void expect_overlap(Placed &placed, const char *one, const char *other) {
        expect(placed, GH_ERROR_OVERLAP, "overlaps");
        const std::string said = gh_last_error();
        EXPECT_NE(said.find(text("%s = 0x", one)), std::string::npos) << said;
        EXPECT_NE(said.find(text("%s = 0x", other)), std::string::npos) << said;
    }
};

TEST_F(Overlap, LabelsWithLogits) {
    for (gh_dtype dtype : all_dtypes) {
        const auto bytes = static_cast<int64_t>(4 * 12 * element_size(dtype));
        // From the last label on the first logit to the first label on the last.
        for (int64_t shift : {int64_t{-3 * 8}, int64_t{0}, int64_t{8}, bytes - 8}) {
            Placed placed(problem(dtype));
            placed.arguments.labels = displaced(static_cast<const int64_t *>(placed.arguments.logits), shift);
            expect_overlap(placed, "labels", "logits");
        }
    }
}

TEST_F(Overlap, SumsWithLogitsAndLabels) {
    const struct {
        const char *name;
        float *Arguments::*pointer;
    } sums[] = {{"ce_sum", &Arguments::ce_sum}, {"z_sum", &Arguments::z_sum}, {"n_valid", &Arguments::n_valid}};
    for (const auto &sum : sums) {
        for (gh_dtype dtype : all_dtypes)
            for (int64_t shift : {int64_t{0}, int64_t{16}, static_cast<int64_t>(4 * 12 * element_size(dtype)) - 4}) {
                Placed placed(problem(dtype));
                placed.arguments.*sum.pointer = displaced(static_cast<float *>(placed.arguments.logits), shift);
                expect_overlap(placed, sum.name, "logits");
            }
        for (int64_t shift : {0, 4, 28}) {
            Placed placed(problem());
            auto *labels = const_cast<int64_t *>(placed.arguments.labels);
            placed.arguments.*sum.pointer = displaced(reinterpret_cast<float *>(labels), shift);
            expect_overlap(placed, sum.name, "labels");
        }
    }
    // Half of a float on the last 16-bit element, and half on the first.
    Placed last(problem(GH_DTYPE_BF16, 1, 3)), first(problem(GH_DTYPE_F16, 1, 3));
    last.arguments.ce_sum = displaced(static_cast<float *>(last.arguments.logits), 4);
    expect_overlap(last, "ce_sum", "logits");
    first.arguments.z_sum = static_cast<float *>(first.arguments.logits);
    first.arguments.logits = displaced(static_cast<char *>(first.arguments.logits), 2);
    expect_overlap(first, "z_sum", "logits");
}

TEST_F(Overlap, SumsWithEachOther) {
    Placed z(problem()), n(problem()), both(problem());
    z.arguments.z_sum = z.arguments.ce_sum;
    n.arguments.n_valid = n.arguments.ce_sum;
    both.arguments.n_valid = both.arguments.z_sum;
    expect_overlap(z, "z_sum", "ce_sum");
    expect_overlap(n, "n_valid", "ce_sum");
    expect_overlap(both, "n_valid", "z_sum");
}

// Everything in one block of memory, end to end: touching is not overlapping.
TEST_F(Overlap, NeighboursDoNotOverlap) {
    const Problem expected = random_problem(random, GH_DTYPE_F32, 2, 4);
    Guarded block(engine(), 8 * 4 + 2 * 8 + 3 * 4);
    std::vector<unsigned char> bytes(block.size());
    std::memcpy(bytes.data(), expected.labels.data(), 16);
    std::memcpy(&bytes[20], expected.logits.data(), 32);  // one sum before, two behind
    block.upload(bytes.data());
    auto *base = static_cast<char *>(block.data());
    const Arguments arguments{base + 20,
                              GH_DTYPE_F32,
                              reinterpret_cast<int64_t *>(base),
                              2,
                              4,
                              0,
                              -100,
                              reinterpret_cast<float *>(base + 16),
                              reinterpret_cast<float *>(base + 52),
                              reinterpret_cast<float *>(base + 56),
                              engine().stream()};
    ASSERT_EQ(call(arguments), GH_SUCCESS) << gh_last_error();
    engine().finish();
    block.download(bytes.data());
    Outcome outcome;
    outcome.dlogits.assign(&bytes[20], &bytes[20] + 32);
    std::memcpy(&outcome.ce_sum, &bytes[16], 4);
    std::memcpy(&outcome.z_sum, &bytes[52], 4);
    std::memcpy(&outcome.n_valid, &bytes[56], 4);
    check(expected, outcome);
    EXPECT_TRUE(block.guards_intact());
}

TEST_F(Errors, AnEmptyBatchSucceedsAndTouchesNothing) {
    for (gh_dtype dtype : all_dtypes) {
        Placed placed(problem(dtype));
        placed.arguments.batch = 0;
        EXPECT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
        placed.arguments.logits = nullptr;
        placed.arguments.labels = nullptr;
        EXPECT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
        placed.arguments.z_sum = nullptr;
        placed.arguments.n_valid = nullptr;
        EXPECT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
        EXPECT_TRUE(placed.unchanged());
    }
    // No rows take no memory, wherever the pointer to them points.
    Placed within_a_sum(problem(GH_DTYPE_F16));
    within_a_sum.arguments.batch = 0;
    within_a_sum.arguments.logits = displaced(static_cast<void *>(within_a_sum.arguments.ce_sum), 2);
    EXPECT_EQ(call(within_a_sum.arguments), GH_SUCCESS) << gh_last_error();
    EXPECT_TRUE(within_a_sum.unchanged());
}

// An empty batch excuses the pointers to rows, and nothing else.
TEST_F(Errors, AnEmptyBatchIsStillChecked) {
    Placed dtype(problem()), vocab(problem()), multiplier(problem()), ce_sum(problem());
    for (Placed *placed : {&dtype, &vocab, &multiplier, &ce_sum}) placed->arguments.batch = 0;
    dtype.arguments.dtype = 3;
    vocab.arguments.vocab = 0;
    multiplier.arguments.z_loss_multiplier = std::numeric_limits<float>::infinity();
    ce_sum.arguments.ce_sum = nullptr;
    expect(dtype, GH_ERROR_INVALID_DTYPE, "dtype = 3:");
    expect(vocab, GH_ERROR_INVALID_SIZE, "vocab = 0:");
    expect(multiplier, GH_ERROR_INVALID_VALUE, "z_loss_multiplier = inf:");
    expect(ce_sum, GH_ERROR_NULL_POINTER, "ce_sum = NULL:");
}

TEST_F(Errors, ASuccessLeavesTheLastErrorAsItWas) {
    Placed wrong(problem()), right(problem());
    wrong.arguments.vocab = -7;
    expect(wrong, GH_ERROR_INVALID_SIZE, "vocab = -7:");
    const std::string before = gh_last_error();
    ASSERT_EQ(call(right.arguments), GH_SUCCESS);
    EXPECT_EQ(gh_last_error(), before);
}

}  // namespace
}  // namespace test
