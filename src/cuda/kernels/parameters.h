// What the host hands to the kernels, and how the ring kernel divides its shared memory: known to both sides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gh {

constexpr int warp_lanes = 32;

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

constexpr int block_row_max_threads = 512;

// ---- small_rows_kernel ---------------------------------------------------------------------------

constexpr int small_rows_threads = 256;
constexpr int small_rows_blocks_per_multiprocessor = 4;
constexpr int small_rows_max_bytes = 8 * warp_lanes * 16;  // of a row: 8 vectors in each lane of a warp

// ---- ring_kernel ---------------------------------------------------------------------------------

constexpr int ring_warps = 16;  // of one block
constexpr int ring_max_slots = 16;
constexpr int ring_chunk_shift = 7;
constexpr int ring_chunk_vectors = 1 << ring_chunk_shift;  // of 16 bytes
constexpr int ring_chunk_bytes = ring_chunk_vectors * 16;
constexpr int ring_vectors_per_lane = ring_chunk_vectors / warp_lanes;

// Shared memory of one block, in this order: rings, full barriers, exchange barriers, parts.
struct RingLayout {
    int full = 0;  // byte offsets
    int exchange = 0;
    int parts = 0;
    int bytes = 0;  // in all

    RingLayout() = default;
    RingLayout(int slots, int exchanges, int cluster_blocks)
        : full(ring_warps * slots * ring_chunk_bytes),
          exchange(full + ring_warps * slots * 8),
          parts((exchange + ring_warps * exchanges * 8 + 15) / 16 * 16),
          bytes(parts + exchanges * cluster_blocks * ring_warps * 16) {}
};

// How ring_kernel shares the rows out.
struct RingShape {
    int team_warps;   // warps of one block that share a row: a power of two, all if the cluster has several blocks
    int step_shift;   // log2(team_warps * ring_chunk_vectors)
    int row_vectors;  // in a row, if all rows are aligned
    int vectors_per_block;  // of one row; the last blocks of the cluster may have fewer
    int slots;              // chunks in one warp's ring
    int stores_pending;  // chunks of a warp that the copy engine may still be storing: 0 or 1; 0 if a row does not fit
    int exchanges;       // rows whose sums may be under way in a team: 2 or 4
    RingLayout layout;
};

struct RingParameters : RowParameters, RingShape {};

}  // namespace gh
