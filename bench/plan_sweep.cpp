// greyhound_plan_sweep: each shape with the plan that the planner chooses, and with plans that it turns down: other
// teams, other numbers of blocks, rows moved off their lines, the kernel for devices without clusters.
//
//   greyhound_plan_sweep --out FILE
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cross_entropy.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda_support.h"
#include "kernels.h"
#include "plan/plan.h"
#include "status.h"
#include "sweep.h"

namespace bench {
namespace {

using gh::Plan;
using gh::Strategy;

struct MatrixShape {
    int64_t batch, vocab;
};
constexpr MatrixShape shapes[] = {
    {8192, 65536},  {8192, 100352}, {8192, 128256}, {8192, 200064}, {4096, 128256}, {2048, 65536}, {2048, 100352},
    {2048, 128256}, {4096, 50304},  {8192, 50304},  {8192, 50257},  {4096, 32000},  {8192, 32000}, {256, 2097152},
    {32768, 8192},  {65536, 4096},  {131072, 2048}, {262144, 1024}, {1048576, 256},
};
constexpr int element_bytes = 2;  // bf16
constexpr int moved_elements = 8;
constexpr int64_t ignore_index = -100;  // of no row

int64_t bytes_of(const MatrixShape &shape) {
    return shape.batch * shape.vocab * element_bytes;
}

// A plan to be measured, and the class of question that it answers.
struct Variant {
    std::string group, name;
    Plan plan;
    int offset = 0;  // elements by which the matrix is moved
};

gh::Shape shape_of(const MatrixShape &shape, int offset) {
    // Device memory starts at a multiple of 256 bytes.
    const int64_t bits = (shape.vocab | offset) * element_bytes | 128;
    return {element_bytes, shape.batch, shape.vocab, static_cast<int>(bits & -bits)};
}

std::string describe(const Plan &plan) {
    const std::string blocks = std::to_string(plan.blocks) + " blocks";
    switch (plan.strategy) {
        case Strategy::small_rows: return "small_rows " + std::to_string(plan.small_rows) + ", " + blocks;
        case Strategy::block_row: return "block_row of " + std::to_string(plan.threads) + " threads, " + blocks;
        case Strategy::ring: break;
    }
    return "ring " + std::to_string(plan.cluster_blocks) + "x" + std::to_string(plan.ring.team_warps) + ", " + blocks;
}

// ---- Which plans -------------------------------------------------------------------------------

// Every team that the device can run, but none with warps that would have no full chunk of a row.
void add_teams(std::vector<Variant> &variants, const gh::Shape &shape, const gh::DeviceProperties &device) {
    const int64_t row_chunks = shape.vocab * element_bytes / gh::ring_chunk_bytes;
    for (int i = 0; i < gh::DeviceProperties::cluster_sizes; i++)
        for (int warps = i == 0 ? 1 : gh::ring_warps; warps <= gh::ring_warps; warps *= 2) {
            const int blocks = 1 << i;
            if (device.ring_clusters[i] == 0 || (blocks * warps > 1 && blocks * warps > row_chunks)) continue;
            variants.push_back({"team", std::to_string(blocks) + "x" + std::to_string(warps),
                                gh::plan_ring_of_team(shape, device, blocks, warps)});
        }
}

void add_blocks(std::vector<Variant> &variants, const Plan &chosen, const gh::DeviceProperties &device) {
    const auto add = [&](int blocks) {
        Plan plan = chosen;
        plan.blocks = blocks / plan.cluster_blocks * plan.cluster_blocks;
        if (plan.blocks > 0) variants.push_back({"blocks", std::to_string(plan.blocks), plan});
    };
    if (chosen.strategy == Strategy::ring)
        for (int idle : {0, 2, 4, 6, 8, 12, 16}) add(device.multiprocessors - idle);
    if (chosen.strategy == Strategy::small_rows) {
        const int wave = device.multiprocessors * gh::small_rows_shapes[chosen.small_rows].blocks_per_multiprocessor;
        for (int waves : {1, 2, 4, 6, 8, 12}) add(waves * wave);
    }
}

void add_alignments(std::vector<Variant> &variants, const MatrixShape &shape, const gh::DeviceProperties &device) {
    for (int offset : {0, moved_elements}) {
        const std::string name = offset ? "moved by " + std::to_string(offset * element_bytes) + " bytes" : "in place";
        Plan plan = gh::plan_cross_entropy(shape_of(shape, offset), device);
        if (offset) variants.push_back({"alignment", name, plan, offset});
        if (plan.strategy != Strategy::ring || !plan.ring.cut_at_lines) continue;
        plan.ring.cut_at_lines = false;
        variants.push_back({"alignment", name + ", not cut at lines", plan, offset});
    }
}

std::vector<Variant> variants_of(const MatrixShape &shape, const gh::DeviceProperties &device) {
    const gh::Shape in_place = shape_of(shape, 0);
    std::vector<Variant> variants{{"chosen", "chosen", gh::plan_cross_entropy(in_place, device)}};
    const Plan chosen = variants.front().plan;
    if (device.ring_clusters[0] > 0) add_teams(variants, in_place, device);
    add_blocks(variants, chosen, device);
    add_alignments(variants, shape, device);
    gh::DeviceProperties without_clusters = device;
    without_clusters.compute_capability = 80;
    const Plan plan = gh::plan_cross_entropy(in_place, without_clusters);
    if (plan.strategy != chosen.strategy) variants.push_back({"no_clusters", "as without clusters", plan});
    return variants;
}

// ---- Measuring ---------------------------------------------------------------------------------

class Measurement {
public:
    explicit Measurement(const gh::DeviceProperties &device) : device_(device), sums_(3 * sizeof(float)) {}

