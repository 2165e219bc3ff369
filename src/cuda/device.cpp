#include "cuda/device.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>

#include "cuda/fail_cuda.h"
#include "cuda/launch.h"

namespace gh::cuda {
namespace {

constexpr int max_devices = 64;

cudaError_t attribute(int &value, cudaDeviceAttr which, int device) {
    return cudaDeviceGetAttribute(&value, which, device);
}

gh_status query(Device &device, int ordinal) {
    int major = 0, minor = 0, pageable = 0;
    DeviceProperties &p = device.properties;
    cudaError_t error = attribute(major, cudaDevAttrComputeCapabilityMajor, ordinal);
    if (error == cudaSuccess) error = attribute(minor, cudaDevAttrComputeCapabilityMinor, ordinal);
    if (error == cudaSuccess) error = attribute(pageable, cudaDevAttrPageableMemoryAccess, ordinal);
    if (error == cudaSuccess) error = attribute(p.multiprocessors, cudaDevAttrMultiProcessorCount, ordinal);
    if (error == cudaSuccess)
        error = attribute(p.shared_bytes_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal);
    if (error == cudaSuccess)
        error = attribute(p.shared_bytes_per_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, ordinal);
    if (error != cudaSuccess) return fail_cuda("cudaDeviceGetAttribute", error);
    device.pageable_access = pageable != 0;
    p.compute_capability = major * 10 + minor;
    if (p.compute_capability < 80)
        return fail(GH_ERROR_UNSUPPORTED_DEVICE,
                    "stream: CUDA device %d has compute capability %d.%d; 8.0 or newer is needed", ordinal, major,
                    minor);
    error = prepare_kernels(p);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
        return fail(GH_ERROR_UNSUPPORTED_DEVICE,
                    "stream: CUDA device %d has compute capability %d.%d; this libgreyhound was built without code "
                    "for it",
                    ordinal, major, minor);
    if (error != cudaSuccess) return fail_cuda("preparing the kernels", error);
    return GH_SUCCESS;
}

}  // namespace

// What is known of a device never changes, so it is asked once.
gh_status find_device(int ordinal, const Device *&found) {
    static Device devices[max_devices];
    static std::atomic<bool> ready[max_devices];
    static std::mutex mutex;
    if (ordinal < 0 || ordinal >= max_devices)
        return fail(GH_ERROR_UNSUPPORTED_DEVICE, "stream: CUDA device %d: only %d devices are supported", ordinal,
                    max_devices);
    found = &devices[ordinal];
    if (ready[ordinal].load(std::memory_order_acquire)) return GH_SUCCESS;
    std::lock_guard<std::mutex> lock(mutex);
    if (ready[ordinal].load(std::memory_order_relaxed)) return GH_SUCCESS;
    if (gh_status status = query(devices[ordinal], ordinal)) return status;
    ready[ordinal].store(true, std::memory_order_release);
    return GH_SUCCESS;
}

}  // namespace gh::cuda
