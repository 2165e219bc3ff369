// What an option costs: GPU time of a call that uses it, next to the plain call's.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "device_option_case.h"
#include "option_cases.h"
#include "suites.h"

namespace bench {
namespace {

void option_cost(benchmark::State &state, const OptionCase &option) {
    // Kept from one repetition to the next, and freed before the next case allocates.
    static std::unique_ptr<DeviceOptionCase> current;
    try {
        if (!current || current->option().name() != option.name()) {
            current.reset();
            current = std::make_unique<DeviceOptionCase>(option);
        }
        DeviceOptionCase::Times times{};
        for (auto _ : state) {
            times = current->run();
            state.SetIterationTime(times.call);
        }
        state.counters["plain_us"] = 1e6 * times.plain;
        state.counters["of_plain"] = times.call / times.plain;
        state.counters["calls"] = static_cast<double>(current->calls());
    } catch (const std::exception &e) {
        current.reset();
        cudaGetLastError();  // so that a failed allocation is not the next case's error too
        state.SkipWithError(e.what());
    }
}

}  // namespace

void register_option_suite(const Settings &settings) {
    for (const OptionCase &option : all_option_cases()) {
        if (option.on_host) continue;
        benchmark::RegisterBenchmark(option.name().c_str(), option_cost, option)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(1)
            ->Repetitions(settings.repetitions(51))
            ->ReportAggregatesOnly();
    }
}

}  // namespace bench
