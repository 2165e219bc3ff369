// More than 2^31 and 2^32 elements in one call: every row and every column is addressed right.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "cuda.h"
#include "scale_call.h"

namespace test {
namespace {

// Device memory for a call whose logits do not fit in a Problem.
class LargeCall {
public:
    LargeCall(gh_dtype dtype, int64_t batch, int64_t vocab)
        : bytes(static_cast<size_t>(batch * vocab) * element_size(dtype)),
          labels_bytes(static_cast<size_t>(batch) * sizeof(int64_t)) {
        size_t free = 0, total = 0;
        CUDA_CHECK(cudaMemGetInfo(&free, &total));
        fits = free > bytes + labels_bytes + (size_t{1} << 30);
        if (!fits) return;
        arguments = {engine().allocate(bytes),
                     dtype,
                     static_cast<int64_t *>(engine().allocate(labels_bytes)),
                     batch,
                     vocab,
                     0,
                     -100,
                     sum(),
                     sum(),
                     sum(),
                     engine().stream()};
    }
    ~LargeCall() {
        if (!fits) return;
        for (void *memory : {arguments.logits, static_cast<void *>(const_cast<int64_t *>(arguments.labels)),
                             static_cast<void *>(arguments.ce_sum), static_cast<void *>(arguments.z_sum),
                             static_cast<void *>(arguments.n_valid)})
            engine().release(memory);
    }
    LargeCall(const LargeCall &) = delete;
    LargeCall &operator=(const LargeCall &) = delete;

    void set_labels(const std::vector<int64_t> &labels) {
        engine().upload(const_cast<int64_t *>(arguments.labels), labels.data(), labels_bytes);
    }
    void read(void *to, int64_t element, int64_t count) {
        const size_t size = element_size(arguments.dtype);
        engine().download(to, static_cast<char *>(arguments.logits) + static_cast<size_t>(element) * size,
                          static_cast<size_t>(count) * size);
    }
    static float value(const float *sum) {
        float result;
        engine().download(&result, sum, sizeof result);
        return result;
    }

