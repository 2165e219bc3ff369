// Logits and labels for host memory: fresh for each seed, the same for the same seed.
#pragma once

#include <cstdint>
#include <vector>

#include "cases.h"

namespace bench {

constexpr int64_t ignore_index = -100;

// Standard normal values, rounded to dtype.
void fill_normal(void *logits, gh_dtype dtype, int64_t elements, uint64_t seed);

// Upstream gradients or class weights: uniform in [0.5, 1.5).
std::vector<float> random_factors(int64_t count, uint64_t seed);

// Labels for `rows` rows of a case. Exactly round(rows * ignored) of them are ignore_index, at random places.
std::vector<int64_t> random_labels(const Case &c, int64_t rows, uint64_t seed);

}  // namespace bench
