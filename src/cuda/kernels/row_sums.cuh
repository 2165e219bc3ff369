// What one thread has added up over the rows whose loss it computed, on its way to the caller's three floats.
#pragma once

#include "cuda/kernels/row_math.cuh"

namespace gh {

struct RowSums {
    double ce;
    double z;
    double n_valid;

    __device__ void clear() { ce = z = n_valid = 0.0; }

    __device__ void add_row(ExpSum others, float target, float lse) {
        ce += isnan(lse) ? NAN : row_loss(others, target);
        z += lse * lse;
        n_valid += 1.0;
    }

    // Sums over the lanes of a warp; all 32 must call.
    __device__ void combine_lanes() {
        for (int distance = 16; distance > 0; distance /= 2) {
            ce += __shfl_xor_sync(~0u, ce, distance);
            z += __shfl_xor_sync(~0u, z, distance);
            n_valid += __shfl_xor_sync(~0u, n_valid, distance);
        }
    }

    __device__ void add_to(float *ce_sum, float *z_sum, float *n_valid_sum) const {
        if (n_valid == 0.0) return;
        atomicAdd(ce_sum, static_cast<float>(ce));
        if (z_sum != nullptr) atomicAdd(z_sum, static_cast<float>(z));
        if (n_valid_sum != nullptr) atomicAdd(n_valid_sum, static_cast<float>(n_valid));
    }
};

}  // namespace gh