    const size_t bytes, labels_bytes;
    bool fits;
    Arguments arguments{};

private:
    static float *sum() {
        auto *result = static_cast<float *>(engine().allocate(sizeof(float)));
        const float zero = 0;
        engine().upload(result, &zero, sizeof zero);
        return result;
    }
};

// Rows repeat with a period that is prime to everything an engine might cut a batch into. The oracle
// then needs one period alone, and still checks rows all over the tensor.
void run_tall(gh_dtype dtype, int64_t batch, int64_t vocab) {
    LargeCall large(dtype, batch, vocab);
    if (!large.fits) GTEST_SKIP() << "the device has too little memory: needs " << large.bytes << " bytes";
    constexpr int64_t period = 13;
    Random random = make_random();
    Problem block = random_problem(random, dtype, period, vocab);
    block.labels[5] = block.ignore_index;
    SCOPED_TRACE(block.describe() + ", repeated to a batch of " + std::to_string(batch));
    auto *logits = static_cast<char *>(large.arguments.logits);
    engine().upload(logits, block.logits.data(), block.logits.size());
    for (size_t filled = block.logits.size(); filled < large.bytes;) {
        const size_t step = std::min(filled, large.bytes - filled);
        CUDA_CHECK(cudaMemcpyAsync(logits + filled, logits, step, cudaMemcpyDeviceToDevice, engine().stream()));
        filled += step;
    }
    std::vector<int64_t> labels(static_cast<size_t>(batch));
    for (size_t i = 0; i < labels.size(); i++) labels[i] = block.labels[i % period];
    large.set_labels(labels);
    ASSERT_EQ(call(large.arguments), GH_SUCCESS) << gh_last_error();
    engine().finish();

    std::vector<Row> rows;
    for (int64_t i = 0; i < period; i++) rows.push_back(reference_row(block, i));

    double ce = 0, ce_error = 0, counted = 0;
    for (int64_t i = 0; i < batch; i++) {
        const Row &row = rows[static_cast<size_t>(i % period)];
        ce += row.loss;
        ce_error += row.loss_error;
        counted += row.counted;
    }
    EXPECT_NEAR(LargeCall::value(large.arguments.ce_sum), ce, ce_error + u * counted * ce);
    EXPECT_EQ(LargeCall::value(large.arguments.n_valid), counted);

    // The first and last rows, those at which 32-bit arithmetic on elements or bytes would wrap, and random ones.
    std::vector<int64_t> samples = {0, 1, batch / 2, batch - 2, batch - 1};
    for (int bits = 30; bits <= 33; bits++)
        for (int64_t near = -1; near <= 1; near++) samples.push_back((int64_t{1} << bits) / vocab + near);
    for (int k = 0; k < 30; k++) samples.push_back(uniform(random, 0, batch - 1));
    std::vector<unsigned char> got(static_cast<size_t>(vocab) * element_size(dtype));
    for (int64_t i : samples) {
        if (i >= batch) continue;
        large.read(got.data(), i * vocab, vocab);
        ASSERT_TRUE(check_gradient(block, rows[static_cast<size_t>(i % period)], i % period, got, 0)) << "row " << i;
    }
}

TEST(Large, MoreThan2To31Elements) {
    run_tall(GH_DTYPE_BF16, 32771, 65537);
}

TEST(Large, MoreThan2To32Elements) {
    run_tall(GH_DTYPE_BF16, 32771, 131101);
}

TEST(Large, MoreThan2To32ElementsOfFp32) {
    run_tall(GH_DTYPE_F32, 32771, 131101);
}

TEST(Large, MoreThan2To32ElementsInShortRows) {
    run_tall(GH_DTYPE_F16, 16000057, 271);
}

// A row of more than 2^31 and 2^32 columns: zeros, and -5 in the last one. Sums of ones are exact as
// long as a partial sum stays below 2^24, and adding partial sums rounds by u each.
void run_wide(int64_t vocab, int64_t label) {
    LargeCall large(GH_DTYPE_BF16, 1, vocab);
    if (!large.fits) GTEST_SKIP() << "the device has too little memory: needs " << large.bytes << " bytes";
    CUDA_CHECK(cudaMemsetAsync(large.arguments.logits, 0, large.bytes, engine().stream()));
    const int64_t last = vocab - 1;
    const auto minus_five = static_cast<uint16_t>(encode(GH_DTYPE_BF16, -5));
    engine().upload(static_cast<uint16_t *>(large.arguments.logits) + last, &minus_five, sizeof minus_five);
    large.set_labels({label});
    ASSERT_EQ(call(large.arguments), GH_SUCCESS) << gh_last_error();
    engine().finish();

    const double lse = std::log(static_cast<double>(vocab - 1) + std::exp(-5.0));
    const double error = 64 * u;
    const double loss = lse + (label == last ? 5 : 0);
    EXPECT_NEAR(LargeCall::value(large.arguments.ce_sum), loss, error * loss);
    EXPECT_NEAR(LargeCall::value(large.arguments.z_sum), lse * lse, 2 * error * lse * lse);
    EXPECT_EQ(LargeCall::value(large.arguments.n_valid), 1.0f);

    auto expect_column = [&](int64_t column) {
        uint16_t bits;
        large.read(&bits, column, 1);
        const double p = std::exp((column == last ? -5 : 0) - lse);
        const double exact = column == label ? p - 1 : p, got = decode(GH_DTYPE_BF16, bits);
        EXPECT_GE(got, decode(GH_DTYPE_BF16, encode(GH_DTYPE_BF16, exact - error * p))) << "column " << column;
        EXPECT_LE(got, decode(GH_DTYPE_BF16, encode(GH_DTYPE_BF16, exact + error * p))) << "column " << column;
    };
    Random random = make_random();
    for (int64_t column : {int64_t{0}, label, last - 1, last}) expect_column(column);
    for (int bits = 30; bits <= 32; bits++)
        for (int64_t near = -1; near <= 1; near++)
            if ((int64_t{1} << bits) + near < vocab) expect_column((int64_t{1} << bits) + near);
    for (int k = 0; k < 200; k++) expect_column(uniform(random, 0, vocab - 1));
}

TEST(Large, ARowOfMoreThan2To31Columns) {
    run_wide((int64_t{1} << 31) + 5, (int64_t{1} << 31) + 1);
}

TEST(Large, ARowOfMoreThan2To32Columns) {
    run_wide((int64_t{1} << 32) + 13, (int64_t{1} << 32) + 3);
    run_wide((int64_t{1} << 32) + 13, 3);  // the low 32 bits of the label above
    run_wide((int64_t{1} << 32) + 13, (int64_t{1} << 32) + 12);
}

// Random bytes, repeated with a period that no row and no tile is a multiple of.
void run_scale(gh_dtype dtype, int64_t batch, int64_t vocab, int64_t padding) {
    LargeCall large(dtype, batch, vocab + padding);
    if (!large.fits) GTEST_SKIP() << "the device has too little memory: needs " << large.bytes << " bytes";
    Random random = make_random();
    const float dloss = -1.0f / 3;
    const ScaleProblem block = random_scale_problem(random, dtype, 1, 1000003, dloss);
    auto *dlogits = static_cast<char *>(large.arguments.logits);
    engine().upload(dlogits, block.dlogits.data(), block.dlogits.size());
    for (size_t filled = block.dlogits.size(); filled < large.bytes;) {
        const size_t step = std::min(filled, large.bytes - filled);
        CUDA_CHECK(cudaMemcpyAsync(dlogits + filled, dlogits, step, cudaMemcpyDeviceToDevice, engine().stream()));
        filled += step;
    }
    engine().upload(large.arguments.ce_sum, &dloss, sizeof dloss);
    ASSERT_EQ(
        gh_scale_dlogits(dlogits, dtype, batch, vocab, vocab + padding, large.arguments.ce_sum, engine().stream()),
        GH_SUCCESS)
        << gh_last_error();

    constexpr int64_t sample = 100000;
    const int64_t elements = (batch - 1) * (vocab + padding) + vocab;
    std::vector<int64_t> samples = {0, elements - sample};
    for (int bits = 30; bits <= 32; bits++) samples.push_back((int64_t{1} << bits) - sample / 2);
    for (int k = 0; k < 30; k++) samples.push_back(uniform(random, 0, elements - sample));
    std::vector<unsigned char> got(sample * element_size(dtype));
    for (int64_t first : samples) {
        if (first + sample > elements) continue;
        large.read(got.data(), first, sample);
        for (int64_t i = 0; i < sample; i++) {
            const uint32_t before = load_bits(block.dlogits, dtype, (first + i) % block.vocab);
            const bool is_padding = (first + i) % (vocab + padding) >= vocab;
            const uint32_t expected = is_padding ? before : scaled(dtype, before, dloss);
            const uint32_t bits = load_bits(got, dtype, i);
            const bool nans = !is_padding && std::isnan(decode(dtype, expected)) && std::isnan(decode(dtype, bits));
            ASSERT_TRUE(bits == expected || nans) << block.describe() << ": element " << first + i;
        }
    }
}

TEST(Large, ScalingMoreThan2To32Elements) {
    run_scale(GH_DTYPE_BF16, 32771, 131101, 0);
    run_scale(GH_DTYPE_BF16, 32771, 131101, 3);
    run_scale(GH_DTYPE_F16, 16000057, 271, 1);
}

}  // namespace
}  // namespace test
