// What the options give where theory says it exactly.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "engine.h"
#include "of_every_dtype.h"
#include "option_call.h"
#include "option_check.h"
#include "oracle.h"

namespace test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

class OptionsExact : public OfEveryDtype {
protected:
    // With every output.
    OptionProblem draw(int64_t batch, int64_t vocab, double deviation = 1) {
        OptionProblem problem = random_option_problem(random, dtype, batch, vocab, deviation);
        problem.outputs = Outputs::all(problem.reduction);
        return problem;
    }
};

INSTANTIATE_OF_EVERY_DTYPE(OptionsExact);

// Memory of the host that nobody may access, on either engine.
class ForbiddenPage {
public:
    ForbiddenPage() : page_(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        if (page_ == MAP_FAILED) throw std::bad_alloc();
    }
    ~ForbiddenPage() { munmap(page_, bytes); }
    ForbiddenPage(const ForbiddenPage &) = delete;
    ForbiddenPage &operator=(const ForbiddenPage &) = delete;

    const float *floats() const { return static_cast<const float *>(page_); }

private:
    static constexpr size_t bytes = 1 << 20;  // more than the class weights would take
    void *page_;
};

void expect_zero_gradient(const OptionProblem &problem, const OptionOutcome &outcome) {
    for (int64_t i = 0; i < problem.batch; i++)
        for (int64_t j = 0; j < problem.vocab; j++)
            ASSERT_EQ(gradient(problem, outcome, i, j), 0.0)
                << "row " << i << ", column " << j << ", " << problem.describe();
}

// exp(0) = 1 and sums of ones are exact; the logarithm, the smoothing's factors and the reduction round.
TEST_P(OptionsExact, UniformLogitsGiveTheLogarithmOfTheVocabulary) {
    for (int64_t vocab : {1, 2, 3, 1000, 4096, 20011})
        for (float smoothing : {0.0f, 0.1f, 0.5f, 1.0f})
            for (double value : {0.0, 1.5, -20.0}) {
                OptionProblem problem = draw(2, vocab);
                for (int64_t i = 0; i < problem.batch; i++) problem.fill(i, value);
                problem.label_smoothing = smoothing;
                problem.reduction = GH_REDUCTION_MEAN;
                if (smoothing == 0.5f) problem.softcap = 25, problem.logit_scale = 1.25f;
                const OptionOutcome outcome = run_and_check(problem);
                const double expected = std::log(static_cast<double>(vocab));
                for (int64_t i = 0; i < problem.batch; i++) {
                    EXPECT_NEAR(outcome.number(Output::row_loss, i), expected, 16 * u * expected) << smoothing;
                    EXPECT_NEAR(outcome.number(Output::row_entropy, i), expected, 8 * u * expected);
                    EXPECT_NEAR(outcome.number(Output::row_target_log_prob, i), -expected, 8 * u * expected);
                    EXPECT_EQ(outcome.argmax(i), 0);
                }
                EXPECT_NEAR(outcome.number(Output::loss), expected, 20 * u * expected);
            }
}

// Without z-loss, weights and softcap the probabilities and the label's distribution both add up to 1, and the
// entropy's gradient to 0. Each element is rounded by half a step of the dtype at most, on top of the arithmetic.
TEST_P(OptionsExact, GradientsOfARowAddUpToZero) {
    const double half_step = dtype == GH_DTYPE_F32 ? u : dtype == GH_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    const double smallest_step = decode(dtype, 1);
    for (int64_t vocab : {1, 2, 17, 1000, 50257})
        for (float smoothing : {0.0f, 0.3f, 1.0f}) {
            OptionProblem problem = draw(3, vocab);
            problem.label_smoothing = smoothing;
            problem.reduction = GH_REDUCTION_MEAN;
            problem.logit_scale = 1.5f;
            problem.dloss = 3;
            problem.row_dloss = random_floats(random, problem.batch, -2, 2);
            problem.row_dentropy = random_floats(random, problem.batch, -2, 2);
            const OptionOutcome outcome = run(problem);
            for (int64_t i = 0; i < problem.batch; i++) {
                const OptionRow row = reference_row(problem, i, denominator(problem));
                double sum = 0, error = 0;
                for (int64_t j = 0; j < vocab; j++) {
                    const double g = gradient(problem, outcome, i, j);
                    sum += g;
                    error += row.gradient_error[static_cast<size_t>(j)] + half_step * std::fabs(g) + smallest_step;
                }
                EXPECT_NEAR(sum, 0, error) << problem.describe();
            }
        }
}

