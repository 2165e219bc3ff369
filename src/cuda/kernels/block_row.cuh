// Cross-entropy for every shape, alignment and architecture: one block per row.
//
// The first pass reads the row from memory for its sums and keeps a copy of its vectors in shared memory, as many as
// fit; the second pass computes the gradient from that copy, and reads again only what did not fit. Rows may start at
// any element: up to per_vector - 1 elements at either end do not fill a vector and are handled one by one. If the
// rows of dlogits start at other places within their vectors than those of logits, all their elements are.
#pragma once

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/kernels/row_math.cuh"
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/sums.cuh"
#include "cuda/ptx.cuh"

namespace gh {

template <typename T, Terms terms>
class BlockRow {
    static constexpr bool extended = terms != Terms::plain;
    static constexpr int per_vector = Element<T>::per_vector;

    // A warp's part of a row's sums.
    struct Part {
        ExpSum sum;
        float target;
        Moments moments;
    };

    // What this thread knows of the block's row.
    struct Row {
        int64_t index;
        int64_t label;
        bool label_in_range;
        const T *logits;
        T *dlogits;  // not used without a gradient
        int64_t head;
        int64_t vectors;
        // This thread's column outside the vectors, or -1.
        int64_t edge;
        // The vector that the label is in, or -1, and the element in it.
        int64_t target_vector;
        int target_element;

        __device__ int64_t column(int64_t vector) const { return head + vector * per_vector; }
        __device__ const uint4 *logits_vectors() const { return reinterpret_cast<const uint4 *>(logits + head); }
    };

    const CallParameters &p;
    const Scale<terms> scale;
    uint4 *const cache;
    const int64_t cached_vectors;
    Part *const parts;
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int warp = thread / warp_lanes, lane = thread % warp_lanes, warps = threads / warp_lanes;
    const CallFactors factors;
    RowSums sums;

    __device__ float class_weight(int64_t column) const {
        return extended && p.label_smoothing != 0.0f && p.class_weights != nullptr ? __ldg(p.class_weights + column)
                                                                                   : 1.0f;
    }

    __device__ Row row_at(int64_t index, int64_t label) const {
        Row row;
        row.index = index;
        row.label = label;
        row.label_in_range = in_range(p, label);
        row.logits = static_cast<const T *>(p.logits) + index * p.logits_row_stride;
        row.dlogits = static_cast<T *>(p.dlogits) + index * p.dlogits_row_stride;
        const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(row.logits) % 16 / sizeof(T));
        row.head = min(static_cast<int64_t>((per_vector - misaligned) % per_vector), p.vocab);
        row.vectors = (p.vocab - row.head) / per_vector;
        const int64_t inside = row.vectors * per_vector;
        row.edge = thread >= p.vocab - inside ? -1 : thread < row.head ? thread : thread + inside;
        const int64_t in_vectors = label - row.head;
        const bool vector_target = row.label_in_range && in_vectors >= 0 && in_vectors < inside;
        row.target_vector = vector_target ? in_vectors / per_vector : -1;
        row.target_element = vector_target ? static_cast<int>(in_vectors % per_vector) : 0;
        return row;
    }

    // Adds one vector's classes, but not the label.
    __device__ void add_vector(const Row &row, int64_t v, uint4 x, Part &part) const {
        if constexpr (extended) {
            float f[per_vector];
            Element<T>::unpack(x, f);
#pragma unroll
            for (int k = 0; k < per_vector; k++) {
                if (p.needs_argmax) part.moments.add_best(f[k], static_cast<int>(row.column(v)) + k);
                if (v == row.target_vector && k == row.target_element)
                    part.target = scale.value(f[k]);
                else
                    add_class(scale, part.sum, part.moments, f[k], class_weight(row.column(v) + k));
            }
        } else {
            if (v == row.target_vector) part.target = take_element<T>(x, row.target_element);
            float f[per_vector];
            Element<T>::unpack(x, f);
            const float max = fmaxf(part.sum.max, Element<T>::max(x));
            float sum = part.sum.sum * scale.exp_minus(part.sum.max, max);
#pragma unroll
            for (int k = 0; k < per_vector; k++) sum += scale.exp_minus(f[k], max);
            part.sum = {max, sum};
        }
    }