    const std::vector<Record> &results() const { return results_; }

    void measure(const MatrixShape &shape) {
        const auto bytes = static_cast<size_t>(bytes_of(shape));
        const DeviceBuffer pristine(bytes), logits(bytes + moved_elements * element_bytes);
        const DeviceBuffer labels(static_cast<size_t>(shape.batch) * sizeof(int64_t));
        fill_normal_on_device(pristine.data(), GH_DTYPE_BF16, shape.batch * shape.vocab, 1, stream_);
        fill_labels(labels, shape);
        const auto restore = [&](int offset) {
            check(cudaMemcpyAsync(logits.data() + offset * element_bytes, pristine.data(), bytes,
                                  cudaMemcpyDeviceToDevice, stream_),
                  "cudaMemcpyAsync");
        };
        const double copy_seconds = median_seconds(stream_, [&] { restore(0); });
        std::printf("%lld x %lld: cudaMemcpyAsync %.4f ms", static_cast<long long>(shape.batch),
                    static_cast<long long>(shape.vocab), 1e3 * copy_seconds);

        Losses expected{};
        std::string printed_group;
        for (const Variant &variant : variants_of(shape, device_)) {
            const gh::CrossEntropy call{logits.data() + variant.offset * element_bytes,
                                        GH_DTYPE_BF16,
                                        reinterpret_cast<const int64_t *>(labels.data()),
                                        shape.batch,
                                        shape.vocab,
                                        0.0f,
                                        ignore_index,
                                        sum(0),
                                        sum(1),
                                        sum(2)};
            restore(variant.offset);
            const Losses losses = verify(call, variant, expected);
            if (variant.group == "chosen") expected = losses;
            restore(variant.offset);
            const double seconds =
                median_seconds(stream_, [&] { check(gh::cuda::launch(call, variant.plan, stream_), "launch"); });
            const double ratio = copy_seconds / seconds;
            if (variant.group != printed_group) std::printf("\n  %-12s", variant.group.c_str());
            printed_group = variant.group;
            const std::string name =
                variant.group == "chosen" || variant.group == "no_clusters" ? describe(variant.plan) : variant.name;
            std::printf(" %s: %.3f ", name.c_str(), ratio);
            add(shape, variant, copy_seconds, seconds, losses);
        }
        std::printf("\n");
        std::fflush(stdout);
    }

private:
    // Mean losses: of the logits, and of what the first launch made of them.
    struct Losses {
        double of_logits, of_gradients;
    };

    float *sum(int i) const { return reinterpret_cast<float *>(sums_.data()) + i; }

    void fill_labels(const DeviceBuffer &labels, const MatrixShape &shape) {
        std::mt19937_64 random(2);
        std::uniform_int_distribution<int64_t> label(0, shape.vocab - 1);
        std::vector<int64_t> values(static_cast<size_t>(shape.batch));
        for (int64_t &value : values) value = label(random);
        check(cudaMemcpyAsync(labels.data(), values.data(), values.size() * sizeof(int64_t), cudaMemcpyHostToDevice,
                              stream_),
              "cudaMemcpyAsync");
        stream_.synchronize();
    }

