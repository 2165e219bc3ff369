// The CPU engine: time of one call on host memory.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "cases.h"
#include "random_data.h"
#include "suites.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Logits that are restored before each call, since a call turns them into gradients.
struct HostCase {
    explicit HostCase(const Case &c)
        : shape(c), pristine(new char[c.bytes()]), logits(new char[c.bytes()]), labels(random_labels(c, c.batch, 2)) {
        fill_normal(pristine.get(), c.dtype, c.elements(), 1);
    }

    // The seconds that one call took. Throws if it did not do its work.
    double run() {
        std::memcpy(logits.get(), pristine.get(), shape.bytes());
        float sums[3] = {0, 0, 0};
        const Clock::time_point start = Clock::now();
        const gh_status status = gh_cross_entropy_fwd_bwd(logits.get(), shape.dtype, labels.data(), shape.batch,
                                                          shape.vocab, shape.z_loss_multiplier, ignore_index, &sums[0],
                                                          &sums[1], &sums[2], GH_STREAM_HOST);
        const double seconds = seconds_since(start);
        if (status) throw std::runtime_error(gh_last_error());
        if (!(sums[0] > 0) || sums[2] != static_cast<float>(shape.batch)) throw std::runtime_error("wrong sums");
        return seconds;
    }

    Case shape;
    std::unique_ptr<char[]> pristine, logits;
    std::vector<int64_t> labels;
};

void cross_entropy(benchmark::State &state, const Case &c) {
    // Kept from one repetition to the next, and freed when the next case starts.
    static std::unique_ptr<HostCase> current;
    try {
        if (!current || current->shape.name() != c.name()) {
            current.reset();
            current = std::make_unique<HostCase>(c);
            current->run();
        }
        double seconds = 0;
        for (auto _ : state) {
            seconds = current->run();
            state.SetIterationTime(seconds);
        }
        state.counters["GB/s"] = 2e-9 * static_cast<double>(c.bytes()) / seconds;
    } catch (const std::exception &e) {
        state.SkipWithError(e.what());
    }
}

// One row of one column: what remains is the boundary, which checks every argument.
void overhead(benchmark::State &state) {
    float logit = 0, sums[3] = {0, 0, 0};
    const int64_t label = 0;
    for (auto _ : state) {
        gh_status status = gh_cross_entropy_fwd_bwd(&logit, GH_DTYPE_F32, &label, 1, 1, 0, ignore_index, &sums[0],
                                                    &sums[1], &sums[2], GH_STREAM_HOST);
        if (status) state.SkipWithError(gh_last_error());
    }
}

std::string processor_name() {
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);)
        if (line.compare(0, 10, "model name") == 0 && line.find(": ") != std::string::npos)
            return line.substr(line.find(": ") + 2);
    return "unknown";
}

}  // namespace

void register_host_suite(const Settings &settings) {
    std::vector<Case> cases;
    for (const Case &c : all_cases())
        if (c.on_host()) cases.push_back(c);
    // One small enough for a test that only asks whether the program works.
    const std::vector<Case> tiny = parse_cases("host_tiny f32,bf16,f16 16 1000");
    cases.insert(cases.end(), tiny.begin(), tiny.end());
    for (const Case &c : cases)
        benchmark::RegisterBenchmark(c.name().c_str(), cross_entropy, c)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(1)
            ->Repetitions(settings.repetitions(11))
            ->ReportAggregatesOnly();
    benchmark::RegisterBenchmark("host_call/1x1", overhead)
        ->Unit(benchmark::kMicrosecond)
        ->Repetitions(settings.repetitions(11))
        ->MinTime(0.02)
        ->ReportAggregatesOnly();
}

Context host_context() {
    const char *threads = std::getenv("OMP_NUM_THREADS");
    return {{"processor", processor_name()},
            {"threads", threads ? threads : std::to_string(std::thread::hardware_concurrency())}};
}

}  // namespace bench
