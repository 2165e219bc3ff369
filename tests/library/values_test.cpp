// Loss and gradient equal the oracle's, within what fp32 arithmetic explains, for every dtype, size,
// alignment and kind of row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "check.h"
#include "engine.h"
#include "of_every_dtype.h"

namespace test {
namespace {

class Values : public OfEveryDtype {};

INSTANTIATE_OF_EVERY_DTYPE(Values);

constexpr int64_t vocabularies[] = {1,     2,     3,      5,      7,      8,      9,      15,     16,     17,
                                    31,    33,    127,    128,    129,    255,    257,    1000,   1023,   1024,
                                    1025,  4095,  4096,   4097,   8191,   8192,   8193,   16384,  32000,  50257,
                                    50304, 65536, 100352, 100353, 128256, 151936, 200064, 262144, 300000, 300007};

TEST_P(Values, EveryVocabulary) {
    for (int64_t vocab : vocabularies) {
        const int64_t batch = std::clamp<int64_t>(20000 / vocab, 1, 30);
        Problem problem = random_problem(random, dtype, batch, vocab, vocab % 2 ? 1 : 10);
        problem.offset = uniform(random, 0, 7);
        run_and_check(problem);
    }
}

// Around multiples of the number of processors and of clusters, and more rows than either.
TEST_P(Values, EveryBatch) {
    for (int64_t batch : {1, 2, 3, 63, 64, 65, 66, 67, 131, 132, 133, 264, 265, 1000})
        for (int64_t vocab : {1, 7, 128, 1000}) {
            Problem problem = random_problem(random, dtype, batch, vocab);
            problem.offset = batch % 8;
            run_and_check(problem);
        }
    run_and_check(random_problem(random, dtype, 67, 8193));
    run_and_check(random_problem(random, dtype, 133, 4096));
    run_and_check(random_problem(random, dtype, 20000, 3));
}

TEST_P(Values, LargeVocabulariesWithMoreRowsThanProcessors) {
    const int64_t shapes[][2] = {{67, 50257}, {133, 32000}, {270, 16384}};
    const auto &shape = shapes[dtype];
    run_and_check(random_problem(random, dtype, shape[0], shape[1], 3));
}

// Any element-aligned address is legal, and what lies around the logits is left alone.
TEST_P(Values, EveryOffsetFromAnAlignedAddress) {
    for (int64_t vocab : {1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 129, 1000, 4097, 8192})
        for (int64_t offset = 0; offset < 8; offset++) {
            Problem problem = random_problem(random, dtype, 3, vocab);
            problem.offset = offset;
            run_and_check(problem);
        }
}

using Shape = double (*)(double position, double noise);  // position in [0, 1)

TEST_P(Values, RowsThatAreHardForAnOnlineMaximum) {
    const Shape shapes[] = {
        [](double t, double) { return 40 * t - 20; },                        // ascending: a new maximum at each step
        [](double t, double) { return 20 - 40 * t; },                        // descending
        [](double t, double) { return 40 * std::fabs(2 * t - 1); },          // both
        [](double t, double) { return t < 0.999 ? -80.0 : 10.0; },           // most of the row is negligible
        [](double, double noise) { return noise > 3 ? 30.0 : -1.3; },        // equal but for a few
        [](double, double noise) { return 300 * noise; },                    // all but one-hot
        [](double, double noise) { return noise > 0 ? 10000.0 : -10000.0; }  // exp underflows between the two
    };
    for (int64_t vocab : {1000, 32768, 50257}) {
        Problem problem = random_problem(random, dtype, static_cast<int64_t>(std::size(shapes)), vocab);
        for (int64_t i = 0; i < problem.batch; i++)
            for (int64_t j = 0; j < vocab; j++)
                problem.set(i, j, shapes[i](static_cast<double>(j) / static_cast<double>(vocab), problem.logit(i, j)));
        run_and_check(problem);
    }
}

// x - max is formed before anything else, so that an offset common to a row costs loss and gradient no
// accuracy: the oracle's allowance for them does not grow with it.
TEST_P(Values, ACommonOffsetCostsNoAccuracy) {
    for (double offset : {1000.0, -1000.0, 1e6, -1e6}) {
        if (std::fabs(offset) > largest(dtype)) continue;
        Problem problem = random_problem(random, dtype, 4, 5003);
        for (int64_t i = 0; i < problem.batch; i++)
            for (int64_t j = 0; j < problem.vocab; j++) problem.set(i, j, problem.logit(i, j) + offset);
        run_and_check(problem);
    }
}

// The target's loss and gradient come from the other classes' sum, so nothing cancels.
TEST_P(Values, ANearlyCertainTargetKeepsItsTinyLoss) {
    for (int64_t vocab : {2, 8, 1000, 50257})
        for (double lead : {20.0, 30.0, 45.0, 60.0})
            for (int64_t label : {int64_t{0}, vocab / 2, vocab - 1}) {
                Problem problem = random_problem(random, dtype, 1, vocab);
                problem.labels[0] = label;
                problem.set(0, label, lead);
                const Outcome outcome = run(problem);
                check(problem, outcome);
                const Row row = reference_row(problem, 0);
                EXPECT_NEAR(outcome.ce_sum, row.loss, 1e-5 * row.loss) << problem.describe();
                if (dtype == GH_DTYPE_F32) {
                    const double got = decode(dtype, load_bits(outcome.dlogits, dtype, label));
                    const double expected = row.gradient[static_cast<size_t>(label)];
                    EXPECT_NEAR(got, expected, 1e-5 * std::fabs(expected)) << problem.describe();
                }
            }
}

TEST_P(Values, ANearlyImpossibleTarget) {
    for (double lag : {50.0, 87.0, 88.0, 100.0, 104.0, 1000.0, 60000.0}) {
        Problem problem = random_problem(random, dtype, 3, 1000);
        for (int64_t i = 0; i < problem.batch; i++) problem.set(i, problem.labels[static_cast<size_t>(i)], -lag);
        run_and_check(problem);
    }
}

TEST_P(Values, ZLossOfEverySizeAndSign) {
    for (float multiplier : {1e-4f, -1e-4f, 0.5f, -0.05f, 1000.0f, -1e6f, 1e-30f})
        for (double deviation : {1.0, 10.0}) {
            Problem problem = random_problem(random, dtype, 9, 1021, deviation);
            problem.z_loss_multiplier = multiplier;
            run_and_check(problem);
            for (int64_t i = 0; i < problem.batch; i++)  // lse far below 0 turns the scale's sign
                for (int64_t j = 0; j < problem.vocab; j++) problem.set(i, j, problem.logit(i, j) - 64);
            run_and_check(problem);
        }
}

// z_sum is the plain sum of lse^2: the multiplier acts on the gradient alone.
TEST_P(Values, TheMultiplierDoesNotScaleZSum) {
    Problem problem = random_problem(random, dtype, 5, 257);
    const Outcome without = run(problem);
    problem.z_loss_multiplier = 3;
    const Outcome with = run(problem);
    EXPECT_NEAR(with.z_sum, without.z_sum, 2 * 5 * u * without.z_sum) << problem.describe();
    EXPECT_NEAR(with.ce_sum, without.ce_sum, 2 * 5 * u * without.ce_sum) << problem.describe();
}

// A gradient is misrounded only if a midpoint between two neighbours lies between the exact and the
// computed value. Where these are 8 u = 2^-21 apart on average, and neighbours at least 2^-11 (fp16),
// relative to the value, that happens to at most 2^-10, or 0.1%, of the elements. Wider errors fail.
TEST_P(Values, NarrowGradientsAreNearlyAlwaysCorrectlyRounded) {
    if (dtype == GH_DTYPE_F32) GTEST_SKIP() << "fp32 gradients are not rounded a second time";
    const Rounding rounding = run_and_check(random_problem(random, dtype, 16, 50257));
    EXPECT_GE(static_cast<double>(rounding.correctly_rounded), 0.999 * static_cast<double>(rounding.elements))
        << "seed " << run_seed();
}

// exp(0) = 1 and sums of ones are exact, so only the logarithm rounds.
TEST_P(Values, UniformLogitsGiveTheLogarithmOfTheVocabulary) {
    for (int64_t vocab : {2, 3, 1000, 4096, 50257, 300007})
        for (double value : {0.0, 1.5, -20.0, largest(dtype), -largest(dtype), std::min(3e38, largest(dtype))}) {
            Problem problem(dtype, 2, vocab);
            problem.labels[1] = vocab - 1;
            for (int64_t i = 0; i < problem.batch; i++) problem.fill(i, value);
            const Outcome outcome = run(problem);
            check(problem, outcome);
            const double expected = 2 * std::log(static_cast<double>(vocab));
            EXPECT_NEAR(outcome.ce_sum, expected, 8 * u * expected) << "logits " << value << ", " << problem.describe();
        }
}

TEST_P(Values, OneClassHasNoLossAndNoGradient) {
    for (double value : {0.0, 7.25, -1000.0, largest(dtype), -largest(dtype)}) {
        Problem problem(dtype, 3, 1);
        for (int64_t i = 0; i < problem.batch; i++) problem.fill(i, value);
        const Outcome outcome = run(problem);
        check(problem, outcome);
        EXPECT_EQ(outcome.ce_sum, 0.0f);
        for (int64_t i = 0; i < problem.batch; i++) EXPECT_EQ(decode(dtype, load_bits(outcome.dlogits, dtype, i)), 0.0);
    }
}

// Softmax minus one-hot: the probabilities add up to 1. Each gradient is rounded by half a step of the
// dtype at most, on top of the arithmetic.
TEST_P(Values, GradientsOfARowAddUpToZero) {
    const double half_step = dtype == GH_DTYPE_F32 ? u : dtype == GH_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    const double smallest_step = decode(dtype, 1);
    for (int64_t vocab : {2, 17, 1000, 50257}) {
        const Problem problem = random_problem(random, dtype, 4, vocab);
        const Outcome outcome = run(problem);
        for (int64_t i = 0; i < problem.batch; i++) {
            const Row row = reference_row(problem, i);
            double sum = 0, error = 0;
            for (int64_t j = 0; j < vocab; j++) {
                const double gradient = decode(dtype, load_bits(outcome.dlogits, dtype, i * vocab + j));
                sum += gradient;
                error +=
                    row.gradient_error[static_cast<size_t>(j)] + half_step * std::fabs(gradient) + smallest_step / 2;
            }
            EXPECT_NEAR(sum, 0, error) << problem.describe();
        }
    }
}

TEST_P(Values, SumsAreAddedToWhatTheAccumulatorsHold) {
    Problem problem = random_problem(random, dtype, 33, 129);
    problem.ce_sum = 100.5f;
    problem.z_sum = -20.25f;
    problem.n_valid = 7;
    run_and_check(problem);

    Placed placed(problem);
    Problem second = random_problem(random, dtype, 33, 129);
    ASSERT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
    const Outcome first = placed.fetch();
    second.ce_sum = first.ce_sum;
    second.z_sum = first.z_sum;
    second.n_valid = first.n_valid;
    placed.fill(second);
    ASSERT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
    check(second, placed.fetch());
}

TEST_P(Values, OptionalAccumulatorsMayBeNull) {
    for (bool with_z_sum : {false, true})
        for (bool with_n_valid : {false, true})
            for (float multiplier : {0.0f, 1e-2f}) {
                Problem problem = random_problem(random, dtype, 5, 100);
                problem.with_z_sum = with_z_sum;
                problem.with_n_valid = with_n_valid;
                problem.z_loss_multiplier = multiplier;
                problem.z_sum = 1.25f;
                problem.n_valid = 2;
                run_and_check(problem);
            }
}

}  // namespace
}  // namespace test
