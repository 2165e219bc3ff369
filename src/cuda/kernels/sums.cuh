// How sums over rows reach the caller, and how what is summed before the main kernel reaches that.
//
// Without a workspace, the main kernel adds to the caller's floats as it finishes, in no fixed order; if it has a
// single part, that may overwrite them. With a workspace, it leaves the sums of its parts there, and finish_sums_kernel
// adds them up in the order of their numbers. prepare_kernel runs before the main kernel if there is something to
// clear, to divide by, or to weigh with.
#pragma once

#include "cuda/kernels/rows.cuh"

namespace gh {

constexpr int sums_threads = 256;

__device__ __forceinline__ void add(RowTotals &sum, const RowTotals &other) {
    sum.loss += other.loss;
    sum.sum_of_squares += other.sum_of_squares;
    sum.n_valid += other.n_valid;
    sum.n_correct += other.n_correct;
    sum.n_out_of_range += other.n_out_of_range;
}

// Adds one set of totals to the caller's floats, by one thread. `add(float *, float)` does the addition.
template <typename Add>
__device__ __forceinline__ void give_out(const CallParameters &p, const RowTotals &totals, double divisor, Add add) {
    const double share = divisor == 0.0 ? 0.0 : 1.0 / divisor;
    const double z = totals.sum_of_squares;
    // A multiplier of 0 times a sum that overflowed is 0, but a row that is NaN is so everywhere.
    const auto times_z = [z](float factor) { return factor == 0.0f && !isnan(z) ? 0.0 : factor * z; };
    const double z_in_loss = times_z(p.z_in_loss), z_loss = times_z(p.z_in_z_loss);
    if (p.loss != nullptr) add(p.loss, share == 0.0 ? 0.0f : static_cast<float>((totals.loss + z_in_loss) * share));
    if (p.z_loss != nullptr) add(p.z_loss, share == 0.0 ? 0.0f : static_cast<float>(z_loss * share));
    if (p.n_valid != nullptr) add(p.n_valid, static_cast<float>(totals.n_valid));
    if (p.n_correct != nullptr) add(p.n_correct, static_cast<float>(totals.n_correct));
    if (p.n_out_of_range != nullptr) add(p.n_out_of_range, static_cast<float>(totals.n_out_of_range));
}

// At the end of the main kernel, by one thread of each of its numbered parts.
__device__ __forceinline__ void store_sums(const CallParameters &p, const RowSums &sums, int64_t part) {
    const RowTotals totals{sums.loss, sums.sum_of_squares, sums.n_valid, sums.n_correct, sums.n_out_of_range};
    if (p.totals > 0)
        p.workspace->totals[part] = totals;
    else if (p.overwrite_sums && p.one_part)
        give_out(p, totals, 1.0, [](float *sum, float value) { *sum = value; });
    else if (totals.n_valid > 0)
        give_out(p, totals, 1.0, [](float *sum, float value) { atomicAdd(sum, value); });
}

// Sums `term(i)` over this block's contiguous share of [0, count) and leaves it in parts[blockIdx.x].
template <typename Term>
__device__ __forceinline__ void sum_share(int64_t count, double *parts, Term term) {
    __shared__ double warp_sums[sums_threads / warp_lanes];
    const int64_t share = (count + gridDim.x - 1) / gridDim.x;
    const int64_t begin = blockIdx.x * share, end = min(begin + share, count);
    double sum = 0.0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += sums_threads) sum += term(i);
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (threadIdx.x % warp_lanes == 0) warp_sums[threadIdx.x / warp_lanes] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < sums_threads / warp_lanes; i++) sum += warp_sums[i];
    parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(sums_threads) prepare_kernel(const __grid_constant__ CallParameters p) {
    // Nothing before this kernel is still running, so the main kernel may start to load.
    ptx::griddepcontrol_launch_dependents();
    if (p.overwrite_sums && p.totals == 0 && !p.one_part && blockIdx.x == 0 && threadIdx.x == 0)
        give_out(p, RowTotals{}, 1.0, [](float *sum, float) { *sum = 0.0f; });
    if (p.divisor_parts > 0)
        sum_share(p.batch, p.workspace->divisor_parts, [&](int64_t row) {
            const int64_t label = read_label(p, row);
            if (label == p.ignore_index) return 0.0;
            if (p.class_weights == nullptr) return 1.0;
            return in_range(p, label) ? static_cast<double>(__ldg(p.class_weights + label)) : 0.0;
        });
    if (p.weight_parts > 0)
        sum_share(p.vocab, p.workspace->weight_parts,
                  [&](int64_t column) { return static_cast<double>(__ldg(p.class_weights + column)); });
}

__global__ void __launch_bounds__(sums_threads) finish_sums_kernel(const __grid_constant__ CallParameters p) {
    __shared__ RowTotals shared[sums_threads];
    ptx::griddepcontrol_wait();
    RowTotals sum{};
    for (int i = static_cast<int>(threadIdx.x); i < p.totals; i += sums_threads) add(sum, p.workspace->totals[i]);
    shared[threadIdx.x] = sum;
    for (int count = sums_threads / 2; count > 0; count /= 2) {
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < count) add(shared[threadIdx.x], shared[threadIdx.x + count]);
    }
    if (threadIdx.x >= warp_lanes) return;
    const double divisor = p.divisor_parts > 0
                               ? sum_parts(p.workspace->divisor_parts, p.divisor_parts, static_cast<int>(threadIdx.x))
                               : 1.0;
    if (threadIdx.x != 0) return;
    const bool overwrite = p.overwrite_sums;
    give_out(p, shared[0], divisor, [=](float *sum, float value) { *sum = overwrite ? value : *sum + value; });
}

}  // namespace gh
