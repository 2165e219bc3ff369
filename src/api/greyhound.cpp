// The exported functions. Each one validates its arguments and hands the work to the engine
// that the stream names; nothing is computed here.
#include "greyhound/greyhound.h"

#include "api/call.h"
#include "api/host_memory.h"
#include "api/validate.h"
#include "arguments.h"
#include "cpu/engine.h"
#include "cpu/scale.h"
#include "cross_entropy.h"
#include "cuda/engine.h"
#include "scale_dlogits.h"
#include "status.h"

#define GH_STRINGIFY_(x) #x
#define GH_STRINGIFY(x) GH_STRINGIFY_(x)

uint32_t gh_version(void) {
    return GH_VERSION;
}

const char *gh_version_string(void) {
    return GH_STRINGIFY(GH_VERSION_MAJOR) "." GH_STRINGIFY(GH_VERSION_MINOR) "." GH_STRINGIFY(GH_VERSION_PATCH);
}

const char *gh_status_string(gh_status status) {
    switch (status) {
        case GH_SUCCESS: return "success";
        case GH_ERROR_NULL_POINTER: return "a required pointer is NULL";
        case GH_ERROR_INVALID_SIZE: return "a size is negative, zero or too large";
        case GH_ERROR_INVALID_DTYPE: return "unknown dtype";
        case GH_ERROR_INVALID_VALUE: return "a number is outside its domain";
        case GH_ERROR_MISALIGNED_POINTER: return "a pointer is not aligned to its element";
        case GH_ERROR_OVERLAP: return "arguments overlap in memory";
        case GH_ERROR_UNREACHABLE_POINTER: return "the stream's device cannot access a pointer";
        case GH_ERROR_LABEL_OUT_OF_RANGE: return "a label is out of range";
        case GH_ERROR_NO_CUDA: return "this library was built without CUDA";
        case GH_ERROR_NO_DEVICE: return "no CUDA driver or no CUDA device";
        case GH_ERROR_UNSUPPORTED_DEVICE: return "the CUDA device is not supported";
        case GH_ERROR_CUDA: return "a CUDA call failed";
        default: return "unknown status";
    }
}

const char *gh_last_error(void) {
    return gh::last_failure();
}

namespace {

// The arguments that all calls have. Rows follow one another.
gh::CrossEntropy call_of(const void *logits, void *dlogits, gh_dtype dtype, const void *labels, int64_t batch,
                         int64_t vocab) {
    gh::CrossEntropy call;
    call.logits = logits;
    call.dlogits = dlogits;
    call.dtype = dtype;
    call.labels = labels;
    call.batch = batch;
    call.vocab = call.logits_row_stride = call.dlogits_row_stride = vocab;
    return call;
}

// A call with its options read, on its way to the engine that the stream names.
gh_status run(const gh::CrossEntropy &call, gh_stream stream) {
    if (gh_status status = gh::validate(call, stream == GH_STREAM_HOST)) return status;
    if (stream == GH_STREAM_HOST) {
        if (gh_status status = gh::validate_host_memory(gh::Arguments(call))) return status;
        if (gh_status status = gh::validate_labels(call)) return status;
        return gh::cpu::cross_entropy(call);
    }
    return gh::cuda::cross_entropy(call, stream);
}

}  // namespace

gh_status gh_cross_entropy_fwd_bwd(void *logits, gh_dtype dtype, const int64_t *labels, int64_t batch, int64_t vocab,
                                   float z_loss_multiplier, int64_t ignore_index, float *ce_sum, float *z_sum,
                                   float *n_valid, gh_stream stream) {
    gh::CrossEntropy call = call_of(logits, logits, dtype, labels, batch, vocab);
    call.z_loss_multiplier = z_loss_multiplier;
    call.ignore_index = ignore_index;
    call.loss = ce_sum;
    call.z_loss = z_sum;
    call.n_valid = n_valid;
    call.losses_apart = true;
    return run(call, stream);
}

gh_status gh_cross_entropy(const void *logits, void *dlogits, gh_dtype dtype, const void *labels, int64_t batch,
                           int64_t vocab, const gh_cross_entropy_options *options, gh_stream stream) {
    gh::CrossEntropy call = call_of(logits, dlogits, dtype, labels, batch, vocab);
    call.pass = dlogits == nullptr ? gh::Pass::forward : gh::Pass::forward_and_backward;
    if (gh_status status = gh::read_options(options, call)) return status;
    return run(call, stream);
}

gh_status gh_cross_entropy_backward(const void *logits, void *dlogits, gh_dtype dtype, const void *labels,
                                    int64_t batch, int64_t vocab, const void *row_statistics, const float *row_lse,
                                    const gh_cross_entropy_options *options, gh_stream stream) {
    gh::CrossEntropy call = call_of(logits, dlogits, dtype, labels, batch, vocab);
    call.pass = gh::Pass::backward;
    call.saved_statistics = row_statistics;
    call.saved_lse = row_lse;
    if (gh_status status = gh::read_options(options, call)) return status;
    return run(call, stream);
}

gh_status gh_scale_dlogits(void *dlogits, gh_dtype dtype, int64_t batch, int64_t vocab, int64_t dlogits_row_stride,
                           const float *dloss_ptr, gh_stream stream) {
    const gh::ScaleDlogits call{dlogits,  dtype, batch, vocab, dlogits_row_stride == 0 ? vocab : dlogits_row_stride,
                                dloss_ptr};
    if (gh_status status = gh::validate(call)) return status;
    if (stream != GH_STREAM_HOST) return gh::cuda::scale_dlogits(call, stream);
    if (gh_status status = gh::validate_host_memory(gh::Arguments(call))) return status;
    gh::cpu::scale_dlogits(call);
    return GH_SUCCESS;
}

gh_status gh_cross_entropy_workspace_size(gh_stream stream, size_t *size) {
    if (size == nullptr) return gh::fail(GH_ERROR_NULL_POINTER, "size = NULL: must point to one size_t");
    if (stream != GH_STREAM_HOST) return gh::cuda::workspace_size(stream, *size);
    *size = 0;
    return GH_SUCCESS;
}
