#include "device_context.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>

#include "cuda_support.h"
#include "kernels.h"

namespace bench {
namespace {

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

}  // namespace bench