    __device__ void add_edge(const Row &row, float logit, Part &part) const {
        if (extended && p.needs_argmax) part.moments.add_best(logit, static_cast<int>(row.edge));
        if (row.label_in_range && row.edge == row.label) {
            part.target = scale.value(logit);
        } else if constexpr (extended) {
            add_class(scale, part.sum, part.moments, logit, class_weight(row.edge));
        } else {
            const float max = fmaxf(logit, -FLT_MAX);
            part.sum = {max, scale.exp_minus(logit, max)};
        }
    }

    __device__ void combine_lanes(Part &part) const {
        if constexpr (extended) combine_warp(p, scale, part.sum, part.moments);
        part.sum = combine_warp(scale, part.sum);
        // One thread of the block has the label's value, all others have 0.
        part.target = sum_warp(part.target);
    }

    __device__ Part sum_up(const Row &row, float edge_logit) const {
        Part part{ExpSum(), 0.0f, Moments()};
        if (row.edge >= 0) add_edge(row, edge_logit, part);
        const uint4 *const vectors = row.logits_vectors();
#pragma unroll(extended ? 1 : 4)
        for (int64_t v = thread; v < row.vectors; v += threads) {
            const uint4 x = ptx::ld_global_no_allocate(vectors + v);
            if (v < cached_vectors) cache[v] = x;
            add_vector(row, v, x, part);
        }
        combine_lanes(part);
        if (lane == 0) parts[warp] = part;
        __syncthreads();
        part = lane < warps ? parts[lane] : Part{ExpSum(), 0.0f, Moments()};
        combine_lanes(part);
        return part;
    }

    // Every thread meets the vectors that it copied itself. Returns the label's logit, if it is this thread's.
    template <bool from_cache, bool whole_vectors>
    __device__ float store_gradient(const Row &row, const RowResult &result) const {
        const uint4 *const vectors = row.logits_vectors();
        float label_logit = 0.0f;
#pragma unroll(extended ? 1 : 4)
        for (int64_t v = thread; v < row.vectors; v += threads) {
            float f[per_vector];
            Element<T>::unpack(from_cache && v < cached_vectors ? cache[v] : vectors[v], f);
#pragma unroll
            for (int k = 0; k < per_vector; k++) {
                if (v == row.target_vector && k == row.target_element) label_logit = f[k];
                f[k] = class_gradient<terms, Form::any>(scale, result, f[k], class_weight(row.column(v) + k));
            }
            T *const stored = row.dlogits + row.column(v);
            if (whole_vectors) {
                ptx::st_global_cs(reinterpret_cast<uint4 *>(stored), Element<T>::pack(f));
            } else {
#pragma unroll
                for (int k = 0; k < per_vector; k++) stored[k] = Element<T>::from_float(f[k]);
            }
        }
        return label_logit;
    }

    __device__ bool stores_whole_vectors(const Row &row) const {
        return (reinterpret_cast<uintptr_t>(row.dlogits) - reinterpret_cast<uintptr_t>(row.logits)) % 16 == 0;
    }

    __device__ void ignore(const Row &row) const {
        if (p.computes_outputs && thread == 0) store_ignored(p, row.index);
        if (!p.computes_gradient) return;
        const T zero = Element<T>::from_float(0.0f);
        if (stores_whole_vectors(row)) {
            uint4 *const vectors = reinterpret_cast<uint4 *>(row.dlogits + row.head);
            for (int64_t v = thread; v < row.vectors; v += threads)
                ptx::st_global_cs(vectors + v, make_uint4(0, 0, 0, 0));
            if (row.edge >= 0) row.dlogits[row.edge] = zero;
        } else {
            for (int64_t j = thread; j < p.vocab; j += threads) row.dlogits[j] = zero;
        }
    }

