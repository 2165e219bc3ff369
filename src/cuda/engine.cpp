#include "cuda/engine.h"

#include <cuda_runtime_api.h>

#include "arguments.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/fail_cuda.h"
#include "cuda/launch.h"
#include "cuda/pointers.h"
#include "plan/plan.h"
#include "status.h"

namespace gh::cuda {
namespace {

// A stream's device, and its context made current for as long as this lives.
class StreamDevice {
public:
    StreamDevice() = default;
    StreamDevice(const StreamDevice &) = delete;
    StreamDevice &operator=(const StreamDevice &) = delete;

    ~StreamDevice() {
        CUcontext popped = nullptr;
        if (pushed_) driver_->context_pop(&popped);
    }

    // Before anything else is asked of it.
    gh_status enter(cudaStream_t stream) {
        if (gh_status status = find_driver(driver_)) return status;
        if (gh_status status = enter_context(stream)) return status;
        return find_device(ordinal_, device_);
    }

    const DeviceProperties &properties() const { return device_->properties; }
    int ordinal() const { return ordinal_; }

    gh_status check(const Arguments &arguments) const {
        return check_pointers(*driver_, *device_, ordinal_, arguments);
    }

private:
    gh_status enter_context(cudaStream_t stream) {
        CUcontext current = nullptr, wanted = nullptr;
        driver_->context_get_current(&current);
        if (current == nullptr && (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)) {
            // This thread has not used CUDA yet. Its default stream is on its current device, which needs a context.
            if (cudaError_t error = cudaGetDevice(&ordinal_)) return fail_cuda("cudaGetDevice", error);
            if (cudaError_t error = cudaSetDevice(ordinal_)) return fail_cuda("cudaSetDevice", error);
            driver_->context_get_current(&current);
        }
        if (CUresult result = driver_->stream_get_context(stream, &wanted))
            return fail(GH_ERROR_CUDA, "stream = %p: its device is unknown (cuStreamGetCtx: error %d)",
                        static_cast<void *>(stream), static_cast<int>(result));
        if (wanted != current) {
            if (CUresult result = driver_->context_push(wanted))
                return fail(GH_ERROR_CUDA, "cuCtxPushCurrent: error %d", static_cast<int>(result));
            pushed_ = true;
        }
        if (CUresult result = driver_->context_get_device(&ordinal_))
            return fail(GH_ERROR_CUDA, "cuCtxGetDevice: error %d", static_cast<int>(result));
        return GH_SUCCESS;
    }

    const Driver *driver_ = nullptr;
    const Device *device_ = nullptr;
    int ordinal_ = 0;
    bool pushed_ = false;
};

Shape shape_of(const CrossEntropy &call) {
    const auto element = static_cast<int64_t>(element_size(call.dtype));
    const auto logits = reinterpret_cast<uintptr_t>(call.logits), dlogits = reinterpret_cast<uintptr_t>(call.dlogits);
    const auto bytes = [=](int64_t elements) {
        return static_cast<uint64_t>(elements) * static_cast<uint64_t>(element);
    };
    uint64_t bits = logits | bytes(call.vocab) | bytes(call.logits_row_stride) | 128, apart = 0;
    if (call.pass != Pass::forward) {
        bits |= dlogits | bytes(call.dlogits_row_stride);
        apart = (dlogits - logits) | (bytes(call.dlogits_row_stride) - bytes(call.logits_row_stride));
    }
    Shape shape{};
    shape.element_bytes = static_cast<int>(element);
    shape.batch = call.batch;
    shape.vocab = call.vocab;
    shape.row_alignment = static_cast<int>(bits & -bits);
    shape.rows_alike = apart % 16 == 0;
    shape.computes_outputs = call.pass != Pass::backward;
    shape.computes_gradient = call.pass != Pass::forward;
    if (call.softcap > 0.0f)
        shape.terms = Terms::capped;
    else if (call.label_smoothing != 0.0f || call.needs_argmax() || call.needs_entropy())
        shape.terms = Terms::extended;
    return shape;
}

}  // namespace

gh_status cross_entropy(const CrossEntropy &call, gh_stream stream) {
    if (call.batch == 0 && !call.overwrite_sums) return GH_SUCCESS;
    StreamDevice device;
    if (gh_status status = device.enter(stream)) return status;
    if (gh_status status = device.check(Arguments(call))) return status;
    const size_t needed = workspace_size(device.properties());
    if (call.workspace != nullptr && call.workspace_size < needed)
        return fail(GH_ERROR_INVALID_SIZE, "options.workspace_size = %zu: CUDA device %d needs %zu bytes",
                    call.workspace_size, device.ordinal(), needed);

    Plan plan{};
    if (call.batch > 0) plan = plan_cross_entropy(shape_of(call), device.properties());
    if (cudaError_t error = launch(call, plan, device.properties(), stream))
        return fail_cuda("launching the kernel", error);
    return GH_SUCCESS;
}

gh_status scale_dlogits(const ScaleDlogits &call, gh_stream stream) {
    if (call.batch == 0) return GH_SUCCESS;
    StreamDevice device;
    if (gh_status status = device.enter(stream)) return status;
    if (gh_status status = device.check(Arguments(call))) return status;
    const ScalePlan plan =
        plan_scale(static_cast<int>(element_size(call.dtype)), call.rows(), call.row_elements(), device.properties());
    if (cudaError_t error = launch(call, plan, stream)) return fail_cuda("launching the kernel", error);
    return GH_SUCCESS;
}

gh_status workspace_size(gh_stream stream, size_t &size) {
    StreamDevice device;
    if (gh_status status = device.enter(stream)) return status;
    size = workspace_size(device.properties());
    return GH_SUCCESS;
}

}  // namespace gh::cuda
