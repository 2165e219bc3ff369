// One call's input, held in ordinary host memory whatever engine will run it, and its outcome.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "dtypes.h"

namespace test {

using Random = std::mt19937_64;

// The seed of this run: from GREYHOUND_TEST_SEED, or fresh. Printed when the program starts.
uint64_t run_seed();

// A generator for one test: depends on the run's seed and on the test's full name.
Random make_random();

// What every call is given.
struct Rows {
    Rows(gh_dtype type, int64_t rows, int64_t columns);

    gh_dtype dtype;
    int64_t batch, vocab;
    std::vector<unsigned char> logits;  // bits of [batch, vocab]
    std::vector<int64_t> labels;        // all 0 at first
    float z_loss_multiplier = 0;
    int64_t ignore_index = -100;
    int64_t offset = 0;  // elements between an address aligned to 256 bytes and logits

    double logit(int64_t row, int64_t column) const;
    void set(int64_t row, int64_t column, double value);  // rounded to dtype
    void fill(int64_t row, double value);

    std::string describe() const;
};

// A call of gh_cross_entropy_fwd_bwd.
struct Problem : Rows {
    using Rows::Rows;

    float ce_sum = 0, z_sum = 0, n_valid = 0;  // what the accumulators hold before the call
    bool with_z_sum = true, with_n_valid = true;
};

struct Outcome {
    gh_status status = GH_SUCCESS;
    std::vector<unsigned char> dlogits;
    float ce_sum = 0, z_sum = 0, n_valid = 0;
};

uint32_t load_bits(const std::vector<unsigned char> &elements, gh_dtype dtype, int64_t index);
void store_bits(std::vector<unsigned char> &elements, gh_dtype dtype, int64_t index, uint32_t bits);

// Normal logits with the given deviation and uniform labels.
void randomize(Random &random, Rows &rows, double deviation = 1);
Problem random_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, double deviation = 1);

// Makes each row an ignored one, with a probability of 1 in `n`.
void ignore_one_in(Random &random, int64_t n, Rows &rows);

int64_t uniform(Random &random, int64_t lowest, int64_t highest);  // both included

}  // namespace test