// The loss no longer depends on the label, and the gradient is p - 1 / N, also at the label.
TEST_P(OptionsExact, SmoothingOfOneIsTheUniformCrossEntropy) {
    for (int64_t vocab : {1, 2, 33, 5000}) {
        OptionProblem problem = draw(2, vocab, 3);
        for (int64_t j = 0; j < vocab; j++) problem.set(1, j, problem.logit(0, j));
        problem.labels = {0, vocab - 1};
        problem.label_smoothing = 1;
        const OptionOutcome outcome = run_and_check(problem);
        const OptionRow row = reference_row(problem, 0, {1, 0});
        EXPECT_NEAR(outcome.number(Output::row_loss, 0), outcome.number(Output::row_loss, 1), 2 * row.loss.error);
        double mean = 0;
        for (int64_t j = 0; j < vocab; j++) mean += problem.logit(0, j) / static_cast<double>(vocab);
        EXPECT_NEAR(row.loss.value, row.lse.value - mean, 1e-12);
        for (int64_t j = 0; j < vocab; j++) {
            const double expected = std::exp(problem.logit(0, j) - row.lse.value) - 1 / static_cast<double>(vocab);
            ASSERT_NEAR(row.gradient[static_cast<size_t>(j)], expected, 1e-12);
        }
    }
}

TEST_P(OptionsExact, AMeanOfNoValidRowIsZero) {
    for (gh_sums sums : {GH_SUMS_ADD, GH_SUMS_OVERWRITE})
        for (bool weighted : {false, true}) {
            OptionProblem problem = draw(5, 1000);
            problem.reduction = GH_REDUCTION_MEAN;
            problem.sums = sums;
            problem.before = 7;
            if (weighted) problem.class_weights = random_floats(random, problem.vocab, 0, 1);
            problem.labels.assign(problem.labels.size(), problem.ignore_index);
            const OptionOutcome outcome = run_and_check(problem);
            for (Output output : {Output::loss, Output::z_loss, Output::n_valid, Output::n_correct})
                EXPECT_EQ(outcome.number(output), sums == GH_SUMS_ADD ? 7.0f : 0.0f);
            for (unsigned char byte : outcome.dlogits) ASSERT_EQ(byte, 0);
        }
}

// As if no row were valid, but for their number.
TEST_P(OptionsExact, AMeanOfNoWeightIsZero) {
    OptionProblem problem = draw(4, 300);
    problem.reduction = GH_REDUCTION_MEAN;
    problem.z_loss_multiplier = 0.5f;
    problem.class_weights.assign(static_cast<size_t>(problem.vocab), 1);
    for (int64_t label : problem.labels) problem.class_weights[static_cast<size_t>(label)] = 0;
    const OptionOutcome outcome = run_and_check(problem);
    EXPECT_EQ(outcome.number(Output::loss), 0.0f);
    EXPECT_EQ(outcome.number(Output::z_loss), 0.0f);
    EXPECT_EQ(outcome.number(Output::n_valid), 4.0f);
    expect_zero_gradient(problem, outcome);
}

TEST_P(OptionsExact, AnUpstreamGradientOfZeroGivesZero) {
    for (int which = 0; which < 3; which++) {
        OptionProblem problem = draw(6, 1500, 5);
        problem.label_smoothing = 0.2f;
        problem.z_loss_multiplier = 0.1f;
        problem.softcap = 20;
        if (which == 0) problem.dloss = 0;
        if (which == 1) problem.dloss_ptr = 0.0f;
        if (which == 2) problem.row_dloss.assign(static_cast<size_t>(problem.batch), 0);
        expect_zero_gradient(problem, run_and_check(problem));
    }
}

TEST_P(OptionsExact, AnUpstreamGradientOfNanStaysInItsRow) {
    OptionProblem problem = draw(4, 700);
    problem.row_dloss = {1, NAN, 2, NAN};
    problem.labels[3] = problem.ignore_index;
    const OptionOutcome outcome = run(problem);
    for (int64_t j = 0; j < problem.vocab; j++) {
        ASSERT_TRUE(std::isfinite(gradient(problem, outcome, 0, j)));
        ASSERT_TRUE(std::isnan(gradient(problem, outcome, 1, j)));
        ASSERT_TRUE(std::isfinite(gradient(problem, outcome, 2, j)));
        ASSERT_EQ(gradient(problem, outcome, 3, j), 0.0);
    }
    EXPECT_TRUE(std::isfinite(outcome.number(Output::loss)));
}

class PowersOfTwo : public OptionsExact {
protected:
    OptionProblem draw_with_terms(int64_t vocab) {
        OptionProblem problem = draw(4, vocab, 3);
        problem.label_smoothing = 0.1f;
        problem.z_loss_multiplier = 1e-2f;
        problem.class_weights = random_floats(random, vocab, 0.1, 2);
        return problem;
    }

    // Only exponents may differ, except of what is close to underflow.
    void expect_scaled(const OptionProblem &problem, const OptionOutcome &base, double factor) {
        const double smallest = std::max(0x1p-100, 64 * (dtype == GH_DTYPE_F16 ? 0x1p-14 : 0x1p-126));
        const OptionOutcome scaled = run(problem);
        for (int64_t i = 0; i < problem.batch; i++)
            for (int64_t j = 0; j < problem.vocab; j++) {
                const double g = gradient(problem, base, i, j);
                if (std::fabs(g) < smallest) continue;
                ASSERT_EQ(gradient(problem, scaled, i, j), factor * g)
                    << "row " << i << ", column " << j << ", " << problem.describe();
            }
    }
};