    __device__ void gradient(const Row &row, const RowSum &sum, const RowFactors &row_factors, float entropy,
                             float edge_logit) const {
        const RowResult result = p.saved_lse != nullptr ? finish_row_of_lse<T>(p, factors, scale, sum.others.max,
                                                                               row.label_in_range, row_factors)
                                                        : finish_row<T>(p, factors, scale, sum, row_factors, entropy);
        float label_logit;
        if (!stores_whole_vectors(row))
            label_logit = store_gradient<false, false>(row, result);
        else if (p.computes_outputs)
            label_logit = store_gradient<true, true>(row, result);
        else
            label_logit = store_gradient<false, true>(row, result);
        if (row.edge >= 0)
            row.dlogits[row.edge] = Element<T>::from_float(
                class_gradient<terms, Form::any>(scale, result, edge_logit, class_weight(row.edge)));
        // The thread that has the label has just stored something else there.
        const bool label_at_edge = row.label_in_range && row.edge == row.label;
        const bool label_in_vector = row.target_vector >= 0 && row.target_vector % threads == thread;
        if (label_at_edge || label_in_vector)
            row.dlogits[row.label] = Element<T>::from_float(label_gradient(
                p, factors, scale, sum, row_factors, entropy, result, label_at_edge ? edge_logit : label_logit));
    }

    __device__ void compute(const Row &row) {
        const float edge_logit = row.edge >= 0 ? Element<T>::to_float(row.logits[row.edge]) : 0.0f;
        const RowFactors row_factors = load_factors(p, row.index, row.label);
        if (!p.computes_outputs) {
            const SavedRow saved = load_saved(p, row.index);
            gradient(row, to_row_sum(saved, row.label_in_range), row_factors, saved.entropy, edge_logit);
            return;
        }
        const Part part = sum_up(row, edge_logit);
        const RowSum sum{part.sum, part.target, row.label_in_range};
        if (thread == 0)
            sums.add(p, factors, scale, {sum, row.index, row_factors.weight, part.moments.best_column}, part.moments);
        if (p.computes_gradient) {
            float entropy = 0.0f;
            if constexpr (extended)
                if (p.row_dentropy != nullptr) entropy = row_entropy(scale, sum, part.moments);
            gradient(row, sum, row_factors, entropy, edge_logit);
        }
        __syncthreads();  // before the next row's parts
    }

public:
    using Parts = Part[block_row_max_threads / warp_lanes];

    __device__ BlockRow(const CallParameters &parameters, uint4 *cache_, int64_t cached_vectors_, Parts &parts_)
        : p(parameters),
          scale(parameters),
          cache(cache_),
          cached_vectors(cached_vectors_),
          parts(parts_),
          factors(load_factors(parameters, static_cast<int>(threadIdx.x) % warp_lanes)) {}

    __device__ void run() {
        for (int64_t index = blockIdx.x; index < p.batch; index += gridDim.x) {
            const int64_t label = read_label(p, index);
            const Row row = row_at(index, label);
            if (label == p.ignore_index)
                ignore(row);
            else
                compute(row);
        }
        if (thread == 0) store_sums(p, sums, blockIdx.x);
    }
};

template <typename T, Terms terms>
__global__ void __launch_bounds__(block_row_max_threads)
    block_row_kernel(const __grid_constant__ CallParameters p, const int64_t cached_vectors) {
    extern __shared__ __align__(16) uint4 cache[];  // [cached_vectors]
    __shared__ __align__(16) unsigned char parts[sizeof(typename BlockRow<T, terms>::Parts)];
    ptx::griddepcontrol_wait();
    BlockRow<T, terms>(p, cache, cached_vectors, reinterpret_cast<typename BlockRow<T, terms>::Parts &>(parts)).run();
}

}  // namespace gh
