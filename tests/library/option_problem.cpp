#include "option_problem.h"

#include <cstring>
#include <sstream>

namespace test {

Outputs Outputs::all(gh_reduction reduction) {
    Outputs result;
    result.bits_.set();
    if (reduction == GH_REDUCTION_NONE) {
        result.remove(Output::loss);
        result.remove(Output::z_loss);
    }
    return result;
}

double OptionProblem::weight(int64_t column) const {
    return class_weights.empty() ? 1 : double{class_weights[static_cast<size_t>(column)]};
}

bool OptionProblem::rows_start_alike() const {
    if (gradient != Gradient::out_of_place) return true;
    const auto element = static_cast<int64_t>(element_size(dtype));
    const bool first = (offset - dlogits_offset) * element % 128 == 0;
    return first && (batch < 2 || (padding - dlogits_padding) * element % 128 == 0);
}

std::string OptionProblem::describe() const {
    static constexpr const char *gradients[] = {"no gradient", "in place", "out of place"};
    static constexpr const char *reductions[] = {"sum", "mean", "none"};
    std::ostringstream text;
    text << Rows::describe() << ", " << gradients[static_cast<int>(gradient)] << ", padding " << padding;
    if (gradient == Gradient::out_of_place)
        text << ", dlogits_padding " << dlogits_padding << ", dlogits_offset " << dlogits_offset;
    text << (label_dtype == GH_LABEL_I32 ? ", I32" : ", I64") << " labels, reduction " << reductions[reduction]
         << ", label_smoothing " << label_smoothing << ", logit_scale " << logit_scale << ", softcap " << softcap
         << ", dloss " << dloss;
    if (dloss_ptr) text << ", *dloss_ptr " << *dloss_ptr;
    if (!class_weights.empty()) text << ", class_weights";
    if (!row_dloss.empty()) text << ", row_dloss";
    if (!row_dentropy.empty()) text << ", row_dentropy";
    text << ", outputs " << outputs.describe() << ", sums " << (sums == GH_SUMS_ADD ? "added" : "overwritten");
    if (with_workspace) text << ", workspace";
    if (!saved_statistics.empty()) text << ", backward from statistics";
    if (!saved_lse.empty()) text << ", backward from lse";
    return text.str();
}

float OptionOutcome::number(Output output, int64_t row) const {
    return numbers(output).at(static_cast<size_t>(row));
}

std::vector<float> OptionOutcome::numbers(Output output) const {
    std::vector<float> values(bytes(output).size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes(output).data(), bytes(output).size());
    return values;
}

int64_t OptionOutcome::argmax(int64_t row) const {
    int64_t value;
    std::memcpy(&value, &bytes(Output::row_argmax).at(static_cast<size_t>(row) * sizeof(value)), sizeof(value));
    return value;
}

OptionProblem backward_from(const OptionProblem &problem, const OptionOutcome &outcome) {
    OptionProblem backward = problem;
    if (backward.gradient == Gradient::none) backward.gradient = Gradient::in_place;
    backward.outputs = {};
    backward.saved_statistics = outcome.bytes(Output::row_statistics);
    return backward;
}

OptionProblem random_option_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, double deviation) {
    OptionProblem problem(dtype, batch, vocab);
    randomize(random, problem, deviation);
    return problem;
}

OptionProblem random_full_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, double deviation) {
    OptionProblem problem = random_option_problem(random, dtype, batch, vocab, deviation);
    randomize_options(random, problem);
    problem.reduction = static_cast<gh_reduction>(uniform(random, 0, 2));
    problem.outputs = Outputs::all(problem.reduction);
    return problem;
}

void randomize_options(Random &random, OptionProblem &problem) {
    auto chance = [&] { return uniform(random, 0, 1) == 1; };
    auto real = [&](double lowest, double highest) { return random_floats(random, 1, lowest, highest)[0]; };
    problem.label_smoothing = chance() ? real(0, 1) : 0;
    problem.z_loss_multiplier = chance() ? real(-0.1, 0.1) : 0;
    problem.logit_scale = chance() ? real(0.3, 3) : 1;
    problem.softcap = chance() ? real(2, 40) : 0;
    problem.dloss = chance() ? real(-2, 2) : 1;
    problem.dloss_ptr.reset();
    if (chance()) problem.dloss_ptr = real(-2, 2);
    problem.class_weights = random_floats(random, chance() ? problem.vocab : 0, 0, 2);
    problem.row_dloss = random_floats(random, chance() ? problem.batch : 0, -2, 2);
    problem.row_dentropy = random_floats(random, chance() ? problem.batch : 0, -2, 2);
}

OptionProblem random_extreme_problem(Random &random, gh_dtype dtype, int64_t vocab, const Extreme &extreme) {
    // Not so large that tanh is 1 in fp32: which of the largest are then equal, and share the probability, is left
    // open.
    OptionProblem problem = random_option_problem(random, dtype, 6, vocab, 0.5);
    for (int64_t i = 2; i < problem.batch; i++) problem.fill(i, 0);
    problem.set(3, uniform(random, 0, vocab - 1), 1.5);
    problem.set(4, problem.labels[4], -1.5);
    for (int64_t j = 0; j < vocab; j += 2) problem.set(5, j, static_cast<double>(uniform(random, -3, 3)));
    problem.logit_scale = extreme.logit_scale;
    problem.softcap = extreme.softcap;
    problem.outputs = Outputs::all(problem.reduction);
    return problem;
}

std::vector<float> random_floats(Random &random, int64_t count, double lowest, double highest) {
    std::uniform_real_distribution<double> distribution(lowest, highest);
    std::vector<float> values(static_cast<size_t>(count));
    for (float &value : values) value = static_cast<float>(distribution(random));
    return values;
}

}  // namespace test