INSTANTIATE_OF_EVERY_DTYPE(PowersOfTwo);

TEST_P(PowersOfTwo, UpstreamGradientsScaleTheGradientExactly) {
    for (int64_t vocab : {2, 33, 1000, 20011}) {
        const OptionProblem problem = draw_with_terms(vocab);
        const OptionOutcome base = run(problem);
        for (float factor : {-1.0f, 0.125f, -16.0f}) {
            OptionProblem scaled = problem;
            scaled.dloss = factor;
            expect_scaled(scaled, base, factor);
            scaled = problem;
            scaled.dloss_ptr = factor;
            expect_scaled(scaled, base, factor);
            scaled = problem;
            scaled.row_dloss.assign(static_cast<size_t>(problem.batch), factor);
            expect_scaled(scaled, base, factor);
        }
    }
}

// Of four rows, or of weights that add up to 4.
TEST_P(PowersOfTwo, AMeanScalesTheGradientExactly) {
    for (int64_t vocab : {2, 33, 1000, 20011})
        for (bool weighted : {false, true}) {
            OptionProblem problem = draw_with_terms(vocab);
            if (!weighted) problem.class_weights.clear();
            for (int64_t label : problem.labels)
                if (weighted) problem.class_weights[static_cast<size_t>(label)] = 1;
            const OptionOutcome base = run(problem);
            problem.reduction = GH_REDUCTION_MEAN;
            expect_scaled(problem, base, 0.25);
        }
}

TEST_P(OptionsExact, AClassOfNoWeightHasNoLoss) {
    OptionProblem problem = draw(3, 900, 4);
    problem.class_weights = random_floats(random, problem.vocab, 0.5, 1);
    problem.class_weights[static_cast<size_t>(problem.labels[1])] = 0;
    problem.labels[0] = problem.labels[2] = (problem.labels[1] + 1) % problem.vocab;
    const OptionOutcome outcome = run_and_check(problem);
    EXPECT_EQ(outcome.number(Output::row_loss, 1), 0.0f);
    EXPECT_GT(outcome.number(Output::row_loss, 0), 0.0f);
    for (int64_t j = 0; j < problem.vocab; j++) ASSERT_EQ(gradient(problem, outcome, 1, j), 0.0);
}

// Their logits are NaN here: they are not read.
TEST_P(OptionsExact, IgnoredRowsHaveZeroInEveryOutput) {
    for (int64_t vocab : {1, 100, 5000})
        for (Gradient kind : {Gradient::none, Gradient::in_place, Gradient::out_of_place}) {
            OptionProblem problem = draw(5, vocab);
            randomize_options(random, problem);
            problem.gradient = kind;
            for (int64_t row : {0, 3}) {
                problem.labels[static_cast<size_t>(row)] = problem.ignore_index;
                problem.fill(row, std::numeric_limits<double>::quiet_NaN());
            }
            const OptionOutcome outcome = run_and_check(problem);
            for (int64_t row : {0, 3}) {
                for (Output output :
                     {Output::row_loss, Output::row_lse, Output::row_target_log_prob, Output::row_entropy})
                    EXPECT_EQ(outcome.number(output, row), 0.0f) << problem.describe();
                EXPECT_EQ(outcome.argmax(row), -1);
                const unsigned char *statistics =
                    &outcome.bytes(Output::row_statistics)[static_cast<size_t>(row) * GH_ROW_STATISTICS_BYTES];
                EXPECT_TRUE(std::all_of(statistics, statistics + GH_ROW_STATISTICS_BYTES,
                                        [](unsigned char byte) { return byte == 0; }));
            }
            EXPECT_EQ(outcome.number(Output::n_valid), 3.0f);
        }
}

TEST_P(OptionsExact, ANanRowIsNanInEveryOutput) {
    for (int64_t vocab : {9, 4099})
        for (int kind = 0; kind < 5; kind++) {
            OptionProblem problem = draw(3, vocab);
            problem.label_smoothing = 0.1f;
            problem.z_loss_multiplier = kind == 4 ? 0 : 1e-2f;
            problem.row_dentropy.assign(3, 1);
            problem.dloss = kind == 4 ? 0 : 1;  // times 0 is NaN still
            if (kind == 0 || kind == 4) problem.set(1, uniform(random, 0, vocab - 1), NAN);
            if (kind == 1) problem.set(1, uniform(random, 0, vocab - 1), inf);
            if (kind == 2) problem.fill(1, -inf);
            if (kind == 3) problem.labels[1] = vocab;
            const OptionOutcome outcome = run_and_check(problem);
            for (Output output :
                 {Output::row_loss, Output::row_lse, Output::row_target_log_prob, Output::row_entropy}) {
                EXPECT_TRUE(std::isnan(outcome.number(output, 1)));
                EXPECT_TRUE(std::isfinite(outcome.number(output, 0)));
            }
            EXPECT_EQ(outcome.argmax(1), -1);
            EXPECT_TRUE(std::isnan(outcome.number(Output::loss)) && std::isnan(outcome.number(Output::z_loss)));
            EXPECT_EQ(outcome.number(Output::n_valid), 3.0f);
            EXPECT_EQ(outcome.number(Output::n_out_of_range), kind == 3 ? 1.0f : 0.0f);
            for (int64_t j = 0; j < vocab; j++) ASSERT_TRUE(std::isnan(gradient(problem, outcome, 1, j)));
        }
}

