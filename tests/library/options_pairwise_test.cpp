// Every two values of every two options, outputs, dtypes, shapes, strides and alignments meet in some call, whose
// results the oracle checks; then the backward pass repeats its gradient bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "covering.h"
#include "engine.h"
#include "option_call.h"
#include "option_check.h"

namespace test {
namespace {

enum Factor {
    dtype,
    vocab,
    logits,
    labels,
    label_dtype,
    gradient_kind,
    padding,
    dlogits_padding,
    offset,
    dlogits_offset,
    reduction,
    label_smoothing,
    z_loss_multiplier,
    class_weights,
    logit_scale,
    softcap,
    dloss,
    dloss_ptr,
    row_dloss,
    row_dentropy,
    sums,
    workspace,
    first_output,  // whether Output 0 is asked for; the next factor is for Output 1, and so on
    factor_count = first_output + static_cast<int>(output_count)
};

constexpr int output_factor(Output output) {
    return first_output + static_cast<int>(output);
}

constexpr int64_t vocabs[] = {1, 2, 7, 33, 1000, 4096, 50257, 200003};
constexpr int64_t most_rows[] = {40, 40, 40, 40, 12, 5, 2, 2};

enum Logits { normal, wide, far_from_zero, tied, some_infinite, logits_count };
enum Labels { ordinary, some_ignored, all_ignored, class_ignored, some_out_of_range, labels_count };
enum Weights { no_weights, positive, some_zero, weights_count };

constexpr Gradient gradients[] = {Gradient::none, Gradient::in_place, Gradient::out_of_place};
constexpr int64_t paddings[] = {0, 1, 8, 37};
constexpr int64_t offsets[] = {0, 1, 4, 7};
constexpr gh_reduction reductions[] = {GH_REDUCTION_SUM, GH_REDUCTION_MEAN, GH_REDUCTION_NONE};
constexpr float smoothings[] = {0, 0.1f, 1};
constexpr float z_loss_multipliers[] = {0, 1e-3f, -0.3f};
constexpr float logit_scales[] = {1, 0.5f, 1.7f};
constexpr float softcaps[] = {0, 4, 30};
constexpr float dlosses[] = {1, 0, -0.37f, 1024};

template <typename T, size_t N>
constexpr int count_of(const T (&)[N]) {
    return static_cast<int>(N);
}

Covering make_covering() {
    std::vector<int> levels(factor_count, 2);
    levels[dtype] = count_of(all_dtypes);
    levels[vocab] = count_of(vocabs);
    levels[logits] = logits_count;
    levels[labels] = labels_count;
    levels[gradient_kind] = count_of(gradients);
    levels[padding] = levels[dlogits_padding] = count_of(paddings);
    levels[offset] = levels[dlogits_offset] = count_of(offsets);
    levels[reduction] = count_of(reductions);
    levels[label_smoothing] = count_of(smoothings);
    levels[z_loss_multiplier] = count_of(z_loss_multipliers);
    levels[class_weights] = weights_count;
    levels[logit_scale] = count_of(logit_scales);
    levels[softcap] = count_of(softcaps);
    levels[dloss] = count_of(dlosses);
    Covering covering(levels);

    covering.exclude(reduction, 2, output_factor(Output::loss), 1);
    covering.exclude(reduction, 2, output_factor(Output::z_loss), 1);
    // The host refuses a label out of range that nobody counts. What its weight is in a mean is left open.
    covering.exclude(labels, some_out_of_range, output_factor(Output::n_out_of_range), 0);
    return covering;
}

// One column stays finite, so that not all is NaN.
void fill_logits(Random &random, OptionProblem &problem, int kind) {
    randomize(random, problem, kind == wide ? 10 : 1);
    for (int64_t i = 0; i < problem.batch; i++)
        for (int64_t j = 0; j < problem.vocab; j++) {
            const double value = problem.logit(i, j);
            if (kind == far_from_zero) problem.set(i, j, value + 300);
            if (kind == tied) problem.set(i, j, std::round(value));
            if (kind == some_infinite && uniform(random, 0, 4) == 0 && j != i % problem.vocab)
                problem.set(i, j, -INFINITY);
        }
}

void fill_labels(Random &random, OptionProblem &problem, int kind) {
    if (kind == class_ignored) problem.ignore_index = uniform(random, 0, problem.vocab - 1);
    for (int64_t &label : problem.labels) {
        const bool chosen = uniform(random, 0, 3) == 0;
        if (kind == all_ignored || (kind == some_ignored && chosen)) label = problem.ignore_index;
        if (kind == some_out_of_range && chosen) label = uniform(random, 0, 1) == 0 ? problem.vocab : -1;
    }
}

OptionProblem make_problem(Random &random, const Case &c) {
    const auto v = static_cast<size_t>(c[vocab]);
    OptionProblem problem(all_dtypes[c[dtype]], uniform(random, 1, most_rows[v]), vocabs[v]);
    problem.label_dtype = c[label_dtype] ? GH_LABEL_I32 : GH_LABEL_I64;
    problem.gradient = gradients[c[gradient_kind]];
    problem.padding = paddings[c[padding]];
    problem.dlogits_padding = paddings[c[dlogits_padding]];
    problem.offset = offsets[c[offset]];
    problem.dlogits_offset = offsets[c[dlogits_offset]];
    problem.reduction = reductions[c[reduction]];
    problem.label_smoothing = smoothings[c[label_smoothing]];
    problem.z_loss_multiplier = z_loss_multipliers[c[z_loss_multiplier]];
    problem.logit_scale = logit_scales[c[logit_scale]];
    problem.softcap = softcaps[c[softcap]];
    fill_logits(random, problem, c[logits]);
    fill_labels(random, problem, c[labels]);
    problem.dloss = dlosses[c[dloss]];
    if (c[class_weights] != no_weights) problem.class_weights = random_floats(random, problem.vocab, 0.1, 3);
    if (c[class_weights] == some_zero)
        for (float &weight : problem.class_weights)
            if (uniform(random, 0, 3) == 0) weight = 0;
    if (c[dloss_ptr]) problem.dloss_ptr = 2.3f;
    if (c[row_dloss]) problem.row_dloss = random_floats(random, problem.batch, -2, 2);
    if (c[row_dentropy]) problem.row_dentropy = random_floats(random, problem.batch, -2, 2);
    problem.sums = c[sums] ? GH_SUMS_OVERWRITE : GH_SUMS_ADD;
    problem.before = 40;
    problem.with_workspace = c[workspace] != 0;
    for (size_t k = 0; k < output_count; k++)
        if (c[static_cast<size_t>(first_output) + k]) problem.outputs.add(static_cast<Output>(k));
    if (problem.outputs.empty() && problem.gradient == Gradient::none) problem.outputs.add(Output::n_valid);
    return problem;
}

// A gradient from saved statistics is the one-pass gradient, whatever the options, and also where that was not made.
void check_backward(const OptionProblem &problem, const OptionOutcome &outcome) {
    const OptionProblem backward = backward_from(problem, outcome);
    const OptionOutcome result = run(backward);
    check(backward, result);
    if (problem.gradient == Gradient::none || !problem.rows_start_alike()) return;
    EXPECT_TRUE(result.dlogits == outcome.dlogits) << "the backward pass gave other bits";
}

TEST(OptionsPairwise, AgreeWithTheOracle) {
    Random random = make_random();
    const Covering covering = make_covering();
    std::vector<Case> cases;
    for (int round = 0; round < 3; round++)  // different ones: what meets by chance differs
        for (const Case &c : covering.cases(random)) cases.push_back(c);
    RecordProperty("cases", static_cast<int>(cases.size()));
    for (size_t k = 0; k < cases.size() && !HasFailure(); k++) {
        const OptionProblem problem = make_problem(random, cases[k]);
        SCOPED_TRACE("case " + std::to_string(k) + ": " + problem.describe());
        const OptionOutcome outcome = run_and_check(problem);
        // The host refuses a label out of range in a call that has no n_out_of_range.
        const bool refused = cases[k][labels] == some_out_of_range && !engine().is_cuda();
        if (problem.outputs.has(Output::row_statistics) && !refused && !HasFailure()) check_backward(problem, outcome);
    }
}

TEST(OptionsPairwise, EveryTwoValuesMeet) {
    Random random = make_random();
    const std::vector<Case> cases = Covering({3, 2, 4, 2}).cases(random);
    for (auto [a, b, levels] : {std::array{0, 1, 6}, {0, 2, 12}, {0, 3, 6}, {1, 2, 8}, {1, 3, 4}, {2, 3, 8}}) {
        std::set<std::pair<int, int>> met;
        for (const Case &c : cases) met.insert({c[static_cast<size_t>(a)], c[static_cast<size_t>(b)]});
        EXPECT_EQ(met.size(), static_cast<size_t>(levels)) << "factors " << a << " and " << b;
    }
    EXPECT_LT(cases.size(), 3u * 2 * 4 * 2);
}

}  // namespace
}  // namespace test
