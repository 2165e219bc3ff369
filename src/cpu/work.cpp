#include "cpu/work.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace gh::cpu {
namespace {

double total_weight(const CrossEntropy &call) {
    if (call.class_weights == nullptr) return static_cast<double>(call.vocab);
    double sum = 0;
    for (int64_t i = 0; i < call.vocab; i++) sum += static_cast<double>(call.class_weights[i]);
    return sum;
}

// What a mean is over. Known before the first row's gradient is written.
double mean_divisor(const CrossEntropy &call) {
    double sum = 0;
    for (int64_t row = 0; row < call.batch; row++) {
        const int64_t label = call.label(row);
        if (label == call.ignore_index) continue;
        if (call.class_weights == nullptr)
            sum += 1;
        else if (call.label_in_range(label))
            sum += static_cast<double>(call.class_weights[label]);
    }
    return sum;
}

}  // namespace

Work::Work(const CrossEntropy &call, Isa isa)
    : call_(call),
      kernels_(kernels(isa, call.dtype)),
      element_(static_cast<int64_t>(element_size(call.dtype))),
      segment_((call.vocab / max_segments / min_segment + 1) * min_segment),
      segments_((call.vocab - 1) / segment_ + 1),
      map_{call.logit_scale, call.softcap},
      maps_logits_(call.logit_scale != 1 || call.softcap != 0),
      plain_gradient_(!maps_logits_ && call.label_smoothing == 0 && call.row_dentropy == nullptr),
      needs_distances_(call.label_smoothing != 0 && (call.loss != nullptr || call.row_loss != nullptr)) {
    formula_.label_smoothing = static_cast<double>(call.label_smoothing);
    formula_.smoothing_share = formula_.label_smoothing / static_cast<double>(call.vocab);
    // Without rows, nobody has checked the weights' memory.
    formula_.total_weight = call.label_smoothing == 0 || call.batch == 0 ? 0 : total_weight(call);
    formula_.z_loss_multiplier = static_cast<double>(call.z_loss_multiplier);
    formula_.logit_scale = static_cast<double>(call.logit_scale);
    divisor_ = call.mean ? mean_divisor(call) : 1;
    dloss_ = call.dloss;
    if (call.dloss_ptr != nullptr) dloss_ *= *call.dloss_ptr;
}

int64_t Work::end_of(int64_t segment) const {
    return std::min(begin_of(segment) + segment_, call_.vocab);
}

float Work::target(int64_t row) const {
    const int64_t label = call_.label(row);
    return call_.label_in_range(label) ? kernels_.load(logit(row, label)) : std::numeric_limits<float>::quiet_NaN();
}

double Work::target_weight(int64_t row) const {
    const int64_t label = call_.label(row);
    if (call_.class_weights == nullptr || !call_.label_in_range(label)) return 1;
    return static_cast<double>(call_.class_weights[label]);
}

RowSums Work::sum_segment(int64_t row, int64_t segment) const {
    const int64_t begin = begin_of(segment), end = end_of(segment);
    const int64_t label = call_.label_in_range(call_.label(row)) ? call_.label(row) : -1;
    RowSums sums{kernels_.exp_sum(logit(row, begin), end - begin, label - begin, maps_logits_ ? &map_ : nullptr,
                                  call_.needs_entropy()),
                 {0, 0},
                 segment};
    if (!needs_distances_) return sums;
    const auto distances = [&](int64_t first, int64_t last) {
        const float *weights = call_.class_weights == nullptr ? nullptr : call_.class_weights + first;
        return kernels_.weighted_distance(logit(row, first), last - first, sums.others.max, map_, weights);
    };
    const int64_t left = std::clamp(label, begin, end), right = std::clamp(label + 1, begin, end);
    const WeightedDistance a = distances(begin, left), b = distances(right, end);
    sums.distances = {a.weight + b.weight, a.distance + b.distance};
    return sums;
}

RowSums Work::merge(const RowSums &left, const RowSums &right) {
    RowSums sums;
    sums.others = cpu::merge(left.others, right.others);
    sums.distances = cpu::merge(left.distances, left.others.x, right.distances, right.others.x, sums.others.x);
    const bool right_is_larger = right.others.max > left.others.max || left.others.scale == 0;
    sums.max_segment = right_is_larger ? right.max_segment : left.max_segment;
    return sums;
}

int64_t Work::argmax(int64_t row, const RowSums &sums, float target) const {
    const int64_t label = call_.label(row);
    if (target > sums.others.max || sums.others.scale == 0) return label;
    const int64_t begin = begin_of(sums.max_segment), end = end_of(sums.max_segment);
    const int64_t first = begin + kernels_.find(logit(row, begin), end - begin, sums.others.max);
    return target == sums.others.max ? std::min(first, label) : first;
}

