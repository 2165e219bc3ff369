#include "cpu/row.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

namespace gh::cpu {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// 0 for a weight of 0, also where the value is infinite.
double weighted(double weight, double value) {
    return weight == 0 && std::isinf(value) ? 0 : weight * value;
}

double raised(const WeightedDistance &sum, double rise) {
    return sum.distance + weighted(sum.weight, rise);
}

Softmax nan_softmax() {
    return {static_cast<float>(nan), nan, nan, nan, nan, nan, nan, nan, nan, nan};
}

float anchor_of(const LogitMap &map, float logit, double x) {
    return map.softcap == 0 ? logit : static_cast<float>(x);
}

}  // namespace

ExpSum merge(const ExpSum &a, const ExpSum &b) {
    const ExpSum &high = a.max >= b.max ? a : b, &low = a.max >= b.max ? b : a;
    if (low.scale == 0) return high;
    // With a softcap, the x of a smaller logit may be rounded to more.
    const double rise = std::max(high.x - low.x, 0.0), factor = std::exp(-rise);
    return {high.max, high.x, high.scale + low.scale * factor,
            high.distance + factor * (low.distance + rise * low.scale)};
}

WeightedDistance merge(const WeightedDistance &a, double a_x, const WeightedDistance &b, double b_x, double max_x) {
    return {a.weight + b.weight, raised(a, max_x - a_x) + raised(b, max_x - b_x)};
}

Softmax softmax_of(const RowStatistics &row, const LogitMap &map, double max_x, double target_x) {
    Softmax softmax = nan_softmax();
    const bool nothing_is_finite = row.scale == 0 && row.target == -INFINITY;
    if (std::isnan(row.scale) || std::isnan(row.target) || row.target == INFINITY || nothing_is_finite) return softmax;

    // The loss is never taken as lse - target_x: for a nearly certain row that difference is all rounding error.
    if (target_x >= max_x || row.scale == 0) {
        softmax.anchor = anchor_of(map, row.target, target_x);
        softmax.target_distance = 0;
        softmax.others_distance = target_x - max_x;
        const double factor = std::exp(max_x - target_x), relative = row.scale * factor;
        softmax.sum = 1 + relative;
        softmax.target_share = 1 / softmax.sum;
        softmax.others_share = relative / softmax.sum;
        softmax.log_sum = softmax.target_loss = std::log1p(relative);
        softmax.lse = target_x + softmax.log_sum;
        softmax.mean_distance = factor * (row.distance + softmax.others_distance * row.scale) / softmax.sum;
    } else {
        softmax.anchor = anchor_of(map, row.max, max_x);
        softmax.target_distance = max_x - target_x;
        softmax.others_distance = 0;
        const double relative = std::exp(target_x - max_x);
        softmax.sum = row.scale + relative;
        softmax.target_share = relative / softmax.sum;
        softmax.others_share = row.scale / softmax.sum;
        softmax.log_sum = std::log(softmax.sum);
        softmax.target_loss = softmax.target_distance + softmax.log_sum;
        softmax.lse = max_x + softmax.log_sum;
        softmax.mean_distance = (row.distance + weighted(relative, softmax.target_distance)) / softmax.sum;
    }
    return softmax;
}

Softmax softmax_of(float lse, const LogitMap &map, double target_x) {
    Softmax softmax = nan_softmax();
    if (!std::isfinite(lse) || !(target_x < INFINITY)) return softmax;
    softmax.lse = lse;
    // The logit whose x is nearest to lse takes the place of the largest one.
    const double scale = map.scale, logit = softmax.lse / scale, largest = FLT_MAX;
    const float anchor = static_cast<float>(std::clamp(logit, -largest, largest));
    softmax.anchor = anchor_of(map, anchor, softmax.lse);
    softmax.log_sum = map.softcap == 0 ? softmax.lse - scale * static_cast<double>(anchor) : 0;
    softmax.sum = std::exp(softmax.log_sum);
    softmax.target_loss = std::max(softmax.lse - target_x, 0.0);
    softmax.target_share = std::exp(-softmax.target_loss);
    softmax.others_share = -std::expm1(-softmax.target_loss);
    return softmax;
}

double row_loss(const Formula &formula, const Softmax &softmax, double target_weight, const WeightedDistance &others) {
    const double loss = weighted((1 - formula.label_smoothing) * target_weight, softmax.target_loss);
    if (formula.label_smoothing == 0) return loss;
    const double distance = raised(others, softmax.others_distance) + weighted(target_weight, softmax.target_distance);
    return loss + formula.smoothing_share * (formula.total_weight * softmax.log_sum + distance);
}

RowGradient row_gradient(const Formula &formula, const Softmax &softmax, double target_weight, double target_slope,
                         const Upstream &upstream) {
    // The derivative of the loss by lse: of the label's own term, and of the others.
    const double own = (1 - formula.label_smoothing) * target_weight;
    const double z_slope = formula.z_loss_multiplier == 0 ? 0 : 2 * formula.z_loss_multiplier * softmax.lse;
    const double spread =
        formula.label_smoothing == 0 ? z_slope : formula.smoothing_share * formula.total_weight + z_slope;
    const double u = upstream.loss * formula.logit_scale, h = upstream.entropy * formula.logit_scale;
    const double shift = formula.smoothing_share;
    double factor = u * (own + spread);
    double target = u * (softmax.target_share * spread - own * softmax.others_share - weighted(shift, target_weight));
    if (h != 0) {
        factor -= h * softmax.mean_distance;
        target += h * weighted(softmax.target_share, softmax.target_distance - softmax.mean_distance);
    }
    if (softmax.is_nan() || std::isnan(factor)) return {{nan, nan, nan}, 0, static_cast<float>(nan), true};
    return {{factor / softmax.sum, h / softmax.sum, u * shift},
            softmax.anchor,
            static_cast<float>(target * target_slope),
            false};
}

}  // namespace gh::cpu