// The smoothed loss asks for the masked column, too, which is infinitely unlikely; its gradient is its share of the
// label's distribution.
TEST_P(OptionsExact, SmoothingAColumnOfMinusInfinityGivesAnInfiniteLossAndAFiniteGradient) {
    for (int64_t vocab : {2, 100, 8203}) {
        OptionProblem problem = draw(2, vocab);
        const int64_t masked = uniform(random, 0, vocab - 1);
        problem.label_smoothing = 0.5f;
        problem.set(0, masked, -inf);
        problem.labels[0] = (masked + 1) % vocab;
        const OptionOutcome outcome = run_and_check(problem);
        EXPECT_EQ(outcome.number(Output::row_loss, 0), static_cast<float>(inf));
        EXPECT_EQ(outcome.number(Output::loss), static_cast<float>(inf));
        EXPECT_TRUE(std::isfinite(outcome.number(Output::row_lse, 0)));
        EXPECT_TRUE(std::isfinite(outcome.number(Output::row_entropy, 0)));
        EXPECT_TRUE(std::isfinite(outcome.number(Output::row_loss, 1)));
        EXPECT_NEAR(gradient(problem, outcome, 0, masked), -0.5 / static_cast<double>(vocab),
                    0x1p-8 / static_cast<double>(vocab) + 0x1p-25);
        for (int64_t j = 0; j < vocab; j++) ASSERT_TRUE(std::isfinite(gradient(problem, outcome, 0, j)));
    }
}

// Columns masked with a large finite number, as torch.finfo(dtype).min, where others mask with -inf. The sizes are such
// that every CUDA kernel meets them.
class FiniteMask : public OptionsExact {
protected:
    std::vector<double> masks() const {
        if (dtype == GH_DTYPE_F16) return {-largest(dtype)};
        return {-largest(dtype), -1e38};
    }

    // One row for each kind of mask, and one without. What the mask leaves is ordinary.
    OptionProblem draw_masked(int64_t vocab, double mask, int64_t offset, int64_t padding) {
        OptionProblem problem = draw(7, vocab, 3);
        problem.offset = offset;
        problem.padding = padding;
        const auto mask_all_but = [&](int64_t row, int64_t begin, int64_t end) {
            for (int64_t j = 0; j < vocab; j++)
                if (j < begin || j >= end) problem.set(row, j, mask);
        };
        for (int k = 0; k < 3; k++) problem.set(0, uniform(random, 0, vocab - 1), mask);
        const int64_t first = uniform(random, 0, vocab - 3);
        mask_all_but(1, first, first + 3);
        problem.labels[1] = first + 1;
        mask_all_but(2, first, first + 1);  // certain
        problem.labels[2] = first;
        mask_all_but(3, first, first + 1);  // and wrong
        problem.labels[3] = first + 1;
        mask_all_but(4, vocab / 2, vocab);
        mask_all_but(5, 0, vocab / 2);
        return problem;  // the last row has no mask
    }

    template <typename Check>
    void for_every_mask(Check check) {
        for (int64_t vocab : {8, 100, 4096, 8203, 50257, 128256})
            for (double mask : masks())
                for (int64_t offset : {0, 1}) {
                    const OptionProblem problem = draw_masked(vocab, mask, offset, 3 * offset);
                    SCOPED_TRACE(problem.describe() + ", mask " + std::to_string(mask));
                    check(problem, decode(dtype, encode(dtype, mask)));
                    if (HasFailure()) return;
                }
    }

    // Where the label is not masked itself.
    void expect_zero_at_masked_classes(const OptionProblem &problem, const OptionOutcome &outcome, double mask) {
        for (int64_t i = 0; i < problem.batch; i++)
            for (int64_t j = 0; j < problem.vocab; j++) {
                const double g = gradient(problem, outcome, i, j);
                ASSERT_TRUE(std::isfinite(g)) << "row " << i << ", column " << j;
                if (problem.logit(i, j) == mask && j != problem.labels[static_cast<size_t>(i)]) {
                    ASSERT_EQ(g, 0.0) << "row " << i << ", column " << j;
                }
            }
    }
};

INSTANTIATE_OF_EVERY_DTYPE(FiniteMask);

TEST_P(FiniteMask, EntropyIsThatOfTheOtherClasses) {
    for_every_mask([&](OptionProblem problem, double mask) {
        problem.row_dentropy = random_floats(random, problem.batch, -2, 2);
        const OptionOutcome outcome = run_and_check(problem);
        expect_zero_at_masked_classes(problem, outcome, mask);
        EXPECT_EQ(outcome.number(Output::row_entropy, 2), 0.0f);
        EXPECT_EQ(outcome.number(Output::row_entropy, 3), 0.0f);
        EXPECT_TRUE(run(backward_from(problem, outcome)).dlogits == outcome.dlogits);
        problem.gradient = Gradient::none;
        run_and_check(problem);
    });
}

