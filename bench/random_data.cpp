#include "random_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace bench {
namespace {

// splitmix64: a good 64-bit hash of a counter, so that any element can be drawn on its own.
uint64_t hash(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

float normal(uint64_t seed, int64_t i) {
    const uint64_t bits = hash(hash(seed) + static_cast<uint64_t>(i));
    const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // in (0, 1], so that its logarithm is finite
    const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    return std::sqrt(-2 * std::log(u)) * std::cos(6.2831853f * v);
}

uint16_t to_bf16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

void fill_normal(void *logits, gh_dtype dtype, int64_t elements, uint64_t seed) {
#pragma omp parallel for
    for (int64_t i = 0; i < elements; i++) {
        const float value = normal(seed, i);
        if (dtype == GH_DTYPE_F32)
            static_cast<float *>(logits)[i] = value;
        else if (dtype == GH_DTYPE_F16)
            static_cast<_Float16 *>(logits)[i] = static_cast<_Float16>(value);
        else
            static_cast<uint16_t *>(logits)[i] = to_bf16(value);
    }
}

std::vector<float> random_factors(int64_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> factor(0.5f, 1.5f);
    std::vector<float> factors(static_cast<size_t>(count));
    for (float &f : factors) f = factor(random);
    return factors;
}

std::vector<int64_t> random_labels(const Case &c, int64_t rows, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<int64_t> label(0, c.vocab - 1);
    std::vector<int64_t> labels(static_cast<size_t>(rows));
    for (int64_t &y : labels) y = label(random);
    const auto n_ignored = static_cast<int64_t>(std::llround(c.ignored * static_cast<double>(rows)));
    std::fill(labels.begin(), labels.begin() + n_ignored, ignore_index);
    std::shuffle(labels.begin(), labels.end(), random);
    return labels;
}

}  // namespace bench
