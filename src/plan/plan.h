// Which kernel does a call, with which parameters: decided from the shape and the device alone. Pure host code, so that
// every decision can be tested without a GPU.
#pragma once

#include <cstdint>

#include "cuda/kernels/parameters.h"

namespace gh {

// What a plan needs to know of a call.
struct Shape {
    int element_bytes;
    int64_t batch;
    int64_t vocab;
    int row_alignment;       // a power of two: every row starts and ends at a multiple of so many bytes
    bool rows_alike = true;  // rows of logits and of dlogits start at the same place within their vectors of 16 bytes
    bool computes_outputs = true;
    bool computes_gradient = true;
    Terms terms = Terms::plain;
};

// What a plan needs to know of a device.
struct DeviceProperties {
    static constexpr int cluster_sizes = 5;  // 1, 2, 4, 8, 16 blocks

    int compute_capability;  // 90 for 9.0
    int multiprocessors;
    int shared_bytes_per_block;  // the most that one block may have
    int shared_bytes_per_multiprocessor;
    // How many clusters of 1 << i ring_kernel blocks run at once; 0 where the device has no clusters of that
    // size, or the library no code for them.
    int ring_clusters[cluster_sizes];
    bool overlaps_launches = false;  // the kernels here wait by themselves for the one before them
};

enum class Strategy {
    small_rows,  // several rows per warp, in registers
    ring,        // rows stream through shared memory; needs compute capability 9.0
    block_row,   // one block per row; everything else
};

struct Plan {
    Strategy strategy;
    Terms terms;
    int blocks;  // of the grid
    int threads;
    int cluster_blocks;
    int shared_bytes;  // dynamic
    int totals;        // parts that the sums over rows come in

    // small_rows
    int small_rows;  // which of small_rows_shapes

    // block_row
    int64_t cached_vectors;

    // ring
    RingShape ring;
};

// The most parts that the sums over rows of any plan for this device come in.
int max_totals(const DeviceProperties &device);

Plan plan_cross_entropy(const Shape &shape, const DeviceProperties &device);

// ---- Scaling a gradient ----

struct ScalePlan {
    int blocks;
    ScaleShape shape;
};

// Of rows that have something between them, or of one.
ScalePlan plan_scale(int element_bytes, int64_t rows, int64_t row_elements, const DeviceProperties &device);

}  // namespace gh