TEST_P(FiniteMask, PlainTerms) {
    for_every_mask([&](OptionProblem problem, double mask) {
        problem.outputs = {Output::row_loss, Output::row_lse, Output::row_target_log_prob, Output::row_statistics,
                           Output::loss};
        const OptionOutcome outcome = run_and_check(problem);
        expect_zero_at_masked_classes(problem, outcome, mask);
        EXPECT_EQ(outcome.number(Output::row_loss, 2), 0.0f);
        EXPECT_TRUE(run(backward_from(problem, outcome)).dlogits == outcome.dlogits);
        problem.gradient = Gradient::none;
        run_and_check(problem);
    });
}

// Then all other classes are as if they were masked.
TEST_P(FiniteMask, TheLargestFiniteLogitIsCertain) {
    for_every_mask([&](OptionProblem problem, double) {
        for (int64_t i = 0; i < problem.batch; i++) {
            const int64_t label = problem.labels[static_cast<size_t>(i)];
            problem.set(i, i % 2 == 0 ? label : (label + 1) % problem.vocab, largest(dtype));
        }
        problem.row_dentropy = random_floats(random, problem.batch, -2, 2);
        const OptionOutcome outcome = run_and_check(problem);
        for (int64_t i = 0; i < problem.batch; i++) {
            EXPECT_EQ(outcome.number(Output::row_entropy, i), 0.0f);
            if (i % 2 == 0) {
                EXPECT_EQ(outcome.number(Output::row_loss, i), 0.0f);
            }
            for (int64_t j = 0; j < problem.vocab; j++) {
                const int64_t label = problem.labels[static_cast<size_t>(i)];
                const double expected = i % 2 == 0 ? 0 : j == label ? -1 : j == (label + 1) % problem.vocab ? 1 : 0;
                ASSERT_EQ(gradient(problem, outcome, i, j), expected) << "row " << i << ", column " << j;
            }
        }
    });
}

// The smoothed loss asks for the masked columns' distances, too. A distance, and on CUDA the sum of them in powers of
// 2, may be beyond fp32, and then the loss may be +inf. All else is as usual.
TEST_P(FiniteMask, SmoothedLossesAreHuge) {
    for (bool weighted : {false, true})
        for_every_mask([&](OptionProblem problem, double) {
            problem.label_smoothing = 0.125f;
            if (weighted) problem.class_weights = random_floats(random, problem.vocab, 0.5, 2);
            if (uniform(random, 0, 1)) problem.set(0, 0, largest(dtype));
            problem.row_dentropy = random_floats(random, problem.batch, -2, 2);
            const OptionOutcome outcome = run(problem);
            OptionProblem all_else = problem;
            all_else.outputs.remove(Output::row_loss);
            all_else.outputs.remove(Output::loss);
            check(all_else, outcome);

            const double most = largest(GH_DTYPE_F32);
            for (int64_t i = 0; i < problem.batch; i++) {
                double highest = -inf, sum = 0, widest = 0;
                for (int64_t j = 0; j < problem.vocab; j++) highest = std::max(highest, problem.logit(i, j));
                for (int64_t j = 0; j < problem.vocab; j++) {
                    const double distance = highest - problem.logit(i, j);
                    sum += problem.weight(j) * distance;
                    widest = std::max(widest, distance);
                }
                // The sum rounds as option_oracle.h says; what is so near to the limit may be on either side of it. On
                // CUDA it is a sum of powers of 2.
                const double rounding = u * (8 + 2 * static_cast<double>(problem.vocab) / 256);
                const double limited = engine().is_cuda() ? sum / std::log(2.0) * (1 + rounding) : widest;
                const double got = double{outcome.number(Output::row_loss, i)};
                const Bounded expected = reference_row(problem, i, {1, 0}).loss;
                if (got == inf && (limited > most || expected.value + expected.error > most)) continue;
                EXPECT_NEAR(got, expected.value, expected.error + u * std::fabs(expected.value)) << "row " << i;
            }
            EXPECT_TRUE(outcome.number(Output::loss) > 1000) << outcome.number(Output::loss);
        });
}

TEST_P(OptionsExact, ATermWhoseFactorIsZeroCountsForNothing) {
    for (int64_t vocab : {3, 100, 8203}) {
        OptionProblem problem = draw(3, vocab);
        problem.class_weights = random_floats(random, vocab, 0.5, 1);
        const int64_t masked = uniform(random, 0, vocab - 1);
        problem.class_weights[static_cast<size_t>(masked)] = 0;
        for (int64_t i = 0; i < problem.batch; i++) problem.set(i, masked, -inf);
        problem.labels[0] = masked;
        problem.labels[1] = (masked + 1) % vocab;
        for (float smoothing : {0.0f, 0.3f, 1.0f}) {
            problem.label_smoothing = smoothing;
            const OptionOutcome outcome = run_and_check(problem);
            EXPECT_TRUE(std::isfinite(outcome.number(Output::loss))) << problem.describe();
            EXPECT_EQ(outcome.number(Output::row_target_log_prob, 0), static_cast<float>(-inf));
            for (int64_t i = 0; i < problem.batch; i++) EXPECT_EQ(gradient(problem, outcome, i, masked), 0.0);
        }
    }
}