RowGradient Work::finish(int64_t row, const RowSums &sums, Totals &totals) const {
    const float target_logit = target(row);
    const RowStatistics statistics{sums.others.max, target_logit, sums.others.scale, sums.others.distance, 0};
    const Softmax softmax = softmax_of(statistics, map_, sums.others.x, kernels_.map(map_, target_logit));
    const double loss = row_loss(formula_, softmax, target_weight(row), sums.distances);
    const bool is_nan = std::isnan(loss);
    const int64_t largest = call_.needs_argmax() && !is_nan ? argmax(row, sums, target_logit) : -1;
    const int64_t label = call_.label(row);

    totals.loss += loss;
    totals.lse_squared += is_nan ? loss : softmax.lse * softmax.lse;
    totals.n_valid += 1;
    totals.n_correct += largest >= 0 && largest == label;  // a row that is NaN has -1, as a label may be
    totals.n_out_of_range += !call_.label_in_range(label);

    const auto write = [&](float *output, double value) {
        if (output != nullptr) output[row] = static_cast<float>(is_nan ? loss : value);
    };
    const double z_loss = formula_.z_loss_multiplier == 0 ? 0 : formula_.z_loss_multiplier * softmax.lse * softmax.lse;
    write(call_.row_loss, loss + z_loss);
    write(call_.row_lse, softmax.lse);
    write(call_.row_target_log_prob, 0 - softmax.target_loss);
    write(call_.row_entropy, softmax.entropy());
    if (call_.row_argmax != nullptr) call_.row_argmax[row] = largest;
    if (call_.row_statistics != nullptr)
        std::memcpy(static_cast<char *>(call_.row_statistics) + row * GH_ROW_STATISTICS_BYTES, &statistics,
                    sizeof(statistics));
    return has_gradient() ? gradient(row, softmax, target_logit) : RowGradient{};
}

void Work::finish_ignored(int64_t row) const {
    for (float *output : {call_.row_loss, call_.row_lse, call_.row_target_log_prob, call_.row_entropy})
        if (output != nullptr) output[row] = 0;
    if (call_.row_argmax != nullptr) call_.row_argmax[row] = -1;
    if (call_.row_statistics != nullptr)
        std::memset(static_cast<char *>(call_.row_statistics) + row * GH_ROW_STATISTICS_BYTES, 0,
                    GH_ROW_STATISTICS_BYTES);
}

RowGradient Work::saved(int64_t row) const {
    if (call_.saved_lse != nullptr) {
        const float target_logit = target(row);
        return gradient(row, softmax_of(call_.saved_lse[row], map_, kernels_.map(map_, target_logit)), target_logit);
    }
    RowStatistics statistics;
    std::memcpy(&statistics, static_cast<const char *>(call_.saved_statistics) + row * GH_ROW_STATISTICS_BYTES,
                sizeof(statistics));
    const double max_x = kernels_.map(map_, statistics.max), target_x = kernels_.map(map_, statistics.target);
    return gradient(row, softmax_of(statistics, map_, max_x, target_x), statistics.target);
}

RowGradient Work::gradient(int64_t row, const Softmax &softmax, float target_logit) const {
    float dloss = dloss_;
    if (call_.row_dloss != nullptr) dloss *= call_.row_dloss[row];
    if (call_.mean) dloss = divisor_ == 0 ? 0 : dloss / static_cast<float>(divisor_);
    const float dentropy = call_.row_dentropy == nullptr ? 0 : call_.row_dentropy[row];
    double slope = 1;
    if (call_.softcap != 0) {
        const double cosine = std::cosh(static_cast<double>(call_.logit_scale) * static_cast<double>(target_logit) /
                                        static_cast<double>(call_.softcap));
        slope = 1 / (cosine * cosine);
    }
    return row_gradient(formula_, softmax, target_weight(row), slope, {dloss, dentropy});
}

void Work::write_gradient(int64_t row, int64_t first, int64_t last, const RowGradient &gradient) const {
    const int64_t begin = begin_of(first), end = end_of(last - 1);
    if (gradient.is_nan) {
        fill(row, begin, end, gradient.target);
        return;
    }
    const char *x = logit(row, begin);
    char *y = dlogit(row, begin);
    if (plain_gradient_) {
        kernels_.exp_scale(x, y, end - begin, gradient.anchor, gradient.terms.factor);
    } else {
        const bool has_weights = call_.label_smoothing != 0 && call_.class_weights != nullptr;
        kernels_.gradient(x, y, end - begin, map_, gradient.anchor, gradient.terms,
                          has_weights ? call_.class_weights + begin : nullptr);
    }
    const int64_t label = call_.label(row);
    if (label >= begin && label < end) kernels_.store(dlogit(row, label), gradient.target);
}

void Work::write_zeros(int64_t row, int64_t first, int64_t last) const {
    const int64_t begin = begin_of(first), end = end_of(last - 1);
    std::memset(dlogit(row, begin), 0, static_cast<size_t>((end - begin) * element_));
}

void Work::fill(int64_t row, int64_t begin, int64_t end, float value) const {
    kernels_.store(dlogit(row, begin), value);
    for (int64_t done = 1; done < end - begin; done *= 2) {
        const int64_t count = std::min(done, end - begin - done);
        std::memcpy(dlogit(row, begin + done), dlogit(row, begin), static_cast<size_t>(count * element_));
    }
}

void Work::whole_row(int64_t row, Totals &totals) const {
    if (is_ignored(row)) {
        finish_ignored(row);
        if (has_gradient()) write_zeros(row, 0, segments_);
        return;
    }
    const RowGradient gradient = has_sums() ? finish(row, sum_row(row), totals) : saved(row);
    if (has_gradient()) write_gradient(row, 0, segments_, gradient);
}

RowSums Work::sum_row(int64_t row) const {
    RowSums sums = sum_segment(row, 0);
    for (int64_t segment = 1; segment < segments_; segment++) sums = merge(sums, sum_segment(row, segment));
    return sums;
}

}  // namespace gh::cpu
