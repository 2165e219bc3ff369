// Every CUDA kernel with plans made by hand, also those that the planner would not choose for the shape or the device:
// all ways to divide rows among threads, and rings of every size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "api/call.h"
#include "check.h"
#include "cross_entropy.h"
#include "cuda.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "engine.h"
#include "option_call.h"
#include "option_check.h"
#include "plan/plan.h"
#include "ring_chunks.h"
#include "status.h"

namespace test {
namespace {

using gh::Plan;
using gh::Strategy;

// Readies the kernels that this program contains.
const gh::DeviceProperties &device() {
    static const gh::cuda::Device &found = [&]() -> const gh::cuda::Device & {
        const gh::cuda::Device *known = nullptr;
        CUDA_CHECK(cudaSetDevice(0));
        if (gh::cuda::find_device(0, known) != GH_SUCCESS) {
            std::fprintf(stderr, "%s\n", gh::last_failure());
            std::exit(1);
        }
        return *known;
    }();
    return found.properties;
}

std::string describe(const Plan &plan) {
    std::string text = std::to_string(plan.blocks) + " blocks of " + std::to_string(plan.threads) + " threads, ";
    switch (plan.strategy) {
        case Strategy::small_rows: return text + "small_rows " + std::to_string(plan.small_rows);
        case Strategy::block_row: return text + "cached_vectors " + std::to_string(plan.cached_vectors);
        case Strategy::ring:
            return text + "cluster_blocks " + std::to_string(plan.cluster_blocks) + ", team_warps " +
                   std::to_string(plan.ring.team_warps) + ", slots " + std::to_string(plan.ring.slots) +
                   ", stores_pending " + std::to_string(plan.ring.stores_pending) + ", exchanges " +
                   std::to_string(plan.ring.exchanges);
    }
    return text;
}

// A problem in device memory, to be solved with one plan after another.
class Solver {
public:
    explicit Solver(const Problem &problem) : problem_(problem), placed_(problem) {}

    gh::Shape shape() const {
        const int element_bytes = static_cast<int>(element_size(problem_.dtype));
        const auto bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(placed_.arguments.logits)) |
                          problem_.vocab * element_bytes | 128;
        return {element_bytes, problem_.batch, problem_.vocab, static_cast<int>(bits & -bits)};
    }

    Outcome solve(const Plan &plan) {
        if (solved_) placed_.fill(problem_);
        solved_ = true;
        const Arguments &a = placed_.arguments;
        gh::CrossEntropy call;
        call.logits = call.dlogits = a.logits;
        call.dtype = a.dtype;
        call.labels = a.labels;
        call.batch = a.batch;
        call.vocab = call.logits_row_stride = call.dlogits_row_stride = a.vocab;
        call.z_loss_multiplier = a.z_loss_multiplier;
        call.ignore_index = a.ignore_index;
        call.loss = a.ce_sum;
        call.z_loss = a.z_sum;
        call.n_valid = a.n_valid;
        call.losses_apart = true;
        const cudaError_t error = gh::cuda::launch(call, plan, device(), a.stream);
        EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
        return placed_.fetch();
    }

