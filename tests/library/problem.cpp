#include "problem.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace test {

uint64_t run_seed() {
    static const uint64_t seed = [] {
        if (const char *text = std::getenv("GREYHOUND_TEST_SEED")) return uint64_t{std::strtoull(text, nullptr, 0)};
        return uint64_t{std::random_device{}()};
    }();
    return seed;
}

Random make_random() {
    const auto *info = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string name = std::string(info->test_suite_name()) + "." + info->name();
    std::seed_seq words(name.begin(), name.end());
    uint32_t from_name[2];
    words.generate(from_name, from_name + 2);
    return Random(run_seed() ^ (uint64_t{from_name[0]} << 32 | from_name[1]));
}

Rows::Rows(gh_dtype type, int64_t rows, int64_t columns)
    : dtype(type),
      batch(rows),
      vocab(columns),
      logits(static_cast<size_t>(rows * columns) * element_size(type)),
      labels(static_cast<size_t>(rows)) {}

double Rows::logit(int64_t row, int64_t column) const {
    return decode(dtype, load_bits(logits, dtype, row * vocab + column));
}

void Rows::set(int64_t row, int64_t column, double value) {
    store_bits(logits, dtype, row * vocab + column, encode(dtype, value));
}

void Rows::fill(int64_t row, double value) {
    const uint32_t bits = encode(dtype, value);
    for (int64_t column = 0; column < vocab; column++) store_bits(logits, dtype, row * vocab + column, bits);
}

std::string Rows::describe() const {
    std::ostringstream text;
    text << dtype_name(dtype) << " [" << batch << ", " << vocab << "], offset " << offset << ", z_loss_multiplier "
         << z_loss_multiplier << ", ignore_index " << ignore_index << ", seed " << run_seed();
    return text.str();
}

uint32_t load_bits(const std::vector<unsigned char> &elements, gh_dtype dtype, int64_t index) {
    uint32_t wide;
    uint16_t narrow;
    if (dtype == GH_DTYPE_F32) {
        std::memcpy(&wide, &elements[static_cast<size_t>(index) * 4], 4);
        return wide;
    }
    std::memcpy(&narrow, &elements[static_cast<size_t>(index) * 2], 2);
    return narrow;
}

void store_bits(std::vector<unsigned char> &elements, gh_dtype dtype, int64_t index, uint32_t bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    if (dtype == GH_DTYPE_F32)
        std::memcpy(&elements[static_cast<size_t>(index) * 4], &bits, 4);
    else
        std::memcpy(&elements[static_cast<size_t>(index) * 2], &narrow, 2);
}

void randomize(Random &random, Rows &rows, double deviation) {
    std::normal_distribution<double> normal(0, deviation);
    for (int64_t i = 0; i < rows.batch * rows.vocab; i++)
        store_bits(rows.logits, rows.dtype, i, encode(rows.dtype, normal(random)));
    for (int64_t &label : rows.labels) label = uniform(random, 0, rows.vocab - 1);
}

Problem random_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, double deviation) {
    Problem problem(dtype, batch, vocab);
    randomize(random, problem, deviation);
    return problem;
}

void ignore_one_in(Random &random, int64_t n, Rows &rows) {
    for (int64_t &label : rows.labels)
        if (uniform(random, 1, n) == 1) label = rows.ignore_index;
}

int64_t uniform(Random &random, int64_t lowest, int64_t highest) {
    return std::uniform_int_distribution<int64_t>(lowest, highest)(random);
}

}  // namespace test
