#include "option_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle.h"

namespace test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double smallest_normal = 0x1p-126;

// x_j with its error, and dx_j / dlogits_j with its.
struct Transform {
    double x, x_error, slope, slope_error;
};

Transform transform(const OptionProblem &problem, double logit) {
    const double s = problem.logit_scale, c = problem.softcap;
    int exponent;
    const bool exact = std::frexp(s, &exponent) == 0.5;
    const double t = s * logit;
    const double t_error = exact || std::isinf(t) ? 0 : u * std::fabs(t);
    if (c == 0) return {t, t_error, s, 0};
    if (std::isinf(logit)) return {logit, 0, 0, 0};  // the cap leaves it, and its slope there is 0
    const double tau = std::tanh(t / c);
    // 1 - tau^2 without cancellation; 0 where cosh overflows.
    const double slope = 1 / std::pow(std::cosh(t / c), 2);
    const double argument_error = slope > 0 ? slope * (t_error + 2 * u * std::fabs(t)) : 0;
    return {c * tau, argument_error + 8 * u * c + u * std::fabs(c * tau), s * slope, 20 * u * s};
}

// A product where a factor of 0 stands for a term that is not there.
double term(double factor, double value) {
    return factor == 0 ? 0 : factor * value;
}

OptionRow nan_row(const OptionProblem &problem, bool in_range) {
    OptionRow row;
    row.counted = true;
    row.in_range = in_range;
    row.loss.value = row.z_loss.value = row.lse.value = row.target_log_prob.value = row.entropy.value = nan;
    row.gradient.assign(static_cast<size_t>(problem.vocab), nan);
    row.gradient_error.assign(static_cast<size_t>(problem.vocab), 0);
    return row;
}

}  // namespace

Bounded denominator(const OptionProblem &problem) {
    if (problem.reduction != GH_REDUCTION_MEAN) return {1, 0};
    double sum = 0, magnitude = 0, rows = 0;
    for (int64_t label : problem.labels) {
        if (label == problem.ignore_index) continue;
        const double weight = problem.class_weights.empty() ? 1 : problem.in_range(label) ? problem.weight(label) : nan;
        sum += weight;
        magnitude += std::fabs(weight);
        rows++;
    }
    return {sum, problem.class_weights.empty() ? 0 : u * rows * magnitude};
}

OptionRow reference_row(const OptionProblem &problem, int64_t index, const Bounded &denominator, int partial_sums) {
    std::vector<double> logits(static_cast<size_t>(problem.vocab));
    for (size_t j = 0; j < logits.size(); j++) logits[j] = problem.logit(index, static_cast<int64_t>(j));
    return reference_row(problem, index, logits, denominator, partial_sums);
}

