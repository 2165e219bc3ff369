#include "cuda/engine.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>

#include "cuda/launch.h"
#include "plan/plan.h"
#include "status.h"

namespace gh::cuda {
namespace {

gh_status fail_cuda(const char *what, cudaError_t error) {
    return fail(GH_ERROR_CUDA, "%s: %s: %s", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

// ---- The driver --------------------------------------------------------------------------------

// The few driver calls that the runtime does not offer, or does not allow during stream capture. Taken from the driver
// that is there when they are first needed, so that the library loads on a machine without one.
struct Driver {
    CUresult (*stream_get_context)(CUstream, CUcontext *);
    CUresult (*context_get_current)(CUcontext *);
    CUresult (*context_push)(CUcontext);
    CUresult (*context_pop)(CUcontext *);
    CUresult (*context_get_device)(CUdevice *);
    CUresult (*pointer_get_attributes)(unsigned int, CUpointer_attribute *, void **, CUdeviceptr);
};

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
    if (error != cudaSuccess) return fail_cuda("cudaGetDriverEntryPoint", error);
    ready.store(true, std::memory_order_release);
    return GH_SUCCESS;
}

// ---- The stream's device -----------------------------------------------------------------------

// Makes a stream's context current for as long as it lives.
class StreamContext {
public:
    explicit StreamContext(const Driver &driver) : driver_(driver) {}
    StreamContext(const StreamContext &) = delete;
    StreamContext &operator=(const StreamContext &) = delete;

    ~StreamContext() {
        CUcontext popped = nullptr;
        if (pushed_) driver_.context_pop(&popped);
    }

    gh_status enter(cudaStream_t stream, int &device) {
        CUcontext current = nullptr, wanted = nullptr;
        driver_.context_get_current(&current);
        if (current == nullptr && (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)) {
            // This thread has not used CUDA yet. Its default stream is on its current device, which needs a context.
            if (cudaError_t error = cudaGetDevice(&device)) return fail_cuda("cudaGetDevice", error);
            if (cudaError_t error = cudaSetDevice(device)) return fail_cuda("cudaSetDevice", error);
            driver_.context_get_current(&current);
        }
        if (CUresult result = driver_.stream_get_context(stream, &wanted))
            return fail(GH_ERROR_CUDA, "stream = %p: its device is unknown (cuStreamGetCtx: error %d)",
                        static_cast<void *>(stream), static_cast<int>(result));
        if (wanted != current) {
            if (CUresult result = driver_.context_push(wanted))
                return fail(GH_ERROR_CUDA, "cuCtxPushCurrent: error %d", static_cast<int>(result));
            pushed_ = true;
        }
        if (CUresult result = driver_.context_get_device(&device))
            return fail(GH_ERROR_CUDA, "cuCtxGetDevice: error %d", static_cast<int>(result));
        return GH_SUCCESS;
    }

private:
    const Driver &driver_;
    bool pushed_ = false;
};

struct Device {
    DeviceProperties properties;
    bool pageable_access;  // kernels may use any host memory
};

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

// ---- The pointers ------------------------------------------------------------------------------

// May the device whose context is current use this pointer as it is?
gh_status check_pointer(const Driver &driver, const Device &device, int ordinal, const char *name,
                        const void *pointer) {
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    unsigned long long access = 0;
    CUdeviceptr device_pointer = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *values[] = {&access, &device_pointer};
    const CUresult result = driver.pointer_get_attributes(2, attributes, values, address);
    constexpr unsigned long long read_write = 3;  // CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
    if (result == CUDA_SUCCESS && device_pointer == address && access == read_write) return GH_SUCCESS;

    // Not so, or not certain. What kind of memory is it?
    unsigned int type = 0;
    int owner = -1;
    CUpointer_attribute kinds[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *kind_values[] = {&type, &owner};
    if (driver.pointer_get_attributes(2, kinds, kind_values, address) != CUDA_SUCCESS) type = 0;
    if (type == 0) {
        if (device.pageable_access) return GH_SUCCESS;
        return fail(GH_ERROR_UNREACHABLE_POINTER, "%s = %p: host memory that CUDA device %d cannot access", name,
                    pointer, ordinal);
    }
    if (type == CU_MEMORYTYPE_HOST)
        return fail(GH_ERROR_UNREACHABLE_POINTER,
                    "%s = %p: registered host memory that CUDA device %d can access only at another address", name,
                    pointer, ordinal);
    return fail(GH_ERROR_UNREACHABLE_POINTER,
                "%s = %p: memory of CUDA device %d, to which the stream's device %d has no access", name, pointer,
                owner, ordinal);
}

gh_status check_pointers(const Driver &driver, const Device &device, int ordinal, const CrossEntropy &call) {
    if (gh_status status = check_pointer(driver, device, ordinal, "logits", call.logits)) return status;
    if (gh_status status = check_pointer(driver, device, ordinal, "labels", call.labels)) return status;
    if (gh_status status = check_pointer(driver, device, ordinal, "ce_sum", call.ce_sum)) return status;
    if (call.z_sum != nullptr)
        if (gh_status status = check_pointer(driver, device, ordinal, "z_sum", call.z_sum)) return status;
    if (call.n_valid != nullptr)
        if (gh_status status = check_pointer(driver, device, ordinal, "n_valid", call.n_valid)) return status;
    return GH_SUCCESS;
}

Shape shape_of(const CrossEntropy &call) {
    const int element = static_cast<int>(element_size(call.dtype));
    const uint64_t row_bytes = static_cast<uint64_t>(call.vocab) * static_cast<uint64_t>(element);
    const uint64_t bits = reinterpret_cast<uintptr_t>(call.logits) | row_bytes | 128;
    return {element, call.batch, call.vocab, static_cast<int>(bits & -bits)};
}

}  // namespace

gh_status cross_entropy_fwd_bwd(const CrossEntropy &call, gh_stream stream) {
    const Driver *driver = nullptr;
    if (gh_status status = find_driver(driver)) return status;
    StreamContext context(*driver);
    int ordinal = 0;
    if (gh_status status = context.enter(stream, ordinal)) return status;
    const Device *device = nullptr;
    if (gh_status status = find_device(ordinal, device)) return status;
    if (gh_status status = check_pointers(*driver, *device, ordinal, call)) return status;

    const Plan plan = plan_cross_entropy(shape_of(call), device->properties);
    if (cudaError_t error = launch(call, plan, stream)) return fail_cuda("launching the kernel", error);
    return GH_SUCCESS;
}

}  // namespace gh::cuda
