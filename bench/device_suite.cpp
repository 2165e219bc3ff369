// GPU time of one call, beside a copy and an in-place pass over the same bytes in the same repetition.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "cases.h"
#include "cuda_support.h"
#include "device_case.h"
#include "suites.h"

namespace bench {
namespace {

void cross_entropy(benchmark::State &state, const Case &shape) {
    // Kept from one repetition to the next, and freed before the next case allocates.
    static std::unique_ptr<DeviceCase> current;
    try {
        if (!current || current->shape().name() != shape.name()) {
            current.reset();
            current = std::make_unique<DeviceCase>(shape);
        }
        DeviceCase::Times times{};
        for (auto _ : state) {
            times = current->run();
            state.SetIterationTime(times.call);
        }
        state.counters["GB/s"] = 2e-9 * static_cast<double>(shape.bytes()) / times.call;
        state.counters["of_memcpy"] = times.copy / times.call;
        state.counters["of_stream"] = times.stream / times.call;
        state.counters["memcpy_us"] = 1e6 * times.copy;
        state.counters["stream_us"] = 1e6 * times.stream;
        state.counters["calls"] = static_cast<double>(current->calls());
    } catch (const std::exception &e) {
        current.reset();
        cudaGetLastError();  // so that a failed allocation is not the next case's error too
        state.SkipWithError(e.what());
    }
}

}  // namespace

void register_device_suite(const Settings &settings) {
    for (const Case &shape : all_cases()) {
        if (shape.on_host()) continue;
        benchmark::RegisterBenchmark(("device/" + shape.name()).c_str(), cross_entropy, shape)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(1)
            ->Repetitions(settings.repetitions(31))
            ->ReportAggregatesOnly();
    }
}

}  // namespace bench
