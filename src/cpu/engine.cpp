// Which thread does what, and in which order results are added.
//
// Nothing that depends on the number of threads may change a result. So every row is cut into the same segments whoever
// works on them, the segments' sums are merged from left to right, and the rows' losses are added in groups which
// depend on the batch alone. Nothing is allocated: what is shared between the threads has a fixed size.
#include "cpu/engine.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>

#include "cpu/row.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace gh::cpu {
namespace {

// A segment is the smallest part of a row that a thread takes: large enough to be worth handing out, and few enough to
// a row for their sums to be kept on the stack.
constexpr int64_t min_segment = 8192;
constexpr int64_t max_segments = 256;
constexpr int64_t max_groups = 1024;
// Rows whose segments are handed out together, and their segments.
constexpr int64_t max_split_rows = 64;
constexpr int64_t max_split_segments = 1024;
// Below so many elements, waking other threads takes longer than the work.
constexpr int64_t min_parallel_elements = 1 << 16;

struct Totals {
    double ce = 0;
    double z = 0;
    int64_t n_valid = 0;

    void add(const Totals &other) {
        ce += other.ce;
        z += other.z;
        n_valid += other.n_valid;
    }
};

// A thread may arrive with another rounding mode, or with denormals flushed to zero (as libraries built with
// -ffast-math set it for their whole process), and other threads without: then results would depend on their number.
class DefaultFloatingPoint {
public:
    DefaultFloatingPoint() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
    DefaultFloatingPoint(const DefaultFloatingPoint &) = delete;
    DefaultFloatingPoint &operator=(const DefaultFloatingPoint &) = delete;

private:
    std::fenv_t saved_;
};

int team_size() {
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

// One call, cut into rows and segments.
class Work {
public:
    Work(const CrossEntropy &call, Isa isa)
        : call_(call),
          kernels_(kernels(isa, call.dtype)),
          segment_((call.vocab / max_segments / min_segment + 1) * min_segment),
          segments_((call.vocab - 1) / segment_ + 1) {}

    int64_t segments() const { return segments_; }

    bool is_ignored(int64_t row) const { return call_.label(row) == call_.ignore_index; }

    // The sum over one segment without the label's column. If the label is in the segment, its logit goes to `target`
    // and is replaced with -inf; the gradient overwrites that.
    ExpSum sum_segment(int64_t row, int64_t segment, float &target) const {
        const int64_t begin = segment * segment_, end = std::min(begin + segment_, call_.vocab);
        const int64_t label = call_.label(row);
        if (label >= begin && label < end) {
            target = kernels_.load(at(row, label));
            kernels_.store(at(row, label), -INFINITY);
        }
        return kernels_.exp_sum(at(row, begin), end - begin);
    }

    RowResult finish(const ExpSum &others, float target) const {
        return finish_row(others, target, call_.z_loss_multiplier);
    }

    // Replaces the logits of segments [first, last) with their gradient.
    void write_gradient(int64_t row, int64_t first, int64_t last, const RowResult &result) const {
        const int64_t begin = first * segment_, end = std::min(last * segment_, call_.vocab);
        if (result.is_nan()) {
            fill(row, begin, end, result.target_gradient);
            return;
        }
        kernels_.exp_scale(at(row, begin), end - begin, result.max, result.factor);
        const int64_t label = call_.label(row);
        if (label >= begin && label < end) kernels_.store(at(row, label), result.target_gradient);
    }

    void write_zeros(int64_t row, int64_t first, int64_t last) const {
        const int64_t begin = first * segment_, end = std::min(last * segment_, call_.vocab);
        std::memset(at(row, begin), 0, static_cast<size_t>(end - begin) * element_size(call_.dtype));
    }

    Totals whole_row(int64_t row) const {
        if (is_ignored(row)) {
            write_zeros(row, 0, segments_);
            return {};
        }
        float target = 0;
        ExpSum others = sum_segment(row, 0, target);
        for (int64_t segment = 1; segment < segments_; segment++)
            others = merge(others, sum_segment(row, segment, target));
        const RowResult result = finish(others, target);
        write_gradient(row, 0, segments_, result);
        return totals_of(result);
    }

    static Totals totals_of(const RowResult &result) { return {result.loss, result.lse * result.lse, 1}; }

private:
    void *at(int64_t row, int64_t column) const {
        const int64_t element = static_cast<int64_t>(element_size(call_.dtype));
        return static_cast<char *>(call_.dlogits) + (row * call_.vocab + column) * element;
    }

    void fill(int64_t row, int64_t begin, int64_t end, float value) const {
        kernels_.store(at(row, begin), value);
        for (int64_t done = 1; done < end - begin; done *= 2) {
            const int64_t count = std::min(done, end - begin - done);
            std::memcpy(at(row, begin + done), at(row, begin), static_cast<size_t>(count) * element_size(call_.dtype));
        }
    }

    const CrossEntropy &call_;
    const Kernels &kernels_;
    const int64_t segment_;
    const int64_t segments_;
};

// Rows that all threads work on together, a segment each. Shared by the threads.
class SplitRows {
public:
    explicit SplitRows(const Work &work)
        : work_(work),
          segments_(work.segments()),
          rows_at_once_(std::min(max_split_rows, max_split_segments / segments_)) {}

    // Called by the whole team. The static schedule gives each thread the same segments in both sweeps, so that the
    // second finds them in the thread's own cache.
    void run(int64_t begin, int64_t end, Totals *totals) {
        for (int64_t first = begin; first < end; first += rows_at_once_) {
            const int64_t rows = std::min(rows_at_once_, end - first), items = rows * segments_;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < items; i++) {
                const int64_t slot = i / segments_, row = first + slot;
                if (!work_.is_ignored(row)) sums_[i] = work_.sum_segment(row, i % segments_, targets_[slot]);
            }
#pragma omp for schedule(static)
            for (int64_t slot = 0; slot < rows; slot++) {
                if (work_.is_ignored(first + slot)) continue;
                const ExpSum *sums = sums_ + slot * segments_;
                ExpSum others = sums[0];
                for (int64_t segment = 1; segment < segments_; segment++) others = merge(others, sums[segment]);
                results_[slot] = work_.finish(others, targets_[slot]);
                totals[first + slot] = Work::totals_of(results_[slot]);
            }
#pragma omp for schedule(static)
            for (int64_t i = 0; i < items; i++) {
                const int64_t slot = i / segments_, row = first + slot, segment = i % segments_;
                if (work_.is_ignored(row))
                    work_.write_zeros(row, segment, segment + 1);
                else
                    work_.write_gradient(row, segment, segment + 1, results_[slot]);
            }
        }
    }

private:
    const Work &work_;
    const int64_t segments_;
    const int64_t rows_at_once_;
    ExpSum sums_[max_split_segments];
    float targets_[max_split_rows];
    RowResult results_[max_split_rows];
};

}  // namespace

