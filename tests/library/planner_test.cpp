// The planner alone: for every shape and device, a plan that the kernels can carry out. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "problem.h"
#include "ring_chunks.h"

namespace gh {

std::ostream &operator<<(std::ostream &out, const Plan &plan) {
    const char *const names[] = {"small_rows", "ring", "block_row"};
    return out << names[static_cast<int>(plan.strategy)] << ", " << plan.blocks << " blocks of " << plan.threads
               << " threads in clusters of " << plan.cluster_blocks << ", " << plan.shared_bytes
               << " shared bytes; small_rows " << plan.small_rows << "; cached_vectors " << plan.cached_vectors
               << "; team_warps " << plan.ring.team_warps << ", slots " << plan.ring.slots << ", stores_pending "
               << plan.ring.stores_pending << ", exchanges " << plan.ring.exchanges << ", vectors_per_block "
               << plan.ring.vectors_per_block;
}

}  // namespace gh

namespace test {
namespace {

using gh::DeviceProperties;
using gh::Plan;
using gh::plan_cross_entropy;
using gh::Shape;
using gh::Strategy;

struct NamedDevice {
    const char *name;
    DeviceProperties properties;
};

constexpr NamedDevice devices[] = {
    {"sm_80", {80, 108, 166912, 167936, {0, 0, 0, 0, 0}}},
    {"sm_86", {86, 84, 101376, 102400, {0, 0, 0, 0, 0}}},
    {"sm_89", {89, 142, 101376, 102400, {0, 0, 0, 0, 0}}},
    {"sm_90", {90, 132, 232448, 233472, {132, 66, 30, 15, 7}}},
    {"sm_90, part of a device", {90, 16, 232448, 233472, {16, 8, 4, 2, 0}}},
    {"sm_90, no clusters", {90, 132, 232448, 233472, {0, 0, 0, 0, 0}}},
    {"sm_100", {100, 148, 232448, 233472, {148, 74, 36, 17, 8}}},
    {"sm_120", {120, 170, 101376, 102400, {170, 85, 42, 21, 0}}},
    {"one multiprocessor", {80, 1, 49152, 65536, {0, 0, 0, 0, 0}}},
    {"much shared memory, little of it for a block", {80, 3, 49152, 167936, {0, 0, 0, 0, 0}}},
    {"one multiprocessor with rings", {90, 1, 49152, 65536, {1, 0, 0, 0, 0}}},
};
constexpr const NamedDevice &h200 = devices[3];
constexpr const NamedDevice &a100 = devices[0];

// Every size from 1, then around powers of two and their sums, then real vocabularies.
std::vector<int64_t> vocabularies() {
    std::vector<int64_t> all = {50257,
                                50304,
                                65536,
                                100352,
                                128000,
                                128256,
                                151936,
                                152064,
                                200064,
                                201088,
                                256000,
                                262144,
                                262145,
                                INT_MAX - 8,
                                INT_MAX,
                                INT_MAX - 1,
                                int64_t{1} << 32,
                                int64_t{1} << 33,
                                (int64_t{1} << 33) - 8};
    for (int64_t vocab = 1; vocab <= 80; vocab++) all.push_back(vocab);
    for (int64_t power = 128; power <= int64_t{1} << 32; power *= 2)
        for (int64_t base : {power, power + power / 2})
            for (int64_t more : {-17, -8, -1, 0, 1, 8, 15, 24}) all.push_back(base + more);
    return all;
}

constexpr int64_t batches[] = {
    1, 2, 3, 7, 15, 16, 17, 100, 1000, 2048, 8192, 8193, 32768, 1000003, (1 << 24) + 1, int64_t{1} << 33};

const char *name_of(gh::Terms terms) {
    return terms == gh::Terms::plain ? "plain" : terms == gh::Terms::extended ? "extended" : "capped";
}

// Calls `check` with every size on every device. `vary` may change what else a shape says of the call.
template <typename Vary, typename Check>
void for_every_shape(Vary vary, Check check) {
    Random random = make_random();
    std::vector<int64_t> sizes = vocabularies();
    for (int i = 0; i < 200; i++) sizes.push_back(uniform(random, 1, int64_t{1} << uniform(random, 4, 33)));
    for (const NamedDevice &device : devices)
        for (int element_bytes : {2, 4})
            for (int64_t vocab : sizes)
                for (int alignment : {element_bytes, 16, 32, 128}) {
                    if (vocab * element_bytes % alignment != 0) continue;
                    for (int64_t batch : batches) {
                        Shape shape{element_bytes, batch, vocab, alignment};
                        vary(random, shape);
                        const Plan plan = plan_cross_entropy(shape, device.properties);
                        check(shape, device.properties, plan);
                        if (::testing::Test::HasFailure()) {
                            FAIL() << device.name << ": " << batch << " rows of " << vocab << " elements of "
                                   << element_bytes << " bytes, aligned to " << alignment
                                   << (shape.rows_alike ? "" : ", not alike")
                                   << (shape.computes_outputs ? ", outputs" : "")
                                   << (shape.computes_gradient ? ", gradient" : "") << ", " << name_of(shape.terms)
                                   << " terms, seed " << run_seed() << ": " << plan;
                        }
                    }
                }
}

// Of the short call.
template <typename Check>
void for_every_shape(Check check) {
    for_every_shape([](Random &, Shape &) {}, check);
}

// Of calls with any terms and any pass, drawn at random: with so many shapes, each device meets every combination.
template <typename Check>
void for_every_call(Check check) {
    for_every_shape(
        [](Random &random, Shape &shape) {
            shape.terms = static_cast<gh::Terms>(uniform(random, 0, 2));
            shape.rows_alike = uniform(random, 0, 3) > 0;
            const int64_t pass = uniform(random, 0, 2);
            shape.computes_outputs = pass != 0;
            shape.computes_gradient = pass != 1;
        },
        check);
}

TEST(Planner, StaysWithinTheLimitsOfTheDevice) {
    for_every_call([](const Shape &shape, const DeviceProperties &device, const Plan &plan) {
        EXPECT_GE(plan.blocks, 1);
        EXPECT_GE(plan.threads, gh::warp_lanes);
        EXPECT_EQ(plan.threads % gh::warp_lanes, 0);
        EXPECT_GE(plan.cluster_blocks, 1);
        EXPECT_GE(plan.shared_bytes, 0);
        switch (plan.strategy) {
            case Strategy::small_rows:
                EXPECT_EQ(plan.threads, gh::small_rows_threads);
                EXPECT_EQ(plan.cluster_blocks, 1);
                EXPECT_EQ(plan.shared_bytes, 0);
                break;
            case Strategy::ring:
                EXPECT_EQ(plan.threads, gh::ring_warps * gh::warp_lanes);
                EXPECT_LE(plan.shared_bytes, device.shared_bytes_per_block);
                break;
            case Strategy::block_row: {
                EXPECT_LE(plan.threads, gh::block_row_max_threads);
                EXPECT_EQ(plan.cluster_blocks, 1);
                EXPECT_EQ(plan.shared_bytes, plan.cached_vectors * 16);
                EXPECT_LE(plan.cached_vectors, divide_up(shape.vocab * shape.element_bytes, 16));
                // The kernel's own array, eight floats for each warp, comes on top.
                const int parts = gh::block_row_max_threads / gh::warp_lanes * 32;
                EXPECT_LE(plan.shared_bytes + parts, device.shared_bytes_per_block);
                // The edges of a row, up to one vector less an element at each end, have a thread each.
                EXPECT_GE(plan.threads, 2 * (16 / shape.element_bytes - 1));
                break;
            }
        }
    });
}

TEST(Planner, SmallRowsFitIntoTheirLanes) {
    for_every_call([](const Shape &shape, const DeviceProperties &, const Plan &plan) {
        if (plan.strategy != Strategy::small_rows) return;
        EXPECT_GE(shape.row_alignment, 16);
        ASSERT_GE(plan.small_rows, 0);
        ASSERT_LT(plan.small_rows, static_cast<int>(std::size(gh::small_rows_shapes)));
        const gh::SmallRowsShape &shape_of_kernel = gh::small_rows_shapes[plan.small_rows];
        const int lanes = shape_of_kernel.row_lanes, lane_vectors = shape_of_kernel.vectors_per_lane;
        EXPECT_GE(int64_t{lanes} * lane_vectors * 16, shape.vocab * shape.element_bytes);
    });
}

// The kernels of small_rows and block_row walk over the rows with the grid's stride, whatever the grid. The grid should
// only not be larger than the rows.
TEST(Planner, NoBlockIsWithoutARow) {
    for_every_call([](const Shape &shape, const DeviceProperties &device, const Plan &plan) {
        int64_t rows_per_block = 1;
        if (plan.strategy == Strategy::small_rows)
            rows_per_block = gh::small_rows_threads / gh::small_rows_shapes[plan.small_rows].row_lanes;
        if (plan.strategy == Strategy::ring) {
            const int64_t clusters = plan.blocks / plan.cluster_blocks;
            const int64_t teams_per_cluster = gh::ring_warps / plan.ring.team_warps;
            EXPECT_LT((clusters - 1) * teams_per_cluster, shape.batch);
            // No team has more rows than it would have if every cluster that the device can run had been used; of
            // clusters of one block, a few may be left out.
            const int *count = device.ring_clusters;
            for (int blocks = 1; blocks < plan.cluster_blocks; blocks *= 2) count++;
            EXPECT_EQ(
                divide_up(shape.batch, clusters * teams_per_cluster),
                divide_up(shape.batch, (*count - (plan.cluster_blocks == 1 ? *count / 32 : 0)) * teams_per_cluster));
            return;
        }
        EXPECT_LT((plan.blocks - 1) * rows_per_block, shape.batch);
    });
}

TEST(Planner, RingsAreOnlyWhereTheDeviceHasThem) {
    for_every_call([](const Shape &shape, const DeviceProperties &device, const Plan &plan) {
        if (plan.strategy != Strategy::ring) return;
        EXPECT_GE(device.compute_capability, 90);
        EXPECT_LT(shape.vocab, INT_MAX);
        int size = 0;
        while (size < DeviceProperties::cluster_sizes && 1 << size != plan.cluster_blocks) size++;
        ASSERT_LT(size, DeviceProperties::cluster_sizes);
        const int clusters = plan.blocks / plan.cluster_blocks;
        EXPECT_EQ(plan.blocks % plan.cluster_blocks, 0);
        EXPECT_LE(clusters, device.ring_clusters[size]);
    });
}

TEST(Planner, RingsAreConsistent) {
    for_every_call([](const Shape &shape, const DeviceProperties &, const Plan &plan) {
        if (plan.strategy != Strategy::ring) return;
        const gh::RingShape &ring = plan.ring;
        const int warps = ring.team_warps;
        ASSERT_TRUE(warps >= 1 && warps <= gh::ring_warps && (warps & (warps - 1)) == 0);
        if (plan.cluster_blocks > 1) {
            EXPECT_EQ(warps, gh::ring_warps);
        }
        EXPECT_EQ(1 << ring.step_shift, warps * gh::ring_chunk_vectors);

        EXPECT_EQ(ring.vectors_per_block % gh::line_vectors, 0);
        EXPECT_EQ(ring.aligned, shape.row_alignment >= 128);
        if (ring.aligned) {
            EXPECT_EQ(int64_t{ring.row_vectors} * 16, shape.vocab * shape.element_bytes);
            EXPECT_FALSE(ring.cut_at_lines);
        }
        for (int64_t row_vectors : possible_row_vectors(shape, ring.cut_at_lines)) {
            EXPECT_GE(int64_t{ring.vectors_per_block} * plan.cluster_blocks, row_vectors);
            // What comes before the row in its first line is skipped in a full chunk.
            if (ring.cut_at_lines) {
                EXPECT_GE(block_vectors(row_vectors, ring.vectors_per_block, 0), 1 << ring.step_shift);
            }
        }

        // Rings, full barriers, exchange barriers, parts, targets, all but the first of 8 bytes, one after the other.
        const int slots = gh::ring_warps * ring.slots, exchanges = gh::ring_warps * ring.exchanges;
        EXPECT_EQ(ring.layout.full, slots * gh::ring_chunk_vectors * 16);
        EXPECT_EQ(ring.layout.exchange, ring.layout.full + slots * 8);
        EXPECT_EQ(ring.layout.parts, ring.layout.exchange + exchanges * 8);
        const int planes = shape.terms == gh::Terms::plain ? gh::ring_plain_planes : gh::ring_extended_planes;
        EXPECT_EQ(ring.layout.targets, ring.layout.parts + exchanges * plan.cluster_blocks * planes * 8);
        EXPECT_EQ(ring.layout.bytes, ring.layout.targets + exchanges * 8);
        EXPECT_EQ(plan.shared_bytes, ring.layout.bytes);
    });
}

// Every kernel is compiled for every kind of terms.
TEST(Planner, PlansHaveTheTermsOfTheCall) {
    for_every_call(
        [](const Shape &shape, const DeviceProperties &, const Plan &plan) { EXPECT_EQ(plan.terms, shape.terms); });
}

// Vectors of logits become vectors of dlogits at the same place, except in the kernel of one block per row.
TEST(Planner, RowsThatAreNotAlikeHaveABlockEach) {
    for_every_call([](const Shape &shape, const DeviceProperties &, const Plan &plan) {
        if (!shape.rows_alike) {
            EXPECT_EQ(plan.strategy, Strategy::block_row);
        }
    });
}

// See ring.cuh: a forward pass keeps no row in the ring, so nothing but the barriers holds a warp back.
TEST(Planner, RingsOfOnePassAlone) {
    for_every_call([](const Shape &shape, const DeviceProperties &, const Plan &plan) {
        if (plan.strategy != Strategy::ring) return;
        if (!shape.computes_gradient) {
            EXPECT_EQ(plan.ring.exchanges, 4);
        }
        if (!shape.computes_outputs) {
            EXPECT_LE(plan.ring.slots, gh::ring_backward_slots);
        }
        EXPECT_GE(plan.ring.slots, 1);
        EXPECT_GE(plan.ring.stores_pending, 0);
        EXPECT_LT(plan.ring.stores_pending, plan.ring.slots);  // else no slot is ever free
    });
}

// The sums over rows come in as many parts as the kernel has teams, or blocks, and the workspace has room for them.
TEST(Planner, TotalsAreAsManyAsTheKernelLeaves) {
    for_every_call([](const Shape &, const DeviceProperties &device, const Plan &plan) {
        int64_t parts = plan.blocks;
        if (plan.strategy == Strategy::ring)
            parts = int64_t{plan.blocks} / plan.cluster_blocks * (gh::ring_warps / plan.ring.team_warps);
        EXPECT_EQ(plan.totals, parts);
        EXPECT_LE(plan.totals, gh::max_totals(device));
    });
}

// What ring.cuh says about its rings and its exchange barriers, for every warp and every alignment of two rows in turn.
void expect_safe_ring(const Shape &shape, const Plan &plan) {
    const gh::RingShape &ring = plan.ring;
    const auto team = team_chunks(shape, plan.cluster_blocks, ring);
    EXPECT_GE(ring.slots, 1);
    EXPECT_TRUE(ring.stores_pending == 0 || ring.stores_pending == 1);
    if (most_chunks(team) > ring.slots - 1) {
        EXPECT_EQ(ring.stores_pending, 0);
    }
    EXPECT_TRUE(ring.exchanges == 4 || ring.exchanges == 2);
    if (sends_ahead(team, ring)) {
        EXPECT_EQ(ring.exchanges, 4);
    }
    EXPECT_TRUE(loads_in_order(team, ring));
}

TEST(Planner, RingsAreSafe) {
    for_every_call([](const Shape &shape, const DeviceProperties &, const Plan &plan) {
        const bool keeps_rows = shape.computes_outputs && shape.computes_gradient;
        if (plan.strategy == Strategy::ring && keeps_rows) expect_safe_ring(shape, plan);
    });
}

// Also those of teams that the planner turns down.
TEST(Planner, RingsOfEveryTeamAreSafe) {
    for (int64_t vocab : vocabularies())
        for (int alignment : {2, 16, 128}) {
            if (vocab >= INT_MAX || vocab * 2 % alignment != 0) continue;
            for (gh::Terms terms : {gh::Terms::plain, gh::Terms::extended, gh::Terms::capped}) {
                Shape shape{2, 1000, vocab, alignment};
                shape.terms = terms;
                for (int size = 0; size < DeviceProperties::cluster_sizes; size++)
                    for (int warps = size == 0 ? 1 : gh::ring_warps; warps <= gh::ring_warps; warps *= 2) {
                        const Plan plan = gh::plan_ring_of_team(shape, h200.properties, 1 << size, warps);
                        EXPECT_EQ(plan.cluster_blocks, 1 << size);
                        EXPECT_EQ(plan.ring.team_warps, warps);
                        EXPECT_LE(plan.shared_bytes, h200.properties.shared_bytes_per_block);
                        expect_safe_ring(shape, plan);
                        if (::testing::Test::HasFailure())
                            FAIL() << vocab << ", aligned to " << alignment << ", " << name_of(terms)
                                   << " terms: " << plan;
                    }
            }
        }
}

// The rule that the tests above and the kernel share gives every vector to one warp.
TEST(Planner, WarpsShareRowsWithoutRemainder) {
    for (int warps = 1; warps <= gh::ring_warps; warps *= 2)
        for (int64_t part = 0; part < 3 * warps * gh::ring_chunk_vectors; part++) {
            int64_t shared = 0;
            for (int warp = 0; warp < warps; warp++) {
                const Share share = warp_share(part, warps, warp);
                EXPECT_LE(share.last_vectors, gh::ring_chunk_vectors);
                shared += share.vectors();
            }
            ASSERT_EQ(shared, part) << warps << " warps";
        }
}

// ---- Decisions that matter, measured on the devices in question ------------------------------------

Plan plan_on(const NamedDevice &device, int64_t batch, int64_t vocab) {
    const int64_t row_bytes = vocab * 2;
    return plan_cross_entropy({2, batch, vocab, static_cast<int>(std::min<int64_t>(row_bytes & -row_bytes, 128))},
                              device.properties);
}

TEST(Planner, LargeBatchesOfLongRowsStreamThroughPairsOfBlocks) {
    const Plan plan = plan_on(h200, 8192, 128256);
    EXPECT_EQ(plan.strategy, Strategy::ring);
    EXPECT_EQ(plan.cluster_blocks, 2);
    // Nothing is loaded twice.
    EXPECT_GE(plan.ring.slots, most_chunks(team_chunks({2, 8192, 128256, 128}, plan.cluster_blocks, plan.ring)));
}

TEST(Planner, OneRowIsSharedByManyBlocks) {
    for (int64_t vocab : {128256, 200064, 262144}) {
        EXPECT_GE(plan_on(h200, 1, vocab).cluster_blocks, 8) << vocab;
        EXPECT_GE(plan_on(h200, 1, vocab + 1).cluster_blocks, 8) << vocab + 1;
    }
}

TEST(Planner, SmallVocabulariesStayInRegisters) {
    for (const NamedDevice &device : {a100, h200})
        for (int64_t vocab : {8, 64, 128, 256, 2048})
            for (int64_t batch : {1, 100, 1 << 20})
                for (gh::Terms terms : {gh::Terms::plain, gh::Terms::extended, gh::Terms::capped}) {
                    Shape shape{2, batch, vocab, 16};
                    shape.terms = terms;
                    EXPECT_EQ(plan_cross_entropy(shape, device.properties).strategy, Strategy::small_rows) << vocab;
                }
}

TEST(Planner, DevicesWithoutRingsKeepWhatTheyCanOfARow) {
    for (int64_t vocab : {50257, 32000, 128256, 262144}) {
        const Plan plan = plan_on(a100, 8192, vocab);
        EXPECT_EQ(plan.strategy, Strategy::block_row) << vocab;
        // More than a third of a multiprocessor's memory, or the whole row.
        EXPECT_GE(plan.shared_bytes, std::min<int64_t>(vocab * 2, a100.properties.shared_bytes_per_block / 3)) << vocab;
        EXPECT_GE(plan.blocks, a100.properties.multiprocessors) << vocab;
    }
}

TEST(Planner, VocabulariesBeyond31BitsDoWithoutRings) {
    EXPECT_EQ(plan_on(h200, 1, int64_t{1} << 33).strategy, Strategy::block_row);
}

// Too short for a vector, or without one where the alignment is unlucky.
TEST(Planner, TinyUnalignedRowsDoNotShareBlocksOfWarps) {
    for (int64_t vocab : {1, 2, 3, 7, 9, 15}) {
        const Plan plan = plan_on(h200, 100000, vocab);
        EXPECT_NE(plan.strategy, Strategy::small_rows);
        if (plan.strategy == Strategy::ring) {
            EXPECT_EQ(plan.ring.team_warps, 1) << vocab;
        }
    }
}

// ---- Scaling a gradient ----

TEST(Planner, ScalingCoversEveryRowWithAsFewBlocksAsRunAtOnce) {
    for (const NamedDevice &device : devices)
        for (int element_bytes : {2, 4})
            for (int64_t elements : vocabularies())
                for (int64_t rows : {int64_t{1}, int64_t{2}, int64_t{33}, int64_t{8192}, int64_t{1} << 33}) {
                    if (elements > INT64_MAX / element_bytes / rows) continue;
                    const gh::ScalePlan plan = gh::plan_scale(element_bytes, rows, elements, device.properties);
                    SCOPED_TRACE(std::string(device.name) + ": " + std::to_string(rows) + " rows of " +
                                 std::to_string(elements));
                    const int64_t vectors = elements / (16 / element_bytes), lanes = 1 << plan.shape.team_shift;
                    ASSERT_EQ(plan.shape.rows, rows);
                    ASSERT_EQ(plan.shape.row_elements, elements);
                    ASSERT_LE(lanes, gh::warp_lanes);
                    ASSERT_GE(plan.shape.tiles_per_row, 1);  // the first also has what is not in vectors
                    const int64_t tile = lanes * gh::scale_vectors_per_lane;
                    ASSERT_GE(plan.shape.tiles_per_row * tile, vectors);
                    ASSERT_LT((plan.shape.tiles_per_row - 1) * tile, std::max<int64_t>(vectors, 1));
                    ASSERT_GE(plan.blocks, 1);
                    ASSERT_LE(plan.blocks, device.properties.multiprocessors * gh::scale_blocks_per_multiprocessor);
                    // No block is without a tile.
                    ASSERT_LT((plan.blocks - 1) * (gh::scale_threads / lanes), rows * plan.shape.tiles_per_row);
                }
}

TEST(Planner, ScalingSharesShortRowsAmongFewLanes) {
    const auto lanes = [](int64_t elements) {
        return 1 << gh::plan_scale(2, 1000, elements, h200.properties).shape.team_shift;
    };
    EXPECT_EQ(lanes(1), 1);
    EXPECT_EQ(lanes(16), 2);
    EXPECT_EQ(lanes(17), 2);
    EXPECT_EQ(lanes(100), 16);
    EXPECT_EQ(lanes(50257), 32);
}

}  // namespace
}  // namespace test