    void check_against_oracle(const Plan &plan, int partial_sums) {
        SCOPED_TRACE(describe(plan));
        check(problem_, solve(plan), partial_sums);
    }

private:
    const Problem &problem_;
    Placed placed_;
    bool solved_ = false;
};

// Ignored rows here and there, in a run, at both ends, all but one, all, or none; they hold NaN, which must not leak.
void ignore_some(Random &random, Rows &problem) {
    const int64_t pattern = uniform(random, 0, 6), batch = problem.batch;
    const int64_t begin = uniform(random, 0, batch), end = uniform(random, begin, batch);
    const int64_t only = uniform(random, 0, batch - 1);
    for (int64_t row = 0; row < batch; row++) {
        const bool inside = row >= begin && row < end;
        if ((pattern == 1 && uniform(random, 0, 2) == 0) || (pattern == 2 && inside) || (pattern == 3 && !inside) ||
            (pattern == 4 && row != only) || (pattern == 5 && row >= begin) || pattern == 6) {
            problem.labels[static_cast<size_t>(row)] = problem.ignore_index;
            problem.fill(row, std::numeric_limits<double>::quiet_NaN());
        }
    }
}

// One row in the middle becomes NaN, and so do the sums.
void put_a_label_out_of_range(Random &random, Problem &problem) {
    const int64_t wrong[] = {-1, problem.vocab, INT64_MIN, INT64_MAX, int64_t{1} << 32};
    problem.labels[static_cast<size_t>(uniform(random, 0, problem.batch - 1))] = wrong[uniform(random, 0, 4)];
}

Problem varied_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab) {
    Problem problem = random_problem(random, dtype, batch, vocab, uniform(random, 0, 1) ? 1 : 5);
    problem.z_loss_multiplier = uniform(random, 0, 1) ? 1e-3f : 0.0f;
    problem.ce_sum = 3;
    problem.z_sum = 5;
    problem.n_valid = 7;
    ignore_some(random, problem);
    if (uniform(random, 0, 9) == 0) put_a_label_out_of_range(random, problem);
    return problem;
}

class Kernels : public ::testing::TestWithParam<gh_dtype> {
protected:
    Random random = make_random();
    const gh_dtype dtype = GetParam();
    const int element_bytes = static_cast<int>(element_size(dtype));
    const int64_t per_vector = 16 / element_bytes;
};

