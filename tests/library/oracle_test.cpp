// The oracle itself, so that the other tests stand on firm ground.
#include "oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "dtypes.h"

namespace test {
namespace {

uint32_t float_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

TEST(Dtypes, EveryNarrowPatternSurvivesTheRoundTrip) {
    for (gh_dtype dtype : {GH_DTYPE_F16, GH_DTYPE_BF16})
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            const double value = decode(dtype, bits);
            if (std::isnan(value))
                ASSERT_TRUE(std::isnan(decode(dtype, encode(dtype, value)))) << bits;
            else
                ASSERT_EQ(encode(dtype, value), bits) << dtype_name(dtype);
        }
}

// The midpoint of two neighbours goes to the even one; anything beyond it, however little, goes to
// the nearer one. A conversion by way of float would lose that little.
TEST(Dtypes, RoundToNearestEvenInOneStep) {
    for (gh_dtype dtype : {GH_DTYPE_F16, GH_DTYPE_BF16})
        for (uint32_t bits = 0; bits < encode(dtype, largest(dtype)); bits++) {
            const double low = decode(dtype, bits), high = decode(dtype, bits + 1), middle = (low + high) / 2;
            ASSERT_EQ(encode(dtype, middle), bits + (bits & 1)) << dtype_name(dtype);
            ASSERT_EQ(encode(dtype, std::nextafter(middle, low)), bits) << dtype_name(dtype);
            ASSERT_EQ(encode(dtype, std::nextafter(middle, high)), bits + 1) << dtype_name(dtype);
            ASSERT_EQ(encode(dtype, -middle), encode(dtype, middle) | 0x8000u) << dtype_name(dtype);
        }
}

TEST(Dtypes, Fp32ConversionAgreesWithTheProcessor) {
    Random random = make_random();
    for (int i = 0; i < 200000; i++) {
        double value;
        const uint64_t bits = random();
        std::memcpy(&value, &bits, sizeof value);
        // Random doubles seldom fall into float's range: bring half of them there, subnormals included.
        int exponent;
        if (i & 1) value = std::ldexp(std::frexp(value, &exponent), static_cast<int>(uniform(random, -155, 130)));
        if (std::isnan(value)) continue;
        ASSERT_EQ(encode(GH_DTYPE_F32, value), float_bits(static_cast<float>(value))) << value;
    }
}

TEST(Dtypes, KnownPatterns) {
    EXPECT_EQ(encode(GH_DTYPE_F16, 65504), 0x7bffu);
    EXPECT_EQ(encode(GH_DTYPE_F16, 65520), 0x7c00u);  // the midpoint to 2^16 overflows
    EXPECT_EQ(encode(GH_DTYPE_F16, std::nextafter(65520.0, 0)), 0x7bffu);
    EXPECT_EQ(encode(GH_DTYPE_F16, 0x1p-24), 0x0001u);
    EXPECT_EQ(encode(GH_DTYPE_F16, 0x1p-25), 0x0000u);
    EXPECT_EQ(encode(GH_DTYPE_BF16, 1.0), 0x3f80u);
    EXPECT_EQ(encode(GH_DTYPE_BF16, -INFINITY), 0xff80u);
    EXPECT_EQ(encode(GH_DTYPE_BF16, -0.0), 0x8000u);
    EXPECT_EQ(decode(GH_DTYPE_BF16, 0x0001), 0x1p-133);
    EXPECT_EQ(largest(GH_DTYPE_F32), 3.4028234663852886e38);
}

// Two classes have a closed form: p = 1 / (1 + exp(b - a)).
TEST(Oracle, TwoClasses) {
    Problem problem(GH_DTYPE_F32, 1, 2);
    problem.z_loss_multiplier = 0.25f;
    problem.set(0, 0, 2);
    problem.set(0, 1, -1);
    const Row row = reference_row(problem, 0);
    const double p = 1 / (1 + std::exp(-3.0)), lse = 2 + std::log1p(std::exp(-3.0));
    EXPECT_NEAR(row.lse, lse, 1e-15);
    EXPECT_NEAR(row.loss, lse - 2, 1e-16);
    EXPECT_NEAR(row.gradient[0], p * (1 + 0.5 * lse) - 1, 1e-15);
    EXPECT_NEAR(row.gradient[1], (1 - p) * (1 + 0.5 * lse), 1e-15);
}

// The gradient is the derivative of loss + z_loss_multiplier * lse^2: the central difference says so too.
TEST(Oracle, GradientIsTheDerivative) {
    Random random = make_random();
    Problem problem = random_problem(random, GH_DTYPE_F32, 1, 11);
    problem.z_loss_multiplier = 0.125f;
    const Row row = reference_row(problem, 0);
    const double h = 0x1p-10;
    for (int64_t j = 0; j < problem.vocab; j++) {
        const double x = std::round(problem.logit(0, j) / h) * h;  // so that x + h and x - h are exact in fp32
        problem.set(0, j, x);
        const Row here = reference_row(problem, 0);
        auto objective = [&](double value) {
            problem.set(0, j, value);
            const Row moved = reference_row(problem, 0);
            return moved.loss + 0.125 * moved.lse * moved.lse;
        };
        const double slope = (objective(x + h) - objective(x - h)) / (2 * h);
        problem.set(0, j, x);
        // The third derivative is of order 1: h^2 / 6 bounds the difference's own error.
        EXPECT_NEAR(here.gradient[static_cast<size_t>(j)], slope, h * h) << "seed " << run_seed();
    }
}

}  // namespace
}  // namespace test