OptionRow reference_row(const OptionProblem &problem, int64_t index, const std::vector<double> &logits,
                        const Bounded &denominator, int partial_sums) {
    const size_t vocab = logits.size();
    const auto N = static_cast<double>(vocab);
    const int64_t label = problem.labels[static_cast<size_t>(index)];
    if (label == problem.ignore_index) {
        OptionRow row;
        row.gradient.assign(vocab, 0);
        row.gradient_error.assign(vocab, 0);
        return row;
    }
    if (!problem.in_range(label)) return nan_row(problem, false);
    const auto y = static_cast<size_t>(label);

    std::vector<Transform> columns(vocab);
    size_t highest = 0;
    for (size_t j = 0; j < vocab; j++) {
        columns[j] = transform(problem, logits[j]);
        if (std::isnan(columns[j].x) || columns[j].x == inf) return nan_row(problem, true);
        if (columns[j].x > columns[highest].x) highest = j;
    }
    const double m = columns[highest].x, m_error = columns[highest].x_error;
    if (m == -inf) return nan_row(problem, true);

    OptionRow row;
    row.counted = row.in_range = true;
    // The transform never swaps two logits, but it may make them equal.
    row.argmax = std::max_element(logits.begin(), logits.end()) - logits.begin();

    // E_j + E_m, and the relative error of exp(-d_j) but for what all of them share. What is further than 1000 from the
    // maximum underflows to an exact 0, and has no rounding error left to scale.
    auto distance = [&](size_t j) { return m - columns[j].x; };
    auto distance_error = [&](size_t j) { return columns[j].x_error + m_error; };
    auto exp_error = [&](size_t j) { return 3 * u * std::min(distance(j), 1000.0) + distance_error(j); };

    std::vector<double> exps(vocab);
    long double others = 0, others_errors = 0, distances = 0;
    long double weights = 0, weights_magnitude = 0, weighted_distances = 0, weighted_magnitude = 0, weighted_errors = 0;
    for (size_t j = 0; j < vocab; j++) {
        exps[j] = std::exp(-distance(j));
        if (exps[j] > 0) {
            if (j != y) others += exps[j];
            if (j != y) others_errors += exps[j] * exp_error(j);
            distances += static_cast<long double>(exps[j]) * distance(j);
        }
        const double w = problem.weight(static_cast<int64_t>(j));
        weights += w;
        weights_magnitude += std::fabs(w);
        weighted_distances += term(w, distance(j));
        weighted_magnitude += term(std::fabs(w), distance(j));
        weighted_errors += std::fabs(w) * distance_error(j);
    }
    const long double sum = others + exps[y];
    const auto log_sum = static_cast<double>(std::log(sum));
    const auto others_share = static_cast<double>(others / sum);
    const auto mean_distance = static_cast<double>(distances / sum);
    const auto mean_error = static_cast<double>((others_errors + exps[y] * exp_error(y)) / sum);
    const double base = u * (16 + N / partial_sums);
    const double sigma = base + mean_error;
    // Of O / T_y.
    const double ratio_error =
        base + (others > 0 ? static_cast<double>(others_errors / others) : 0) + mean_error + exp_error(y);

    const double e = problem.label_smoothing, z = problem.z_loss_multiplier;
    const double target_weight = (1 - e) * problem.weight(label);

    // log1p keeps a tiny loss; the other form is for a target whose exponential underflows.
    const double surprise =
        distance(y) < 700 ? static_cast<double>(std::log1p(others / exps[y])) : distance(y) + log_sum;
    const double surprise_error =
        std::isinf(surprise) ? 0 : others_share * ratio_error + 4 * u * surprise + N * smallest_normal;
    row.target_log_prob = {-surprise, surprise_error};
    row.lse = {m + log_sum, sigma + m_error + u * (2 * log_sum + std::fabs(m) + std::fabs(m + log_sum))};

    const double lse = row.lse.value, lse_error = row.lse.error;
    const auto weighted_sum = static_cast<double>(weights * log_sum + weighted_distances);
    const double smoothing = term(e / N, weighted_sum);
    const double smoothing_magnitude =
        term(e / N, static_cast<double>(weights_magnitude * log_sum + weighted_magnitude));
    row.z_loss = {z * lse * lse,
                  std::fabs(z) * (2 * std::fabs(lse) + lse_error) * lse_error + 3 * u * std::fabs(z) * lse * lse};
    row.loss.value = term(target_weight, surprise) + smoothing + row.z_loss.value;
    row.loss.error = std::isinf(row.loss.value)
                         ? 0
                         : term(std::fabs(target_weight), surprise_error + 4 * u * surprise) +
                               u * (8 + 2 * N / partial_sums + 4) * smoothing_magnitude +
                               e / N * static_cast<double>(weighted_errors + weights_magnitude * sigma) +
                               row.z_loss.error + 4 * u * std::fabs(row.z_loss.value);

    row.entropy = {log_sum + mean_distance, sigma + 2 * u * log_sum + 2 * u * (log_sum + mean_distance)};
    for (size_t j = 0; j < vocab; j++)
        if (exps[j] > 0)
            row.entropy.error +=
                static_cast<double>(exps[j] / sum) * (distance(j) * (exp_error(j) + sigma + 4 * u) + distance_error(j));

    if (problem.gradient == Gradient::none && !problem.is_backward()) return row;

    const double from_lse = problem.saved_lse.empty() ? 0 : u * (std::fabs(lse) + 3 * log_sum);
    const double mean_weight = static_cast<double>(weights) / N;
    const double z_slope = 2 * z * lse;
    const double K = e * mean_weight + z_slope, L = target_weight + K;
    const double K_error = u * (4 + 2 * N / partial_sums) * e * static_cast<double>(weights_magnitude) / N +
                           2 * std::fabs(z) * (lse_error + from_lse) + 4 * u * std::fabs(z_slope);
    const double L_error = K_error + 4 * u * std::fabs(target_weight);

    const auto row_index = static_cast<size_t>(index);
    const double scale = denominator.value == 0 ? 0 : 1 / denominator.value;
    const double upstream = double{problem.dloss} * double{problem.dloss_ptr.value_or(1)} *
                            (problem.row_dloss.empty() ? 1 : double{problem.row_dloss[row_index]}) * scale;
    const double upstream_error = std::fabs(upstream) * (4 * u + denominator.error * std::fabs(scale));
    const double h = problem.row_dentropy.empty() ? 0 : double{problem.row_dentropy[row_index]};

    row.gradient.resize(vocab);
    row.gradient_error.resize(vocab);
    for (size_t j = 0; j < vocab; j++) {
        const auto p = static_cast<double>(exps[j] / sum);
        const double p_error = p * (sigma + exp_error(j) + from_lse);
        const double smoothed = e / N * problem.weight(static_cast<int64_t>(j));
        double g = p * L - smoothed;
        double g_magnitude = std::fabs(p * L) + std::fabs(smoothed);
        double g_error = std::fabs(L) * p_error + p * L_error + 3 * u * g_magnitude;
        double flushed = 1 + std::fabs(L);
        if (j == y) {
            g = p * K - target_weight * others_share - smoothed;
            g_magnitude = std::fabs(p * K) + std::fabs(target_weight) * others_share + std::fabs(smoothed);
            g_error = std::fabs(K) * p_error + p * K_error +
                      std::fabs(target_weight) * others_share * (ratio_error + 4 * u) + 3 * u * g_magnitude;
            if (from_lse > 0) g_error += std::fabs(target_weight) * (p_error + 4 * u) + 4 * u * (std::fabs(L) * p);
            flushed += N * std::fabs(target_weight);
        }
        double dentropy = 0, dentropy_error = 0;
        if (h != 0 && p > 0) {
            const double excess = distance(j) - mean_distance;
            dentropy = p * excess;
            dentropy_error = std::fabs(excess) * p_error + p * (4 * u * (distance(j) + log_sum + row.entropy.value) +
                                                                distance_error(j) + sigma + row.entropy.error);
            flushed += std::fabs(h) * (1 + distance(j) + log_sum + row.entropy.value);
        }
        const double slope = columns[j].slope;
        const double total = term(upstream, g) + h * dentropy;
        const double magnitude = std::fabs(upstream) * g_magnitude + std::fabs(h * dentropy);
        row.gradient[j] = slope * total;
        row.gradient_error[j] =
            slope * (std::fabs(upstream) * g_error + upstream_error * g_magnitude + std::fabs(h) * dentropy_error +
                     4 * u * magnitude) +
            columns[j].slope_error * std::fabs(total) + 2 * u * slope * std::fabs(total) +
            smallest_normal * (1 + double{problem.logit_scale}) * (1 + std::fabs(upstream)) * flushed;
    }
    return row;
}

}  // namespace test
