#include "cuda/engine.h"

#include <cuda_runtime_api.h>

#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/fail_cuda.h"
#include "cuda/launch.h"
#include "cuda/pointers.h"
#include "plan/plan.h"
#include "status.h"

namespace gh::cuda {
namespace {

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

Shape shape_of(const CrossEntropy &call) {
    const int element = static_cast<int>(element_size(call.dtype));
    const uint64_t row_bytes = static_cast<uint64_t>(call.vocab) * static_cast<uint64_t>(element);
    const uint64_t bits = reinterpret_cast<uintptr_t>(call.logits) | row_bytes | 128;
    return {element, call.batch, call.vocab, static_cast<int>(bits & -bits)};
}

}  // namespace

gh_status cross_entropy(const CrossEntropy &call, gh_stream stream) {
    if (call.batch == 0) return GH_SUCCESS;
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