// Products and quotients of extremes overflow and underflow, but meet no infinity of the other sign, and no infinite
// factor meets a 0.
TEST_P(OptionsExact, ExtremeScalesAndSoftcapsMakeNoNan) {
    for (const Extreme &extreme : extremes)
        for (int64_t vocab : {1, 8, 100, 4096, 8203, 50257})
            for (bool all_terms : {false, true}) {
                OptionProblem problem = random_extreme_problem(random, dtype, vocab, extreme);
                problem.offset = uniform(random, 0, 1);
                if (all_terms) {
                    problem.label_smoothing = 0.25f;
                    problem.class_weights = random_floats(random, vocab, 0.5, 1);
                    // Times the scale, it must be a number.
                    if (problem.logit_scale <= 1) problem.row_dentropy = random_floats(random, problem.batch, -2, 2);
                } else {
                    problem.outputs = {Output::row_loss, Output::row_lse, Output::row_target_log_prob, Output::loss,
                                       Output::row_statistics};
                }
                const OptionOutcome outcome = run(problem);
                SCOPED_TRACE(problem.describe());
                for (Output output : {Output::row_loss, Output::row_lse, Output::row_target_log_prob,
                                      Output::row_entropy, Output::loss, Output::z_loss})
                    for (float value : outcome.numbers(output))
                        EXPECT_FALSE(std::isnan(value)) << "output " << static_cast<int>(output);
                for (int64_t i = 0; i < problem.batch; i++)
                    for (int64_t j = 0; j < vocab; j++)
                        ASSERT_FALSE(std::isnan(gradient(problem, outcome, i, j))) << "row " << i << ", column " << j;
                EXPECT_TRUE(run(backward_from(problem, outcome)).dlogits == outcome.dlogits);
                if (HasFailure()) return;
            }
}

// A class that is masked out with -inf remains so.
TEST_P(OptionsExact, ASoftcapLeavesInfiniteLogitsInfinite) {
    for (int64_t vocab : {2, 100, 8203}) {
        OptionProblem problem = draw(4, vocab);
        problem.softcap = 5;
        problem.labels.assign(4, 0);
        for (int64_t j = 1; j < vocab; j += 2) problem.set(0, j, -inf);
        problem.set(1, vocab - 1, inf);
        problem.fill(2, -inf);
        problem.set(3, 0, -inf);
        const OptionOutcome outcome = run_and_check(problem);
        for (int64_t j = 1; j < vocab; j += 2) ASSERT_EQ(gradient(problem, outcome, 0, j), 0.0);
        EXPECT_TRUE(std::isfinite(outcome.number(Output::row_loss, 0)));
        EXPECT_TRUE(std::isnan(outcome.number(Output::row_loss, 1)));
        EXPECT_TRUE(std::isnan(outcome.number(Output::row_loss, 2)));
        EXPECT_EQ(outcome.number(Output::row_loss, 3), inf);
    }
}

// Also where logit_scale / softcap, a factor of the masked logit, is 0 in fp32, or beyond it.
TEST_P(OptionsExact, MaskedClassesRemainSoAtExtremeScalesAndSoftcaps) {
    for (const Extreme &extreme : extremes)
        for (int64_t vocab : {2, 100, 8203, 50257}) {
            OptionProblem problem = random_extreme_problem(random, dtype, vocab, extreme);
            problem.labels.assign(static_cast<size_t>(problem.batch), 0);
            for (int64_t i = 0; i < problem.batch; i++)
                for (int64_t j = 1; j < vocab; j += 2) problem.set(i, j, -inf);
            SCOPED_TRACE(problem.describe());
            const OptionOutcome outcome = run(problem);
            for (int64_t i = 0; i < problem.batch; i++) {
                EXPECT_FALSE(std::isnan(outcome.number(Output::row_loss, i))) << "row " << i;
                EXPECT_FALSE(std::isnan(outcome.number(Output::row_entropy, i))) << "row " << i;
                for (int64_t j = 1; j < vocab; j += 2)
                    ASSERT_EQ(gradient(problem, outcome, i, j), 0.0) << "row " << i << ", column " << j;
            }
            if (HasFailure()) return;
        }
}

