#include "cuda/driver.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>

#include "cuda/fail_cuda.h"

namespace gh::cuda {
namespace {

template <typename Function>
cudaError_t find(const char *name, Function &function) {
    void *address = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const unsigned int version = 12000;
    if (cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found))
        return error;
    if (found != cudaDriverEntryPointSuccess) return cudaErrorSymbolNotFound;
    function = reinterpret_cast<Function>(address);
    return cudaSuccess;
}

}  // namespace

gh_status find_driver(const Driver *&driver) {
    static Driver functions;
    static std::atomic<bool> ready{false};
    static std::mutex mutex;
    driver = &functions;
    if (ready.load(std::memory_order_acquire)) return GH_SUCCESS;

    std::lock_guard<std::mutex> lock(mutex);
    if (ready.load(std::memory_order_relaxed)) return GH_SUCCESS;
    int devices = 0;
    const cudaError_t none = cudaGetDeviceCount(&devices);
    if (none == cudaErrorNoDevice || none == cudaErrorInsufficientDriver || (none == cudaSuccess && devices == 0))
        return fail(GH_ERROR_NO_DEVICE, "stream: a CUDA stream, but this machine has no CUDA driver or device (%s)",
                    cudaGetErrorString(none));
    if (none != cudaSuccess) return fail_cuda("cudaGetDeviceCount", none);
    cudaError_t error = find("cuStreamGetCtx", functions.stream_get_context);
    if (error == cudaSuccess) error = find("cuCtxGetCurrent", functions.context_get_current);
    if (error == cudaSuccess) error = find("cuCtxPushCurrent", functions.context_push);
    if (error == cudaSuccess) error = find("cuCtxPopCurrent", functions.context_pop);
    if (error == cudaSuccess) error = find("cuCtxGetDevice", functions.context_get_device);
    if (error == cudaSuccess) error = find("cuPointerGetAttributes", functions.pointer_get_attributes);
    if (error != cudaSuccess) return fail_cuda("cudaGetDriverEntryPointByVersion", error);
    ready.store(true, std::memory_order_release);
    return GH_SUCCESS;
}

}  // namespace gh::cuda