    double launch_for_loss(const gh::CrossEntropy &call, const Variant &variant) {
        check(cudaMemsetAsync(sums_.data(), 0, 3 * sizeof(float), stream_), "cudaMemsetAsync");
        check(gh::cuda::launch(call, variant.plan, stream_), "launch");
        float sums[3];
        check(cudaMemcpyAsync(sums, sums_.data(), sizeof(sums), cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
        stream_.synchronize();
        if (sums[2] != static_cast<float>(call.batch)) fail(variant, "n_valid", static_cast<double>(sums[2]));
        const double loss = static_cast<double>(sums[0]) / static_cast<double>(call.batch);
        if (!std::isfinite(loss)) fail(variant, "the mean loss", loss);
        return loss;
    }

    // The tests prove correctness; this keeps plans that leave out work from being measured.
    Losses verify(const gh::CrossEntropy &call, const Variant &variant, const Losses &expected) {
        const double of_logits = launch_for_loss(call, variant);
        const Losses losses{of_logits, launch_for_loss(call, variant)};
        const auto differ = [](double a, double b) { return !(std::fabs(a - b) <= 1e-4 * std::fabs(b)); };
        if (variant.group != "chosen") {
            if (differ(losses.of_logits, expected.of_logits)) fail(variant, "the mean loss", losses.of_logits);
            if (differ(losses.of_gradients, expected.of_gradients))
                fail(variant, "the mean loss of the gradients", losses.of_gradients);
        }
        return losses;
    }

    [[noreturn]] static void fail(const Variant &variant, const char *what, double value) {
        throw std::runtime_error(variant.group + " " + variant.name + " (" + describe(variant.plan) + "): " + what +
                                 " is wrong: " + std::to_string(value));
    }

    void add(const MatrixShape &shape, const Variant &variant, double copy_seconds, double seconds,
             const Losses &losses) {
        const Plan &plan = variant.plan;
        Record record;
        record.integer("batch", shape.batch)
            .integer("vocab", shape.vocab)
            .text("group", variant.group)
            .text("name", variant.name)
            .text("plan", describe(plan))
            .integer("blocks", plan.blocks)
            .integer("threads", plan.threads)
            .integer("shared_bytes", plan.shared_bytes);
        if (plan.strategy == Strategy::ring)
            record.integer("cluster_blocks", plan.cluster_blocks)
                .integer("team_warps", plan.ring.team_warps)
                .integer("slots", plan.ring.slots)
                .integer("stores_pending", plan.ring.stores_pending)
                .integer("exchanges", plan.ring.exchanges)
                .flag("aligned", plan.ring.aligned)
                .flag("cut_at_lines", plan.ring.cut_at_lines);
        record.real("memcpy_ms", 1e3 * copy_seconds)
            .real("ms", 1e3 * seconds)
            .real("of_memcpy", copy_seconds / seconds)
            .real("loss", losses.of_logits);
        results_.push_back(record);
    }

    const gh::DeviceProperties &device_;
    Stream stream_;
    DeviceBuffer sums_;
    std::vector<Record> results_;
};

const gh::DeviceProperties &current_device() {
    int ordinal = 0;
    const gh::cuda::Device *device = nullptr;
    check(cudaGetDevice(&ordinal), "cudaGetDevice");
    check(cudaSetDevice(ordinal), "cudaSetDevice");
    if (gh::cuda::find_device(ordinal, device) != GH_SUCCESS) throw std::runtime_error(gh::last_failure());
    return device->properties;
}

}  // namespace
}  // namespace bench

int main(int argc, char **argv) {
    try {
        const std::string file = bench::output_file(argc, argv);
        bench::Measurement measurement(bench::current_device());
        for (const bench::MatrixShape &shape : bench::shapes) measurement.measure(shape);
        bench::write_results(
            file,
            "bf16; medians of " + std::to_string(bench::sweep_launches) +
                " launches; random logits are restored before each plan, not before each launch: later "
                "launches take gradients for logits; of_memcpy: time of cudaMemcpyAsync of the same "
                "bytes / time",
            measurement.results());
    } catch (const std::exception &error) {
        std::fprintf(stderr, "greyhound_plan_sweep: %s\n", error.what());
        return 1;
    }
    return 0;
}