std::string param_name(const ::testing::TestParamInfo<gh_dtype> &info) {
    return dtype_name(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(all_dtypes), param_name);

// ---- block_row -----------------------------------------------------------------------------------

Plan block_row_plan(int blocks, int threads, int64_t cached_vectors) {
    Plan plan{};
    plan.strategy = Strategy::block_row;
    plan.blocks = blocks;
    plan.threads = threads;
    plan.cluster_blocks = 1;
    plan.cached_vectors = cached_vectors;
    plan.shared_bytes = static_cast<int>(cached_vectors * 16);
    return plan;
}

TEST_P(Kernels, BlockRowWithAnyBlockAndAnyCache) {
    device();
    for (int threads = gh::warp_lanes; threads <= gh::block_row_max_threads; threads *= 2)
        for (int64_t vocab :
             {uniform(random, 1, 40), uniform(random, 1, 3000), per_vector * uniform(random, 1, 400), int64_t{2500}}) {
            Problem problem = varied_problem(random, dtype, 9, vocab);
            problem.offset = uniform(random, 0, 1) * uniform(random, 0, per_vector - 1);
            Solver solver(problem);
            const int64_t all = divide_up(vocab, per_vector);
            for (int64_t cached : {int64_t{0}, uniform(random, 0, all), all})
                for (int blocks : {1, 4, 9, 20})
                    solver.check_against_oracle(block_row_plan(blocks, threads, cached), std::min(threads, 256));
        }
}

TEST_P(Kernels, BlockRowWithTheLabelAnywhere) {
    device();
    const int64_t vocab = 37 * per_vector + uniform(random, 0, per_vector - 1);
    Problem problem = random_problem(random, dtype, vocab, vocab);
    for (int64_t row = 0; row < vocab; row++) problem.labels[static_cast<size_t>(row)] = row;
    problem.offset = uniform(random, 0, per_vector - 1);
    problem.z_loss_multiplier = 1e-2f;
    Solver solver(problem);
    for (int64_t cached : {0, 20, 38}) solver.check_against_oracle(block_row_plan(7, gh::warp_lanes, cached), 32);
}

// ---- small_rows ----------------------------------------------------------------------------------

Plan small_rows_plan(int blocks, int which) {
    Plan plan{};
    plan.strategy = Strategy::small_rows;
    plan.blocks = blocks;
    plan.threads = gh::small_rows_threads;
    plan.cluster_blocks = 1;
    plan.small_rows = which;
    return plan;
}

TEST_P(Kernels, SmallRowsWithAnyLanes) {
    device();
    for (int which = 0; which < static_cast<int>(std::size(gh::small_rows_shapes)); which++) {
        const gh::SmallRowsShape &shape_of_kernel = gh::small_rows_shapes[which];
        const int lanes = shape_of_kernel.row_lanes, lane_vectors = shape_of_kernel.vectors_per_lane;
        const int64_t capacity = int64_t{lanes} * lane_vectors, rows_per_block = gh::small_rows_threads / lanes;
        for (int64_t vectors : {capacity, uniform(random, 1, capacity), uniform(random, 1, capacity), int64_t{1}}) {
            // One block goes round twice and a little more; many blocks have nothing to do.
            const int64_t batch = 2 * rows_per_block + 5;
            const Problem problem = varied_problem(random, dtype, batch, vectors * per_vector);
            Solver solver(problem);
            for (int blocks : {1, 2, 9}) solver.check_against_oracle(small_rows_plan(blocks, which), lanes);
        }
    }
}

TEST_P(Kernels, SmallRowsWithTheLabelAnywhere) {
    device();
    for (int which = 0; which < static_cast<int>(std::size(gh::small_rows_shapes)); which++) {
        const gh::SmallRowsShape &shape_of_kernel = gh::small_rows_shapes[which];
        const int lanes = shape_of_kernel.row_lanes, lane_vectors = shape_of_kernel.vectors_per_lane;
        const int64_t vocab = lanes * lane_vectors * per_vector;
        Problem problem = random_problem(random, dtype, std::min<int64_t>(vocab, 128), vocab);
        for (int64_t row = 0; row < problem.batch; row++)
            problem.labels[static_cast<size_t>(row)] = row == 0 ? vocab - 1 : row * vocab / problem.batch;
        Solver(problem).check_against_oracle(small_rows_plan(2, which), lanes);
    }
}

// ---- ring ----------------------------------------------------------------------------------------

struct Team {
    int cluster_blocks, team_warps;
    int warps() const { return cluster_blocks * team_warps; }
    // Each lane of each warp has sums of its own.
    int partial_sums() const { return std::min(warps() * gh::warp_lanes, 256); }
};

// All that the device can run; none if it has no rings.
std::vector<Team> teams() {
    std::vector<Team> all;
    for (int size = 0; size < gh::DeviceProperties::cluster_sizes; size++)
        for (int warps = size == 0 ? 1 : gh::ring_warps; warps <= gh::ring_warps; warps *= 2)
            if (device().ring_clusters[size] > 0) all.push_back({1 << size, warps});
    return all;
}

Plan ring_plan(const gh::Shape &shape, const Team &team, int clusters, int slots, int stores_pending, int exchanges,
               bool cut_at_lines) {
    Plan plan{};
    plan.strategy = Strategy::ring;
    plan.terms = shape.terms;
    plan.blocks = clusters * team.cluster_blocks;
    plan.totals = clusters * (gh::ring_warps / team.team_warps);
    plan.threads = gh::ring_warps * gh::warp_lanes;
    plan.cluster_blocks = team.cluster_blocks;
    gh::RingShape &ring = plan.ring;
    ring.team_warps = team.team_warps;
    for (ring.step_shift = 0; 1 << ring.step_shift < team.team_warps * gh::ring_chunk_vectors;) ring.step_shift++;
    const int64_t per_vector = 16 / shape.element_bytes;
    ring.row_vectors = static_cast<int>(shape.vocab / per_vector);
    ring.aligned = shape.row_alignment >= 128;
    ring.cut_at_lines = cut_at_lines;
    const int64_t most_vectors = divide_up(shape.vocab, per_vector) + (cut_at_lines ? gh::line_vectors - 1 : 0);
    ring.vectors_per_block =
        static_cast<int>(divide_up(divide_up(most_vectors, team.cluster_blocks), gh::line_vectors)) * gh::line_vectors;
    ring.slots = slots;
    ring.stores_pending = stores_pending;
    ring.exchanges = exchanges;
    ring.layout = gh::RingLayout(slots, exchanges, team.cluster_blocks,
                                 shape.terms == gh::Terms::plain ? gh::ring_plain_planes : gh::ring_extended_planes);
    plan.shared_bytes = ring.layout.bytes;
    return plan;
}

// May chunks be cut at lines? Not needed if rows are aligned, and what comes before a row in its first line is skipped
// in a full chunk.
bool can_cut_at_lines(const gh::Shape &shape, const Team &team) {
    const gh::RingShape ring = ring_plan(shape, team, 1, 2, 0, 4, true).ring;
    const int step = team.team_warps * gh::ring_chunk_vectors;
    return !ring.aligned && ring.vectors_per_block >= step && ring.row_vectors - 2 >= step;
}

// Mostly as the planner does.
bool cut_some(Random &random, const gh::Shape &shape, const Team &team) {
    return can_cut_at_lines(shape, team) && uniform(random, 0, 3) > 0;
}

// Every ring of this team that may process the shape and that the device has room for, see ring_chunks.h.
std::vector<Plan> legal_rings(const gh::Shape &shape, const Team &team, int clusters, bool cut_at_lines) {
    std::vector<Plan> legal;
    for (int slots = 1; slots <= gh::ring_max_slots; slots++)
        for (int stores_pending : {0, 1})
            for (int exchanges : {2, 4}) {
                const Plan plan = ring_plan(shape, team, clusters, slots, stores_pending, exchanges, cut_at_lines);
                const auto chunks = team_chunks(shape, team.cluster_blocks, plan.ring);
                if (plan.shared_bytes > device().shared_bytes_per_block) continue;
                if (stores_pending == 1 && most_chunks(chunks) > slots - 1) continue;
                if (exchanges == 2 && team.warps() > 1 && sends_ahead(chunks, plan.ring)) continue;
                if (loads_in_order(chunks, plan.ring)) legal.push_back(plan);
            }
    return legal;
}

// Solves with all of the plans, which differ only in how rows move through the rings and not in how they are summed:
// the first is held against the oracle, and the others must give the same bits. The rows' losses are the same too, but
// the order in which blocks add theirs to the caller's float is not: each of at most batch + 1 additions, and the two
// times that a partial sum becomes a float, rounds by u, in both outcomes.
void solve_and_check(const Problem &problem, Solver &solver, const std::vector<Plan> &plans, int partial_sums) {
    ASSERT_FALSE(plans.empty());
    Outcome first;
    for (const Plan &plan : plans) {
        SCOPED_TRACE(describe(plan));
        const Outcome outcome = solver.solve(plan);
        if (&plan == &plans.front()) {
            first = outcome;
            check(problem, first, partial_sums);
        } else {
            SCOPED_TRACE(problem.describe());
            const double rounding = 2 * u * (static_cast<double>(problem.batch) + 3);
            EXPECT_TRUE(outcome.dlogits == first.dlogits) << "not the gradients of the first plan";
            EXPECT_EQ(std::isnan(outcome.ce_sum), std::isnan(first.ce_sum));
            if (!std::isnan(first.ce_sum)) {
                EXPECT_NEAR(outcome.ce_sum, first.ce_sum, rounding * first.ce_sum);
                EXPECT_NEAR(outcome.z_sum, first.z_sum, rounding * first.z_sum);
            }
            EXPECT_EQ(outcome.n_valid, first.n_valid);
        }
        if (::testing::Test::HasFailure()) return;
    }
}

// Rows of two or three chunks for each warp, in rings of one slot and more: rows that are loaded twice, that fit
// exactly, with one slot to spare, and two and more at a time.
TEST_P(Kernels, RingsOfEverySize) {
    if (teams().empty()) GTEST_SKIP() << "this device has no rings";
    for (const Team &team : teams()) {
        const int64_t round = int64_t{team.warps()} * gh::ring_chunk_vectors * per_vector;  // one chunk for each warp
        const int64_t rounds = team.warps() > 32 ? 2 : 3;
        const int64_t teams_per_cluster = gh::ring_warps / team.team_warps;
        const int64_t vocabularies[] = {
            // Aligned, with a last chunk of any size.
            (rounds - 1) * round + per_vector * uniform(random, 1, round / per_vector),
            // Unaligned, and how many chunks a row has depends on where it starts.
            (rounds - 1) * round + uniform(random, 1 - per_vector, 2 * per_vector),
        };
        for (int64_t vocab : vocabularies) {
            const int clusters = team.warps() > 32 ? 1 : static_cast<int>(uniform(random, 1, 2));
            const int64_t batch = teams_per_cluster * clusters * 2 + uniform(random, 0, 1);
            Problem problem = varied_problem(random, dtype, batch, vocab);
            // An aligned vocabulary may start at an unaligned address as well.
            if (&vocab != vocabularies || uniform(random, 0, 1)) {
                problem.offset = uniform(random, 0, gh::line_vectors * per_vector - 1);
            }
            Solver solver(problem);
            solve_and_check(problem, solver,
                            legal_rings(solver.shape(), team, clusters, cut_some(random, solver.shape(), team)),
                            team.partial_sums());
            if (HasFailure()) return;
        }
    }
}

// A single team with many rows, so that the barriers' parities go round and the losses of more than 32 rows are kept.
TEST_P(Kernels, RingsWithManyRowsForOneTeam) {
    if (teams().empty()) GTEST_SKIP() << "this device has no rings";
    for (const Team &team : teams())
        for (int64_t vocab : {per_vector * uniform(random, 1, 700), uniform(random, 1, 6000)}) {
            const int64_t batch = 75 * (gh::ring_warps / team.team_warps) / (team.team_warps < 4 ? 2 : 1) + 1;
            Problem problem = varied_problem(random, dtype, std::min<int64_t>(batch, 150), vocab);
            problem.offset = uniform(random, 0, 1) * uniform(random, 0, per_vector - 1);
            Solver solver(problem);
            std::vector<Plan> plans = legal_rings(solver.shape(), team, 1, cut_some(random, solver.shape(), team));
            std::shuffle(plans.begin(), plans.end(), random);
            plans.resize(std::min<size_t>(plans.size(), 5));
            solve_and_check(problem, solver, plans, team.partial_sums());
            if (HasFailure()) return;
        }
}

// Rows so short that most warps, and whole blocks of the cluster, have none of it, or that do not fill a vector.
TEST_P(Kernels, RingsWithHardlyAnythingToDo) {
    if (teams().empty()) GTEST_SKIP() << "this device has no rings";
    for (const Team &team : teams())
        for (int64_t vocab : {int64_t{1}, int64_t{2}, per_vector - 1, per_vector, per_vector + 1, 2 * per_vector - 1,
                              9 * per_vector, 17 * per_vector + 1}) {
            Problem problem = varied_problem(random, dtype, uniform(random, 1, 70), vocab);
            problem.offset = uniform(random, 0, per_vector - 1);
            Solver solver(problem);
            const auto plans = legal_rings(solver.shape(), team, static_cast<int>(uniform(random, 1, 3)), false);
            solve_and_check(problem, solver, {plans.front(), plans.back()}, team.partial_sums());
            if (HasFailure()) return;
        }
}

// The first and last element of everything that a row is cut into, for a row that is divided from `skip` vectors before
// its first, which is `head` elements in.
std::vector<int64_t> cuts(const Plan &plan, int64_t vocab, int64_t head, int64_t skip, int64_t per_vector) {
    std::vector<int64_t> columns = {0, head - 1, head, vocab - 1};
    const int64_t row_vectors = (vocab - head) / per_vector + skip;
    const auto cut_at = [&](int64_t vector) {
        columns.push_back(head + (vector - skip) * per_vector - 1);
        columns.push_back(head + (vector - skip) * per_vector);
    };
    cut_at(row_vectors);
    const int warps = plan.ring.team_warps;
    for (int rank = 0; rank < plan.cluster_blocks; rank++) {
        const int64_t begin = int64_t{rank} * plan.ring.vectors_per_block;
        const int64_t part = block_vectors(row_vectors, plan.ring.vectors_per_block, rank);
        const int64_t full = warp_share(part, warps, 0).full_chunks * warps * gh::ring_chunk_vectors;
        cut_at(begin);
        // Some warps of every block are enough: each has the same code.
        for (int warp : {0, 1, warps / 2, warps - 1}) {
            if (warp >= warps) continue;
            if (full > 0) cut_at(begin + int64_t{warp} * gh::ring_chunk_vectors);
            cut_at(begin + full + warp * warp_share(part, warps, 0).last_vectors);
        }
    }
    std::sort(columns.begin(), columns.end());
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    columns.erase(std::remove_if(columns.begin(), columns.end(), [&](int64_t c) { return c < 0 || c >= vocab; }),
                  columns.end());
    return columns;
}

TEST_P(Kernels, RingsWithTheLabelAnywhere) {
    if (teams().empty()) GTEST_SKIP() << "this device has no rings";
    for (const Team &team : teams()) {
        // A full chunk for each warp and a last one; for the wider teams, whose rows would be long, a last one only.
        const int64_t round = int64_t{team.warps()} * gh::ring_chunk_vectors * per_vector;
        const int64_t shortest = team.warps() > 16 ? round / 32 : round + per_vector;
        const int64_t longest = team.warps() > 16 ? round / 16 : round + round / 2;
        const int64_t line = per_vector * gh::line_vectors;
        for (int64_t offset : {int64_t{0}, per_vector * uniform(random, 1, gh::line_vectors - 1),
                               uniform(random, 1, line - 1), uniform(random, 1, line - 1)}) {
            // Rows of whole lines all start alike, so that the cuts are the same for all.
            const int64_t vocab = divide_up(uniform(random, shortest, longest), line) * line;
            const int64_t head = (per_vector - offset % per_vector) % per_vector;
            const int64_t bits = offset * element_bytes | 128;
            const gh::Shape shape{element_bytes, 1, vocab, static_cast<int>(bits & -bits)};
            const bool cut_at_lines = cut_some(random, shape, team);
            const int64_t skip = cut_at_lines ? (offset + head) / per_vector % gh::line_vectors : 0;
            const std::vector<Plan> plans = legal_rings(shape, team, 1, cut_at_lines);
            ASSERT_FALSE(plans.empty());
            std::vector<int64_t> labels = cuts(plans.front(), vocab, head, skip, per_vector);
            for (int64_t column = 0; column < head; column++) labels.push_back(column);
            for (int64_t column = vocab - offset % per_vector; column < vocab; column++) labels.push_back(column);
            Problem problem = random_problem(random, dtype, static_cast<int64_t>(labels.size()), vocab);
            problem.labels = labels;
            problem.offset = offset;
            problem.z_loss_multiplier = uniform(random, 0, 1) ? 1e-3f : 0.0f;
            Solver solver(problem);
            solve_and_check(problem, solver, {plans.front(), plans.back()}, team.partial_sums());
            if (HasFailure()) return;
        }
    }
}

// ---- Options -------------------------------------------------------------------------------------

// A call with options in device memory, to be solved with one plan after another.
class OptionSolver {
public:
    OptionSolver(const OptionProblem &problem, gh::Terms terms) : problem_(problem), terms_(terms), placed_(problem) {}

    gh::Shape shape() const {
        const int element_bytes = static_cast<int>(element_size(problem_.dtype));
        const auto bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(placed_.logits())) |
                          problem_.vocab * element_bytes | (problem_.vocab + problem_.padding) * element_bytes | 128;
        gh::Shape shape{element_bytes, problem_.batch, problem_.vocab, static_cast<int>(bits & -bits)};
        shape.terms = terms_;
        return shape;
    }

    OptionOutcome solve(const Plan &plan) {
        if (solved_) placed_.fill(problem_);
        solved_ = true;
        gh::CrossEntropy call;
        call.pass = problem_.is_backward()                ? gh::Pass::backward
                    : problem_.gradient == Gradient::none ? gh::Pass::forward
                                                          : gh::Pass::forward_and_backward;
        call.logits = placed_.logits();
        call.dlogits = placed_.dlogits();
        call.dtype = problem_.dtype;
        call.labels = placed_.labels();
        call.batch = problem_.batch;
        call.vocab = problem_.vocab;
        call.saved_statistics = placed_.saved_statistics();
        EXPECT_EQ(gh::read_options(&placed_.options, call), GH_SUCCESS) << gh::last_failure();
        const cudaError_t error = gh::cuda::launch(call, plan, device(), engine().stream());
        EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
        return placed_.fetch();
    }

private:
    const OptionProblem problem_;
    const gh::Terms terms_;
    PlacedOptions placed_;
    bool solved_ = false;
};

