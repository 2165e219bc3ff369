// A gradient times an upstream gradient in device memory, in place, as fast as memory copies; not touched at all if
// that is 1. Every block finds that out by itself, so that there are only as many blocks as run at once.
//
// A row is cut into tiles of scale_vectors_per_lane vectors for each lane of a team, and the teams of the grid take the
// tiles in turn. Rows may start at any element: up to per_vector - 1 elements at either end do not fill a vector and
// are handled one by one, with the row's first tile. Rows without anything between them are one long row.
#pragma once

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/ptx.cuh"

namespace gh {

template <typename T>
class Scaling {
    static constexpr int per_vector = Element<T>::per_vector;

    const ScaleParameters &p;
    const float factor;
    const int lanes, lane;
    const uint64_t policy = ptx::createpolicy_evict_first();

    __device__ uint4 scaled(uint4 vector) const {
        float x[per_vector];
        Element<T>::unpack(vector, x);
#pragma unroll
        for (int k = 0; k < per_vector; k++) x[k] *= factor;
        return Element<T>::pack(x);
    }

    __device__ void scale_tile(T *row, int64_t tile) const {
        const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
        const int64_t head = min(static_cast<int64_t>((per_vector - misaligned) % per_vector), p.row_elements);
        const int64_t row_vectors = (p.row_elements - head) / per_vector;
        const int64_t begin = tile * lanes * scale_vectors_per_lane + lane;
        uint4 *const vectors = reinterpret_cast<uint4 *>(row + head) + begin;
        const int64_t left = row_vectors - begin;  // from this lane's first on; negative beyond the row's end
        uint4 x[scale_vectors_per_lane];
#pragma unroll
        for (int i = 0; i < scale_vectors_per_lane; i++)
            if (i * lanes < left) x[i] = ptx::ld_global_hint(vectors + i * lanes, policy);
#pragma unroll
        for (int i = 0; i < scale_vectors_per_lane; i++)
            if (i * lanes < left) ptx::st_global_hint(vectors + i * lanes, scaled(x[i]), policy);
        if (tile > 0) return;
        const int64_t inside = row_vectors * per_vector;
        for (int64_t edge = lane; edge < p.row_elements - inside; edge += lanes) {
            T &element = row[edge < head ? edge : edge + inside];
            element = Element<T>::from_float(Element<T>::to_float(element) * factor);
        }
    }

public:
    __device__ Scaling(const ScaleParameters &parameters, float factor_)
        : p(parameters),
          factor(factor_),
          lanes(1 << parameters.team_shift),
          lane(static_cast<int>(threadIdx.x) & (lanes - 1)) {}

    // The rows and tiles of this team are counted on without a division.
    __device__ void run() const {
        const int64_t threads = static_cast<int64_t>(gridDim.x) * scale_threads;
        const int64_t thread = static_cast<int64_t>(blockIdx.x) * scale_threads + threadIdx.x;
        const int64_t team = thread >> p.team_shift, teams = threads >> p.team_shift;
        const int64_t row_step = teams / p.tiles_per_row, tile_step = teams % p.tiles_per_row;
        int64_t row = team / p.tiles_per_row, tile = team % p.tiles_per_row;
        while (row < p.rows) {
            scale_tile(static_cast<T *>(p.dlogits) + row * p.row_stride, tile);
            row += row_step;
            tile += tile_step;
            if (tile >= p.tiles_per_row) {
                tile -= p.tiles_per_row;
                row++;
            }
        }
    }
};

template <typename T>
__global__ void __launch_bounds__(scale_threads, scale_blocks_per_multiprocessor)
    scale_kernel(const __grid_constant__ ScaleParameters p) {
    const float factor = __ldg(p.dloss_ptr);
    if (factor != 1.0f) Scaling<T>(p, factor).run();
}

}  // namespace gh
