// Every element is multiplied by itself, so that neither the threads nor the cuts between them can change a result.
#include "cpu/scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/parallel.h"
#include "cross_entropy.h"

namespace gh::cpu {
namespace {

// What a thread takes at a time: of a row, so many elements; of short rows, the same in whole rows.
constexpr int64_t piece_elements = 1 << 15;

}  // namespace

void scale_dlogits(const ScaleDlogits &call, Isa isa) {
    if (call.batch == 0 || *call.dloss_ptr == 1.0f) return;
    // The sweeps know only NaNs without a payload.
    const float factor = std::isnan(*call.dloss_ptr) ? std::numeric_limits<float>::quiet_NaN() : *call.dloss_ptr;
    const auto element = static_cast<int64_t>(element_size(call.dtype));
    const int64_t rows = call.rows(), row_elements = call.row_elements();
    const int64_t pieces_per_row = (row_elements - 1) / piece_elements + 1;
    const int64_t rows_at_once = std::max<int64_t>(1, piece_elements / row_elements);
    const int64_t items = ((rows - 1) / rows_at_once + 1) * pieces_per_row;
    const auto scale = kernels(isa, call.dtype).scale;
    const auto at = [&](int64_t row, int64_t column) {
        return static_cast<char *>(call.dlogits) + (row * call.dlogits_row_stride + column) * element;
    };

    const DefaultFloatingPoint environment;
#pragma omp parallel if (rows * row_elements >= min_parallel_elements)
    {
        const DefaultFloatingPoint thread_environment;
#pragma omp for schedule(static)
        for (int64_t item = 0; item < items; item++) {
            const int64_t first = item / pieces_per_row * rows_at_once;
            const int64_t begin = item % pieces_per_row * piece_elements;
            const int64_t last = std::min(first + rows_at_once, rows);
            const int64_t count = std::min(piece_elements, row_elements - begin);
            for (int64_t row = first; row < last; row++) scale(at(row, begin), count, factor);
        }
    }
}

void scale_dlogits(const ScaleDlogits &call) {
    static const Isa isa = best_isa();
    scale_dlogits(call, isa);
}

}  // namespace gh::cpu