OptionProblem varied_option_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, gh::Terms terms) {
    OptionProblem problem = random_option_problem(random, dtype, batch, vocab, uniform(random, 0, 1) ? 1 : 5);
    randomize_options(random, problem);
    problem.softcap = terms == gh::Terms::capped ? random_floats(random, 1, 2, 40)[0] : 0;
    problem.reduction = static_cast<gh_reduction>(uniform(random, 0, 2));
    problem.outputs = Outputs::all(problem.reduction);
    problem.with_workspace = uniform(random, 0, 1);
    problem.padding = uniform(random, 0, 1) * uniform(random, 1, 20);
    ignore_some(random, problem);
    return problem;
}

// One pass, the forward pass alone, and the backward pass from what the first one saved, each with some of the plans.
// Plans differ only in how rows move through the rings, and a backward pass has the bits of the one pass.
void solve_every_pass(Random &random, const OptionProblem &problem, gh::Terms terms, std::vector<Plan> plans,
                      int partial_sums) {
    ASSERT_FALSE(plans.empty());
    std::shuffle(plans.begin(), plans.end(), random);
    OptionSolver one_pass(problem, terms);
    const OptionOutcome first = one_pass.solve(plans.front());
    {
        SCOPED_TRACE(describe(plans.front()));
        check(problem, first, partial_sums);
    }
    OptionProblem forward_problem = problem;
    forward_problem.gradient = Gradient::none;
    OptionSolver forward(forward_problem, terms), backward(backward_from(problem, first), terms);
    bool checked_forward = false;
    for (size_t k = 0; k < plans.size() && k < 6 && !::testing::Test::HasFailure(); k++) {
        const Plan &plan = plans[k];
        SCOPED_TRACE(problem.describe() + "; " + describe(plan));
        EXPECT_TRUE(one_pass.solve(plan).dlogits == first.dlogits) << "not the gradients of the first plan";
        EXPECT_TRUE(backward.solve(plan).dlogits == first.dlogits) << "backward: not the gradients of the one pass";
        // The forward pass alone needs four exchanges, see ring.cuh.
        if (checked_forward || (plan.strategy == Strategy::ring && plan.ring.exchanges != 4)) continue;
        check(forward_problem, forward.solve(plan), partial_sums);
        checked_forward = true;
    }
}

