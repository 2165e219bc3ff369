// GPU time of one call, beside a copy and an in-place pass over the same bytes in the same repetition.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "cases.h"
#include "cuda_support.h"
#include "device_case.h"
#include "kernels.h"
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

// The first line of a command's output; "" if it cannot be run.
std::string first_line(const std::string &command) {
    std::array<char, 512> text{};
    FILE *const pipe = popen(command.c_str(), "r");
    if (!pipe) return "";
    std::string line = std::fgets(text.data(), text.size(), pipe) ? text.data() : "";
    pclose(pipe);
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
}

std::string cuda_version(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// What nvidia-smi says of clocks while memory is busy: an idle GPU lowers them.
std::string clocks_under_load(int device) {
    constexpr size_t bytes = size_t{1} << 28;
    constexpr int passes = 4000;  // about half a second at 4 TB/s, longer than nvidia-smi takes to look
    char bus_id[32];
    check(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device), "cudaDeviceGetPCIBusId");
    const Stream stream;
    const DeviceBuffer buffer(bytes);
    fill_normal_on_device(buffer.data(), GH_DTYPE_F32, bytes / sizeof(float), 4, stream);
    for (int i = 0; i < passes; i++) stream_in_place(buffer.data(), bytes, stream);
    std::string clocks = first_line(std::string("nvidia-smi --format=csv,noheader --id=") + bus_id +
                                    " --query-gpu=clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem 2>/dev/null");
    stream.synchronize();
    return clocks.empty() ? "unknown" : clocks;
}

}  // namespace

bool have_device() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

Context device_context() {
    int device = 0, driver = 0, runtime = 0;
    cudaDeviceProp properties;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    std::string driver_release = first_line("nvidia-smi --format=csv,noheader --query-gpu=driver_version 2>/dev/null");
    return {{"gpu", properties.name},
            {"compute_capability", std::to_string(properties.major) + "." + std::to_string(properties.minor)},
            {"multiprocessors", std::to_string(properties.multiProcessorCount)},
            {"l2_bytes", std::to_string(properties.l2CacheSize)},
            {"driver", driver_release.empty() ? "unknown" : driver_release},
            {"driver_cuda", cuda_version(driver)},
            {"runtime_cuda", cuda_version(runtime)},
            {"clocks_sm_mem_maxsm_maxmem", clocks_under_load(device)}};
}

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