// Ties between columns of the same vector, warp, tile and segment, and of different ones.
TEST_P(OptionsExact, TheArgmaxIsTheFirstOfTheLargest) {
    for (int64_t vocab : {1, 2, 9, 64, 1000, 4099, 50257})
        for (bool capped : {false, true}) {
            OptionProblem problem = draw(24, vocab);
            // Deep in saturation, where the cap makes unequal logits equal: the argmax is that of the logits.
            if (capped) problem.softcap = 0.5f;
            std::vector<int64_t> expected;
            for (int64_t i = 0; i < problem.batch; i++) {
                int64_t first = vocab;
                for (int64_t k = uniform(random, 1, 4); k > 0; k--) {
                    const int64_t column = k == 1 && first < vocab ? std::min(first + uniform(random, 1, 9), vocab - 1)
                                                                   : uniform(random, 0, vocab - 1);
                    problem.set(i, column, 50);
                    first = std::min(first, column);
                }
                if (i % 2 == 0 && first > 0) problem.set(i, uniform(random, 0, first - 1), 49);
                expected.push_back(first);
                problem.labels[static_cast<size_t>(i)] = i % 3 == 0 ? first : std::min(first + 1, vocab - 1);
            }
            const OptionOutcome outcome = run_and_check(problem);
            double correct = 0;
            for (int64_t i = 0; i < problem.batch; i++) {
                EXPECT_EQ(outcome.argmax(i), expected[static_cast<size_t>(i)]) << problem.describe();
                correct += problem.labels[static_cast<size_t>(i)] == expected[static_cast<size_t>(i)];
            }
            EXPECT_EQ(outcome.number(Output::n_correct), correct);
        }
}

TEST_P(OptionsExact, ZeroesOfBothSignsAreATie) {
    OptionProblem problem = draw(2, 5);
    for (int64_t i = 0; i < 2; i++) problem.fill(i, -1);
    problem.set(0, 1, -0.0), problem.set(0, 3, 0.0);
    problem.set(1, 1, 0.0), problem.set(1, 3, -0.0);
    const OptionOutcome outcome = run_and_check(problem);
    EXPECT_EQ(outcome.argmax(0), 1);
    EXPECT_EQ(outcome.argmax(1), 1);
}

TEST_P(OptionsExact, LabelsOutOfRangeAreCounted) {
    for (gh_label_dtype label_dtype : {GH_LABEL_I64, GH_LABEL_I32}) {
        OptionProblem problem = draw(9, 50);
        problem.label_dtype = label_dtype;
        problem.labels = {0, 49, 50, -1, problem.ignore_index, 2147483647, -2147483647 - 1, 7, 50};
        const OptionOutcome outcome = run_and_check(problem);
        EXPECT_EQ(outcome.number(Output::n_out_of_range), 5.0f);
        EXPECT_EQ(outcome.number(Output::n_valid), 8.0f);
    }
}

// Whatever it divides by.
TEST_P(OptionsExact, ALabelOutOfRangeMakesAWeightedMeanNan) {
    OptionProblem problem = draw(5, 60);
    problem.reduction = GH_REDUCTION_MEAN;
    problem.class_weights = random_floats(random, problem.vocab, 0.5, 2);
    problem.labels[3] = problem.vocab + 5;
    const OptionOutcome outcome = run_and_check(problem);
    EXPECT_TRUE(std::isnan(outcome.number(Output::loss)));
    EXPECT_TRUE(std::isnan(outcome.number(Output::z_loss)));
    for (int64_t j = 0; j < problem.vocab; j++) ASSERT_TRUE(std::isnan(gradient(problem, outcome, 3, j)));
}

// -100 and numbers beyond 32 bits are compared as 64-bit numbers.
TEST_P(OptionsExact, IgnoreIndexIsComparedWithTheWholeLabel) {
    OptionProblem problem = draw(3, 50);
    problem.ignore_index = (int64_t{1} << 32) + 4;  // 4, if cut to 32 bits
    problem.labels = {4, 5, 4};
    for (gh_label_dtype label_dtype : {GH_LABEL_I64, GH_LABEL_I32}) {
        problem.label_dtype = label_dtype;
        EXPECT_EQ(run_and_check(problem).number(Output::n_valid), 3.0f);
    }
}

TEST_P(OptionsExact, OverwrittenSumsForgetWhatWasThere) {
    OptionProblem problem = draw(7, 400);
    problem.with_workspace = true;  // so that the sums repeat
    problem.z_loss_multiplier = 0.1f;
    problem.before = 0;
    const OptionOutcome added = run_and_check(problem);
    problem.sums = GH_SUMS_OVERWRITE;
    problem.before = NAN;
    const OptionOutcome overwritten = run_and_check(problem);
    for (Output output : {Output::loss, Output::z_loss, Output::n_valid, Output::n_correct, Output::n_out_of_range})
        EXPECT_EQ(added.number(output), overwritten.number(output));
    problem.sums = GH_SUMS_ADD;
    problem.before = 1000;
    const OptionOutcome twice = run_and_check(problem);
    EXPECT_EQ(twice.number(Output::n_valid), 1007.0f);
}

// Where one part of a kernel has all rows, it overwrites the sums itself: also if no row counts.
TEST_P(OptionsExact, SumsOfOneRowAreOverwrittenWithoutAWorkspace) {
    for (int64_t vocab : {400, 50257})
        for (bool ignored : {false, true}) {
            OptionProblem problem = draw(1, vocab);
            problem.reduction = GH_REDUCTION_SUM;
            problem.with_workspace = false;
            problem.sums = GH_SUMS_OVERWRITE;
            problem.before = NAN;
            if (ignored) problem.labels[0] = problem.ignore_index;
            const OptionOutcome outcome = run_and_check(problem);
            EXPECT_EQ(outcome.number(Output::n_valid), ignored ? 0.0f : 1.0f);
            if (!ignored) continue;
            for (Output output : {Output::loss, Output::z_loss, Output::n_correct, Output::n_out_of_range})
                EXPECT_EQ(outcome.number(output), 0.0f);
        }
}

