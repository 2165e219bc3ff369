// What the host hands to the kernels, and how the ring kernel divides its shared memory: known to both sides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gh {

constexpr int warp_lanes = 32;
constexpr int line_vectors = 8;  // vectors of 16 bytes in a line of 128

// What every kernel is told: the arguments of the call.
struct RowParameters {
    void *logits;  // [batch, vocab]; becomes dlogits
    const int64_t *labels;
    int64_t batch;
    int64_t vocab;
    int64_t ignore_index;
    float z_loss_multiplier;
    float *ce_sum;
    float *z_sum;    // may be null
    float *n_valid;  // may be null
};

// ---- block_row_kernel ----------------------------------------------------------------------------

constexpr int block_row_max_threads = 1024;

// ---- small_rows_kernel ---------------------------------------------------------------------------

constexpr int small_rows_threads = 256;

// How many lanes share a row, and how many vectors each of them holds: the instances of the kernel, the smallest first.
struct SmallRowsShape {
    int row_lanes;
    int vectors_per_lane;
    int blocks_per_multiprocessor;  // that the registers allow
};
constexpr SmallRowsShape small_rows_shapes[] = {{1, 4, 3},  {2, 4, 3},  {4, 4, 3}, {8, 4, 3},
                                                {16, 4, 3}, {32, 4, 3}, {32, 8, 2}};
constexpr int small_rows_max_vectors = 32 * 8;

// ---- ring_kernel ---------------------------------------------------------------------------------

constexpr int ring_warps = 16;  // of one block
constexpr int ring_max_slots = 16;
constexpr int ring_chunk_shift = 7;
constexpr int ring_chunk_vectors = 1 << ring_chunk_shift;  // of 16 bytes
constexpr int ring_chunk_bytes = ring_chunk_vectors * 16;
constexpr int ring_vectors_per_lane = ring_chunk_vectors / warp_lanes;

// Shared memory of one block, in this order: rings, full barriers, exchange barriers, parts, targets.
struct RingLayout {
    int full = 0;  // byte offsets
    int exchange = 0;
    int parts = 0;
    int targets = 0;
    int bytes = 0;  // in all

    RingLayout() = default;
    RingLayout(int slots, int exchanges, int cluster_blocks)
        : full(ring_warps * slots * ring_chunk_bytes),
          exchange(full + ring_warps * slots * 8),
          parts(exchange + ring_warps * exchanges * 8),
          targets(parts + ring_warps * exchanges * cluster_blocks * 8),
          bytes(targets + ring_warps * exchanges * 8) {}
};

// How ring_kernel shares the rows out.
struct RingShape {
    int team_warps;     // warps of one block that share a row: a power of two, all if the cluster has several blocks
    int step_shift;     // log2(team_warps * ring_chunk_vectors)
    bool aligned;       // every row starts and ends at a multiple of 128 bytes
    bool cut_at_lines;  // if not aligned: chunks start at multiples of 128 bytes all the same
    int row_vectors;    // in a row, if aligned
    int vectors_per_block;  // of one row, whole lines; the last blocks of the cluster may have fewer
    int slots;              // chunks in one warp's ring
    int stores_pending;  // chunks of a warp that the copy engine may still be storing: 0 or 1; 0 if a row does not fit
    int exchanges;       // rows whose sums may be under way in a team: 2 or 4
    RingLayout layout;
};

struct RingParameters : RowParameters, RingShape {};

}  // namespace gh
