#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double smallest_normal = 0x1p-126;

Row nan_row(size_t vocab) {
    Row row;
    row.counted = true;
    row.loss = row.lse = nan;
    row.gradient.assign(vocab, nan);
    row.gradient_error.assign(vocab, 0);
    return row;
}

}  // namespace

Row reference_row(const Problem &problem, int64_t index, int partial_sums) {
    const auto vocab = static_cast<size_t>(problem.vocab);
    const int64_t label = problem.labels[static_cast<size_t>(index)];
    Row row;
    if (label == problem.ignore_index) {
        row.gradient.assign(vocab, 0);
        row.gradient_error.assign(vocab, 0);
        return row;
    }
    if (label < 0 || label >= problem.vocab) return nan_row(vocab);

    std::vector<double> x(vocab);
    double max = -std::numeric_limits<double>::infinity();
    bool any_nan = false;
    for (size_t j = 0; j < vocab; j++) {
        x[j] = problem.logit(index, static_cast<int64_t>(j));
        any_nan |= std::isnan(x[j]);
        max = std::max(max, x[j]);
    }
    if (any_nan || std::isinf(max)) return nan_row(vocab);

    const auto y = static_cast<size_t>(label);
    std::vector<double> e(vocab);
    long double others = 0, others_distance = 0;  // sums of exp(-d) and of d * exp(-d)
    for (size_t j = 0; j < vocab; j++) {
        e[j] = std::exp(x[j] - max);
        if (j == y || e[j] == 0) continue;
        others += e[j];
        others_distance += static_cast<long double>(max - x[j]) * e[j];
    }
    const long double target = e[y];
    const double target_distance = max - x[y];
    const long double sum = others + target;
    const auto log_sum = static_cast<double>(std::log(sum));
    const auto mean_distance =
        static_cast<double>((others_distance + (target > 0 ? target_distance * target : 0)) / sum);
    const double others_mean_distance = others > 0 ? static_cast<double>(others_distance / others) : 0;
    const auto others_share = static_cast<double>(others / sum);
    const double terms = 16 + static_cast<double>(problem.vocab) / partial_sums;

    row.counted = true;
    // log1p keeps a tiny loss; the other form is for a target whose exp(-d) underflows.
    row.loss = target_distance < 700 ? static_cast<double>(std::log1p(others / target)) : target_distance + log_sum;
    row.lse = max + log_sum;
    // A distance beyond this underflows to an exact 0 and has no rounding error left to scale.
    const double bounded_distance = std::min(target_distance, 1000.0);
    const double others_error = u * (terms + 3 * (others_mean_distance + mean_distance + bounded_distance));
    row.loss_error = std::isinf(row.loss) ? 0
                                          : others_share * others_error + 4 * u * row.loss +
                                                static_cast<double>(problem.vocab) * smallest_normal;
    row.lse_error = u * (terms + 3 * mean_distance + 2 * log_sum + std::fabs(max) + std::fabs(row.lse));

    const double z = problem.z_loss_multiplier;
    const double z_part = 2 * z * row.lse;
    const double z_part_error = 2 * std::fabs(z) * row.lse_error + 2 * u * std::fabs(z_part);
    const double scale = 1 + z_part;
    row.gradient.resize(vocab);
    row.gradient_error.resize(vocab);
    for (size_t j = 0; j < vocab; j++) {
        const auto p = static_cast<double>(e[j] / sum);
        const double p_error = p * u * (terms + 3 * (std::min(max - x[j], 1000.0) + mean_distance));
        row.gradient[j] = p * scale;
        row.gradient_error[j] =
            std::fabs(scale) * p_error + p * (z_part_error + 2 * u) + smallest_normal * (1 + std::fabs(z_part));
        if (j == y) {
            row.gradient[j] = p * z_part - others_share;
            row.gradient_error[j] = others_share * others_error + std::fabs(z_part) * p_error + p * z_part_error +
                                    smallest_normal * (static_cast<double>(problem.vocab) + std::fabs(z_part));
        }
    }
    return row;
}

}  // namespace test