TEST_P(Kernels, OptionsInRingsOfEveryTeam) {
    if (teams().empty()) GTEST_SKIP() << "this device has no rings";
    for (gh::Terms terms : {gh::Terms::extended, gh::Terms::capped})
        for (const Team &team : teams()) {
            const int64_t round = int64_t{team.warps()} * gh::ring_chunk_vectors * per_vector;
            const int64_t longest = team.warps() > 16 ? round / 4 : 2 * round;
            // Aligned if its rows start so; unaligned; and hardly anything to do.
            for (int64_t vocab : {per_vector * uniform(random, 1, longest / per_vector), uniform(random, 1, longest),
                                  uniform(random, 1, 2 * per_vector)}) {
                const int clusters = team.warps() > 32 ? 1 : static_cast<int>(uniform(random, 1, 2));
                const int64_t batch = int64_t{gh::ring_warps / team.team_warps} * clusters + uniform(random, 1, 3);
                OptionProblem problem = varied_option_problem(random, dtype, batch, vocab, terms);
                problem.offset = uniform(random, 0, 1) * uniform(random, 0, gh::line_vectors * per_vector - 1);
                const gh::Shape shape = OptionSolver(problem, terms).shape();
                solve_every_pass(random, problem, terms,
                                 legal_rings(shape, team, clusters, cut_some(random, shape, team)),
                                 team.partial_sums());
                if (HasFailure()) return;
            }
        }
}

