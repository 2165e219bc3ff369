#include "plan/plan.h"

#include <algorithm>
#include <climits>

namespace gh {
namespace {

int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

int clamp_to_int(int64_t x) {
    return static_cast<int>(std::min<int64_t>(x, INT_MAX));
}

int log2_of(int power_of_two) {
    int shift = 0;
    while (1 << shift < power_of_two) shift++;
    return shift;
}

// Of one multiprocessor: as many as a ring block has warps, and more than small_rows ever has blocks.
constexpr int64_t max_totals_per_multiprocessor = ring_warps;

// ---- small_rows --------------------------------------------------------------------------------

bool small_rows_can(const Shape &shape) {
    return shape.rows_alike && shape.row_alignment >= 16 &&
           shape.vocab * shape.element_bytes <= small_rows_max_vectors * 16;
}

Plan plan_small_rows(const Shape &shape, const DeviceProperties &device) {
    Plan plan{};
    plan.strategy = Strategy::small_rows;
    plan.terms = shape.terms;
    const int vectors = static_cast<int>(shape.vocab * shape.element_bytes / 16);
    while (small_rows_shapes[plan.small_rows].row_lanes * small_rows_shapes[plan.small_rows].vectors_per_lane < vectors)
        plan.small_rows++;
    const int rows_per_block = small_rows_threads / small_rows_shapes[plan.small_rows].row_lanes;
    plan.threads = small_rows_threads;
    plan.cluster_blocks = 1;
    const SmallRowsShape &instance = small_rows_shapes[plan.small_rows];
    const int64_t wave = static_cast<int64_t>(device.multiprocessors) * instance.blocks_per_multiprocessor;
    // With few warps per multiprocessor, several waves even out the differences between them.
    const int64_t most = instance.vectors_per_lane > 4 ? 6 * wave : wave;
    plan.blocks = clamp_to_int(std::min(divide_up(shape.batch, rows_per_block), most));
    plan.totals = plan.blocks;
    return plan;
}

// ---- ring --------------------------------------------------------------------------------------

bool ring_can(const Shape &shape, const DeviceProperties &device) {
    return shape.rows_alike && device.compute_capability >= 90 && device.ring_clusters[0] > 0 && shape.vocab < INT_MAX;
}

// One way to share rows among warps: `team_warps` warps of every one of `cluster_blocks` blocks work on a row.
struct Team {
    int cluster_blocks;
    int team_warps;
    int max_clusters;
    int teams_per_cluster() const { return ring_warps / team_warps; }
    int warps() const { return cluster_blocks * team_warps; }
};

// Chunks that one warp of the team has of a row, at most and at least.
struct Chunks {
    int most;
    int least;
};

// A row's vectors as the blocks divide them: with up to a line more than there are, where chunks are cut at lines.
int64_t row_vectors_at_most(const Shape &shape) {
    const int64_t vectors = divide_up(shape.vocab, 16 / shape.element_bytes);
    return shape.row_alignment >= 128 ? vectors : vectors + line_vectors - 1;
}

int64_t vectors_per_block(const Shape &shape, const Team &team) {
    return divide_up(divide_up(row_vectors_at_most(shape), team.cluster_blocks), line_vectors) * line_vectors;
}

Chunks chunks_of(const Shape &shape, const Team &team) {
    const int64_t step = static_cast<int64_t>(team.team_warps) * ring_chunk_vectors;
    const int64_t per_block = vectors_per_block(shape, team);
    // An unaligned row has up to two vectors fewer, and the last block gets what is left.
    const int64_t row_vectors = shape.vocab / (16 / shape.element_bytes);
    const int64_t last_block = row_vectors - 2 - (team.cluster_blocks - 1) * per_block;
    return {clamp_to_int(divide_up(per_block, step)), clamp_to_int(std::max<int64_t>(last_block, 0) / step)};
}

// Fits the ring into a block's shared memory: as many slots as there is room for.
RingShape ring_shape(const Shape &shape, const Team &team, const DeviceProperties &device) {
    const Chunks chunks = chunks_of(shape, team);
    RingShape ring{};
    ring.team_warps = team.team_warps;
    ring.step_shift = log2_of(team.team_warps) + ring_chunk_shift;
    ring.aligned = shape.row_alignment >= 128;
    ring.row_vectors = static_cast<int>(shape.vocab / (16 / shape.element_bytes));
    ring.vectors_per_block = static_cast<int>(vectors_per_block(shape, team));
    // The first chunk of a row can skip the start of its line only if it is a full chunk.
    const int step = 1 << ring.step_shift;
    ring.cut_at_lines = !ring.aligned && ring.vectors_per_block >= step && ring.row_vectors - 2 >= step;
    const int planes = shape.terms == Terms::plain ? ring_plain_planes : ring_extended_planes;
    const auto fit = [&](int exchanges) {
        ring.exchanges = exchanges;
        ring.slots = ring_max_slots;
        while (ring.slots > 1 &&
               RingLayout(ring.slots, exchanges, team.cluster_blocks, planes).bytes > device.shared_bytes_per_block)
            ring.slots--;
        // A row that does not fit wants its slots back at once; so does one that fits exactly.
        ring.stores_pending = chunks.most < ring.slots ? 1 : 0;
    };
    // Two rows under way suffice unless some warp could have all of two rows in its ring, or need not keep any.
    fit(2);
    if (!shape.computes_gradient || ring.slots - ring.stores_pending >= 2 * chunks.least) fit(4);
    // The backward pass alone keeps nothing, and loads that are too far ahead of the stores only disturb those.
    if (!shape.computes_outputs) ring.slots = std::min(ring.slots, ring_backward_slots);
    ring.layout = RingLayout(ring.slots, ring.exchanges, team.cluster_blocks, planes);
    return ring;
}

// Estimated nanoseconds, good for comparing teams on one device. Measured on an H200: a multiprocessor takes 0.065 ns
// for a byte of logits when all share the memory; passing the sums around and finishing a row costs more the wider the
// team; a row that does not fit on the chip is read again in part.
double ring_cost(const Shape &shape, const Team &team, const DeviceProperties &device) {
    const RingShape ring = ring_shape(shape, team, device);
    const int chunks = chunks_of(shape, team).most;
    const int64_t teams = static_cast<int64_t>(team.max_clusters) * team.teams_per_cluster();
    const double rounds = static_cast<double>(divide_up(shape.batch, teams));
    const double row_bytes = static_cast<double>(shape.vocab) * shape.element_bytes;
    const double bytes_per_multiprocessor = row_bytes * ring_warps / team.warps();
    const bool keeps_rows = shape.computes_outputs && shape.computes_gradient;
    const double again = keeps_rows && chunks > ring.slots ? 0.2 + 0.5 * (chunks - ring.slots) / chunks : 0.0;
    const double exchange = team.cluster_blocks > 1 ? 1000.0 : team.team_warps > 1 ? 600.0 : 300.0;
    return rounds * (exchange + bytes_per_multiprocessor * 0.065 * (1.0 + again));
}

Team team_of(int cluster_blocks, int team_warps, const DeviceProperties &device) {
    // Memory is the limit: with clusters of one block, a few idle multiprocessors make it no slower, and on an H200 a
    // little faster.
    const int spared = cluster_blocks == 1 ? device.ring_clusters[0] / 32 : 0;
    return {cluster_blocks, team_warps, device.ring_clusters[log2_of(cluster_blocks)] - spared};
}

Plan plan_ring(const Shape &shape, const Team &team, const DeviceProperties &device) {
    Plan plan{};
    plan.strategy = Strategy::ring;
    plan.terms = shape.terms;
    plan.ring = ring_shape(shape, team, device);
    plan.threads = ring_warps * warp_lanes;
    plan.cluster_blocks = team.cluster_blocks;
    plan.shared_bytes = plan.ring.layout.bytes;
    // As many clusters as it takes for all to have equally many rows.
    const int64_t teams = static_cast<int64_t>(team.max_clusters) * team.teams_per_cluster();
    const int64_t rounds = divide_up(shape.batch, teams);
    const int64_t clusters = divide_up(divide_up(shape.batch, rounds), team.teams_per_cluster());
    plan.blocks = static_cast<int>(clusters) * team.cluster_blocks;
    plan.totals = static_cast<int>(clusters) * team.teams_per_cluster();
    return plan;
}

Plan plan_ring(const Shape &shape, const DeviceProperties &device) {
    Team best{};
    double best_cost = 0.0;
    for (int i = 0; i < DeviceProperties::cluster_sizes; i++) {
        for (int warps = i == 0 ? 1 : ring_warps; warps <= ring_warps; warps *= 2) {
            const Team team = team_of(1 << i, warps, device);
            if (team.max_clusters == 0) continue;
            const double cost = ring_cost(shape, team, device);
            if (best.team_warps == 0 || cost < best_cost) {
                best = team;
                best_cost = cost;
            }
        }
    }
    return plan_ring(shape, best, device);
}

// ---- block_row ---------------------------------------------------------------------------------

Plan plan_block_row(const Shape &shape, const DeviceProperties &device) {
    Plan plan{};
    plan.strategy = Strategy::block_row;
    plan.terms = shape.terms;
    plan.cluster_blocks = 1;
    const int64_t vectors = divide_up(shape.vocab * shape.element_bytes, 16);
    plan.threads = warp_lanes;
    while (plan.threads < block_row_max_threads / 2 && plan.threads * 8 < vectors) plan.threads *= 2;
    // Several blocks per multiprocessor, so that one loads while another stores; one, if only one can hold the row.
    const int spare = 2048;  // static and reserved shared memory
    const int64_t most = std::max(0, device.shared_bytes_per_block - spare) / 16;
    int64_t cached = std::min<int64_t>(most, std::max(0, device.shared_bytes_per_multiprocessor / 2 - spare) / 16);
    if (vectors > cached) {
        cached = most;
        plan.threads = block_row_max_threads;
    }
    plan.cached_vectors = std::min(vectors, cached);
    plan.shared_bytes = static_cast<int>(plan.cached_vectors * 16);
    const int64_t blocks_per_multiprocessor =
        std::clamp<int64_t>(2048 / plan.threads, 1, max_totals_per_multiprocessor);
    plan.blocks = clamp_to_int(std::min<int64_t>(shape.batch, device.multiprocessors * blocks_per_multiprocessor));
    plan.totals = plan.blocks;
    return plan;
}

}  // namespace

int max_totals(const DeviceProperties &device) {
    return device.multiprocessors * static_cast<int>(max_totals_per_multiprocessor);
}

Plan plan_cross_entropy(const Shape &shape, const DeviceProperties &device) {
    if (small_rows_can(shape)) return plan_small_rows(shape, device);
    if (ring_can(shape, device)) return plan_ring(shape, device);
    return plan_block_row(shape, device);
}

Plan plan_ring_of_team(const Shape &shape, const DeviceProperties &device, int cluster_blocks, int team_warps) {
    return plan_ring(shape, team_of(cluster_blocks, team_warps, device), device);
}

// A team is no larger than a row has vectors, and at most a warp.
ScalePlan plan_scale(int element_bytes, int64_t rows, int64_t row_elements, const DeviceProperties &device) {
    const int64_t vectors = row_elements / (16 / element_bytes);
    ScalePlan plan{};
    plan.shape.rows = rows;
    plan.shape.row_elements = row_elements;
    while (1 << plan.shape.team_shift < warp_lanes && 1 << plan.shape.team_shift < vectors) plan.shape.team_shift++;
    const int64_t lanes = 1 << plan.shape.team_shift;
    plan.shape.tiles_per_row = std::max<int64_t>(1, divide_up(vectors, lanes * scale_vectors_per_lane));
    const int64_t teams_per_block = scale_threads / lanes;
    const int64_t at_once = static_cast<int64_t>(device.multiprocessors) * scale_blocks_per_multiprocessor;
    plan.blocks = clamp_to_int(std::min(divide_up(rows * plan.shape.tiles_per_row, teams_per_block), at_once));
    return plan;
}

}  // namespace gh