gh_status cross_entropy(const CrossEntropy &call, Isa isa) {
    const DefaultFloatingPoint environment;
    const Work work(call, isa);
    SplitRows split_rows(work);
    Totals totals[max_groups];
    const int64_t groups = std::min(call.batch, max_groups);

    [[maybe_unused]] const bool parallel = call.batch * call.vocab >= min_parallel_elements;
#pragma omp parallel if (parallel)
    {
        const DefaultFloatingPoint thread_environment;
        // Of a few long rows, those that would leave threads without a row are split; then a group is one row.
        const bool may_split = work.segments() > 1 && call.batch <= max_groups;
        const int64_t whole_groups = may_split ? groups - groups % team_size() : groups;
#pragma omp for schedule(dynamic) nowait
        for (int64_t group = 0; group < whole_groups; group++) {
            // Without the product batch * group, which could overflow.
            const int64_t size = call.batch / groups, larger = call.batch % groups;
            const int64_t begin = group * size + std::min(group, larger);
            const int64_t end = begin + size + (group < larger ? 1 : 0);
            Totals sum;
            for (int64_t row = begin; row < end; row++) sum.add(work.whole_row(row));
            totals[group] = sum;
        }
        split_rows.run(whole_groups, groups, totals);
    }

    Totals sum;
    for (int64_t group = 0; group < groups; group++) sum.add(totals[group]);
    *call.loss = static_cast<float>(static_cast<double>(*call.loss) + sum.ce);
    if (call.z_loss) *call.z_loss = static_cast<float>(static_cast<double>(*call.z_loss) + sum.z);
    if (call.n_valid)
        *call.n_valid = static_cast<float>(static_cast<double>(*call.n_valid) + static_cast<double>(sum.n_valid));
    return GH_SUCCESS;
}

gh_status cross_entropy(const CrossEntropy &call) {
    static const Isa isa = best_isa();
    return cross_entropy(call, isa);
}

}  // namespace gh::cpu