TEST_P(Kernels, OptionsInBlocksOfEverySize) {
    device();
    for (gh::Terms terms : {gh::Terms::extended, gh::Terms::capped})
        for (int threads = gh::warp_lanes; threads <= gh::block_row_max_threads; threads *= 2)
            for (int64_t vocab : {uniform(random, 1, 40), uniform(random, 1, 3000)}) {
                OptionProblem problem = varied_option_problem(random, dtype, 9, vocab, terms);
                problem.offset = uniform(random, 0, per_vector - 1);
                const int64_t all = divide_up(vocab, per_vector);
                std::vector<Plan> plans;
                // Of one number of blocks: what is summed over rows then comes in the same parts.
                const auto blocks = static_cast<int>(uniform(random, 1, 9));
                for (int64_t cached : {int64_t{0}, uniform(random, 0, all), all}) {
                    Plan plan = block_row_plan(blocks, threads, cached);
                    plan.terms = terms;
                    plan.totals = blocks;
                    plans.push_back(plan);
                }
                solve_every_pass(random, problem, terms, plans, std::min(threads, 256));
                if (HasFailure()) return;
            }
}

TEST_P(Kernels, OptionsInSmallRowsOfEveryShape) {
    device();
    for (gh::Terms terms : {gh::Terms::plain, gh::Terms::extended, gh::Terms::capped})
        for (int which = 0; which < static_cast<int>(std::size(gh::small_rows_shapes)); which++) {
            const gh::SmallRowsShape &shape_of_kernel = gh::small_rows_shapes[which];
            const int lanes = shape_of_kernel.row_lanes, lane_vectors = shape_of_kernel.vectors_per_lane;
            const int64_t capacity = int64_t{lanes} * lane_vectors, rows_per_block = gh::small_rows_threads / lanes;
            for (int64_t vectors : {capacity, uniform(random, 1, capacity)}) {
                const int64_t batch = rows_per_block + uniform(random, 1, rows_per_block);
                OptionProblem problem = varied_option_problem(random, dtype, batch, vectors * per_vector, terms);
                problem.padding = per_vector * uniform(random, 0, 2);
                // With either of these, rows are not computed in registers.
                if (uniform(random, 0, 2) > 0) problem.class_weights.clear();
                if (uniform(random, 0, 2) > 0) problem.row_dentropy.clear();
                // What is not asked for is not summed.
                if (uniform(random, 0, 1)) problem.outputs.remove(Output::row_entropy);
                if (uniform(random, 0, 1))
                    for (Output output : {Output::row_argmax, Output::n_correct}) problem.outputs.remove(output);
                // Too large for fused powers, and for the soft cap's series.
                if (uniform(random, 0, 1)) problem.fill(uniform(random, 0, batch - 1), largest(dtype) / 4);
                if (terms == gh::Terms::plain) {
                    problem.label_smoothing = 0;
                    problem.row_dentropy.clear();
                    for (Output output : {Output::row_entropy, Output::row_argmax, Output::n_correct})
                        problem.outputs.remove(output);
                }
                std::vector<Plan> plans;
                for (int blocks : {1, 2, 9}) {
                    Plan plan = small_rows_plan(blocks, which);
                    plan.terms = terms;
                    plan.totals = blocks;
                    plans.push_back(plan);
                }
                solve_every_pass(random, problem, terms, plans, lanes);
                if (HasFailure()) return;
                // Another kernel's backward pass has the same bits.
                const OptionOutcome first = OptionSolver(problem, terms).solve(plans.front());
                Plan other = block_row_plan(3, 64, capacity);
                other.terms = terms;
                SCOPED_TRACE(problem.describe() + "; " + describe(other));
                EXPECT_TRUE(OptionSolver(backward_from(problem, first), terms).solve(other).dlogits == first.dlogits);
                if (HasFailure()) return;
            }
        }
}

}  // namespace
}  // namespace test
