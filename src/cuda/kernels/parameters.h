// What the host hands to the kernels, and how the ring kernel divides its shared memory: known to both sides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "greyhound/greyhound.h"

namespace gh {

constexpr int warp_lanes = 32;
constexpr int line_vectors = 8;  // vectors of 16 bytes in a line of 128

// ---- The call ------------------------------------------------------------------------------------

// What the terms of the loss ask of every element; each kind is compiled apart. `plain` has the values of a row's
// elements only inside exponentials. `extended` also adds them up in other ways (label smoothing, entropy, argmax).
// `capped` is the same with the soft cap on every element.
enum class Terms { plain, extended, capped };

// What the forward pass saves of a row: all that its gradient is made of. `max` and `sum` are over the classes other
// than the label; max is NaN if the row is.
struct RowStatistics {
    float max;
    float sum;
    float target;
    float entropy;
    float unused[4];
};
static_assert(sizeof(RowStatistics) == GH_ROW_STATISTICS_BYTES);

// What is added up over rows.
struct RowTotals {
    double loss;            // without the z-loss
    double sum_of_squares;  // of lse
    int64_t n_valid;
    int64_t n_correct;
    int64_t n_out_of_range;
};

// softcap * tanh(logit * logit_scale / softcap), in powers of 2: times log2(e). All are finite.
struct SoftcapParameters {
    float bits;            // the cap
    float inverse_bits;    // 1 / cap
    float to_unit;         // logit_scale / softcap
    float near_limit;      // of |logit|: below it, a polynomial does
    float near_series[5];  // in the square of the unit value, the lowest power first; times the logit
};

constexpr int max_parts = 128;

// The caller's workspace.
struct Workspace {
    double divisor_parts[max_parts];  // of the sum that a mean is divided by
    double weight_parts[max_parts];   // of the sum of all class weights
    RowTotals totals[1];              // as many as the plan says
};

// What every kernel is told: the call, see CrossEntropy.
struct CallParameters {
    const void *logits;
    void *dlogits;
    int64_t logits_row_stride;
    int64_t dlogits_row_stride;
    const void *labels;
    int64_t batch;
    int64_t vocab;
    int64_t ignore_index;
    bool labels_are_32_bits;
    bool computes_outputs;  // the forward pass
    bool computes_gradient;

    float label_smoothing;
    float z_loss_multiplier;
    float logit_scale;
    SoftcapParameters softcap;  // not used unless capped
    const float *class_weights;
    bool needs_argmax;
    bool needs_entropy;

    float dloss;
    const float *dloss_ptr;
    const float *row_dloss;
    const float *row_dentropy;
    const RowStatistics *saved_statistics;
    const float *saved_lse;

    float *row_loss;
    float *row_lse;
    float *row_target_log_prob;
    float *row_entropy;
    int64_t *row_argmax;
    RowStatistics *row_statistics;

    // What the sums over rows go to. With a workspace, the main kernel leaves them in its `totals`.
    float *loss;
    float *z_loss;
    float *n_valid;
    float *n_correct;
    float *n_out_of_range;
    float z_in_loss;
    float z_in_z_loss;
    bool overwrite_sums;
    int divisor_parts;  // that are in the workspace; 0 if nothing is divided
    int weight_parts;   // likewise; 0 if the sum is not needed
    int totals;         // likewise, when the main kernel has run; 0 without a workspace
    Workspace *workspace;
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

// How far a lane goes from one row to its next. As parameters of the kernel these are operands of the additions
// themselves, and take neither registers nor instructions of their own.
struct SmallRowsSteps {
    int64_t rows;
    int64_t logits_bytes;
    int64_t dlogits_bytes;
    int64_t label_bytes;
};

struct SmallRowsParameters : CallParameters, SmallRowsSteps {};

// ---- ring_kernel ---------------------------------------------------------------------------------

constexpr int ring_warps = 16;  // of one block
constexpr int ring_max_slots = 16;
constexpr int ring_backward_slots = 8;  // of the backward pass alone
constexpr int ring_chunk_shift = 7;
constexpr int ring_chunk_vectors = 1 << ring_chunk_shift;  // of 16 bytes
constexpr int ring_chunk_bytes = ring_chunk_vectors * 16;
constexpr int ring_vectors_per_lane = ring_chunk_vectors / warp_lanes;

// Pairs of floats in a warp's part of a row's sums: {max, sum}, and for Terms::extended and capped the rest of them.
constexpr int ring_plain_planes = 1, ring_extended_planes = 4;

// Shared memory of one block, in this order: rings, full barriers, exchange barriers, parts, targets.
struct RingLayout {
    int full = 0;  // byte offsets
    int exchange = 0;
    int parts = 0;
    int targets = 0;
    int bytes = 0;  // in all

    RingLayout() = default;
    RingLayout(int slots, int exchanges, int cluster_blocks, int planes)
        : full(ring_warps * slots * ring_chunk_bytes),
          exchange(full + ring_warps * slots * 8),
          parts(exchange + ring_warps * exchanges * 8),
          targets(parts + ring_warps * exchanges * cluster_blocks * planes * 8),
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

struct RingParameters : CallParameters, RingShape {};

// ---- scale_kernel --------------------------------------------------------------------------------

constexpr int scale_threads = 512;
constexpr int scale_blocks_per_multiprocessor = 2;
constexpr int scale_vectors_per_lane = 4;

// How scale_kernel shares the rows out.
struct ScaleShape {
    int64_t rows;
    int64_t row_elements;
    int64_t tiles_per_row;
    int team_shift;  // log2 of the lanes that share a tile
};

struct ScaleParameters : ScaleShape {
    void *dlogits;
    int64_t row_stride;
    const float *dloss_ptr;
};

}  // namespace gh
