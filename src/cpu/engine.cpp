// Which thread does what, and in which order results are added.
//
// Nothing that depends on the number of threads may change a result. So every row is cut into the same segments whoever
// works on them, the segments' sums are merged from left to right, and the rows' losses are added in groups which
// depend on the batch alone. Nothing is allocated: what is shared between the threads has a fixed size.
#include "cpu/engine.h"

#include <algorithm>

#include "cpu/parallel.h"
#include "cpu/row.h"
#include "cpu/totals.h"
#include "cpu/work.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace gh::cpu {
namespace {

constexpr int64_t max_groups = 1024;
// Rows whose segments are handed out together, and their segments.
constexpr int64_t max_split_rows = 64;
constexpr int64_t max_split_segments = 512;

int team_size() {
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

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
            const int64_t rows = std::min(rows_at_once_, end - first), items = work_.has_sums() ? rows * segments_ : 0;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < items; i++) {
                const int64_t row = first + i / segments_;
                if (!work_.is_ignored(row)) sums_[i] = work_.sum_segment(row, i % segments_);
            }
#pragma omp for schedule(static)
            for (int64_t slot = 0; slot < rows; slot++)
                gradients_[slot] = finish(first + slot, sums_ + slot * segments_, totals[first + slot]);
            const int64_t gradient_items = work_.has_gradient() ? rows * segments_ : 0;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < gradient_items; i++) {
                const int64_t slot = i / segments_, row = first + slot, segment = i % segments_;
                if (work_.is_ignored(row))
                    work_.write_zeros(row, segment, segment + 1);
                else
                    work_.write_gradient(row, segment, segment + 1, gradients_[slot]);
            }
        }
    }

private:
    RowGradient finish(int64_t row, const RowSums *segments, Totals &totals) const {
        totals = {};
        if (work_.is_ignored(row)) {
            work_.finish_ignored(row);
            return {};
        }
        if (!work_.has_sums()) return work_.saved(row);
        RowSums sums = segments[0];
        for (int64_t segment = 1; segment < segments_; segment++) sums = Work::merge(sums, segments[segment]);
        return work_.finish(row, sums, totals);
    }

    const Work &work_;
    const int64_t segments_;
    const int64_t rows_at_once_;
    RowSums sums_[max_split_segments];
    RowGradient gradients_[max_split_rows];
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
            Totals sum{};
            for (int64_t row = begin; row < end; row++) work.whole_row(row, sum);
            totals[group] = sum;
        }
        split_rows.run(whole_groups, groups, totals);
    }

    Totals sum{};
    for (int64_t group = 0; group < groups; group++) sum.add(totals[group]);
    if (work.has_sums()) write_sums(call, sum, work.divisor());
    return GH_SUCCESS;
}

gh_status cross_entropy(const CrossEntropy &call) {
    static const Isa isa = best_isa();
    return cross_entropy(call, isa);
}

}  // namespace gh::cpu