TEST_P(OptionsExact, AnEmptyBatchOverwritesSumsAndNothingElse) {
    for (gh_reduction reduction : {GH_REDUCTION_SUM, GH_REDUCTION_MEAN, GH_REDUCTION_NONE})
        for (gh_sums sums : {GH_SUMS_ADD, GH_SUMS_OVERWRITE}) {
            OptionProblem problem(dtype, 0, 100);
            problem.reduction = reduction;
            problem.outputs = Outputs::all(reduction);
            problem.sums = sums;
            problem.before = 5;
            const OptionOutcome outcome = run(problem);
            for (Output output :
                 {Output::loss, Output::z_loss, Output::n_valid, Output::n_correct, Output::n_out_of_range}) {
                if (!problem.outputs.has(output)) continue;
                EXPECT_EQ(outcome.number(output), sums == GH_SUMS_ADD ? 5.0f : 0.0f) << problem.describe();
            }
        }
}

// Not even the class weights, which have no rows: here, nobody may read them.
TEST_P(OptionsExact, AnEmptyBatchReadsNothing) {
    const ForbiddenPage page;
    for (gh_reduction reduction : {GH_REDUCTION_SUM, GH_REDUCTION_MEAN, GH_REDUCTION_NONE})
        for (gh_sums sums : {GH_SUMS_ADD, GH_SUMS_OVERWRITE})
            for (float smoothing : {0.0f, 0.1f, 1.0f})
                for (bool with_workspace : {false, true})
                    for (int64_t vocab : {1, 100, 50257}) {
                        OptionProblem problem(dtype, 0, vocab);
                        problem.reduction = reduction;
                        problem.label_smoothing = smoothing;
                        // So that there is a workspace where the call cannot do without.
                        problem.class_weights.assign(static_cast<size_t>(vocab), 1);
                        problem.with_workspace = with_workspace;
                        problem.outputs = Outputs::all(reduction);
                        problem.sums = sums;
                        problem.before = 5;
                        SCOPED_TRACE(problem.describe());
                        PlacedOptions placed(problem);
                        placed.options.class_weights = page.floats();
                        placed.options.row_dloss = page.floats();
                        placed.options.row_dentropy = page.floats();
                        ASSERT_EQ(placed.call(), GH_SUCCESS) << gh_last_error();
                        const OptionOutcome outcome = placed.fetch();
                        for (Output output :
                             {Output::loss, Output::z_loss, Output::n_valid, Output::n_correct, Output::n_out_of_range})
                            if (problem.outputs.has(output)) {
                                EXPECT_EQ(outcome.number(output), sums == GH_SUMS_ADD ? 5.0f : 0.0f);
                            }
                    }
}

TEST_P(OptionsExact, CertainRows) {
    OptionProblem problem = draw(2, 1000);
    for (int64_t i = 0; i < 2; i++) {
        problem.fill(i, -inf);
        problem.set(i, 400, -3.5);
    }
    problem.labels = {400, 400};
    problem.row_dentropy = {1, -2};
    const OptionOutcome outcome = run_and_check(problem);
    EXPECT_EQ(outcome.number(Output::loss), 0.0f);
    EXPECT_EQ(outcome.number(Output::row_entropy), 0.0f);
    EXPECT_EQ(outcome.number(Output::row_target_log_prob), 0.0f);
    EXPECT_EQ(outcome.number(Output::row_lse), -3.5f);
    expect_zero_gradient(problem, outcome);
}

// The short call, the call without options and the one with the defaults are the same.
TEST_P(OptionsExact, TheShortCallGivesTheSameGradient) {
    for (int64_t vocab : {1, 100, 4099, 50257}) {
        Problem plain = random_problem(random, dtype, 4, vocab);
        plain.labels[2] = plain.ignore_index;
        const Outcome short_call = run(plain);
        OptionProblem problem(dtype, plain.batch, vocab);
        static_cast<Rows &>(problem) = plain;
        EXPECT_TRUE(run(problem).dlogits == short_call.dlogits) << plain.describe();

        const Placed placed(plain);
        const Arguments &a = placed.arguments;
        ASSERT_EQ(gh_cross_entropy(a.logits, a.logits, a.dtype, a.labels, a.batch, a.vocab, nullptr, a.stream),
                  GH_SUCCESS)
            << gh_last_error();
        const Outcome without_options = placed.fetch();
        EXPECT_TRUE(without_options.dlogits == short_call.dlogits) << plain.describe();
        EXPECT_EQ(without_options.ce_sum, plain.ce_sum) << "written although nobody asked for it";
    }
}

}  // namespace
}  // namespace test
