#include "cpu/row.h"

#include <cmath>
#include <limits>

namespace gh::cpu {

ExpSum merge(const ExpSum &a, const ExpSum &b) {
    const ExpSum &high = a.max >= b.max ? a : b, &low = a.max >= b.max ? b : a;
    if (low.scale == 0) return high;
    const double difference = static_cast<double>(low.max) - static_cast<double>(high.max);
    return {high.max, high.scale + low.scale * std::exp(difference)};
}

RowResult finish_row(const ExpSum &others, float target, float z_loss_multiplier) {
    const bool nothing_is_finite = others.scale == 0 && target == -INFINITY;
    if (std::isnan(others.scale) || std::isnan(target) || target == INFINITY || nothing_is_finite) {
        constexpr float nan = std::numeric_limits<float>::quiet_NaN();
        return {nan, nan, nan, nan, nan};
    }

    // The loss is never taken as lse - target: for a nearly certain row that difference is all rounding error.
    const double x = target, m = others.max;
    RowResult row;
    double other_share, target_share, sum;
    if (x >= m) {
        row.max = target;
        const double relative = others.scale * std::exp(m - x);
        sum = 1 + relative;
        target_share = 1 / sum;
        other_share = relative / sum;
        row.loss = std::log1p(relative);
        row.lse = x + row.loss;
    } else {
        row.max = others.max;
        const double relative = std::exp(x - m);
        sum = others.scale + relative;
        target_share = relative / sum;
        other_share = others.scale / sum;
        const double log_sum = std::log(sum);
        row.loss = m - x + log_sum;
        row.lse = m + log_sum;
    }

    const double z_slope = z_loss_multiplier == 0 ? 0 : 2.0 * z_loss_multiplier * row.lse;
    row.factor = (1 + z_slope) / sum;
    row.target_gradient = static_cast<float>(target_share * z_slope - other_share);
    return row;
}

}  // namespace gh::cpu
