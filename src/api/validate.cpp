#include "api/validate.h"

#include <cinttypes>
#include <cmath>
#include <cstdint>

#include "arguments.h"
#include "status.h"

namespace gh {
namespace {

// Offsets are computed in signed 64 bits, so that what has rows must fit in them.
bool fits(int64_t rows, int64_t columns, int64_t element) {
    int64_t bytes;
    return !__builtin_mul_overflow(rows, columns, &bytes) && !__builtin_mul_overflow(bytes, element, &bytes);
}

gh_status check_shape(gh_dtype dtype, int64_t batch, int64_t vocab) {
    const auto element = static_cast<int64_t>(element_size(dtype));
    if (element == 0)
        return fail(GH_ERROR_INVALID_DTYPE, "dtype = %" PRId32 ": not a gh_dtype (F32 = 0, F16 = 1, BF16 = 2)", dtype);
    if (batch < 0) return fail(GH_ERROR_INVALID_SIZE, "batch = %" PRId64 ": must not be negative", batch);
    if (vocab < 1) return fail(GH_ERROR_INVALID_SIZE, "vocab = %" PRId64 ": must be at least 1", vocab);
    if (!fits(batch, vocab, element) || !fits(batch, 1, GH_ROW_STATISTICS_BYTES))
        return fail(GH_ERROR_INVALID_SIZE,
                    "batch = %" PRId64 " x vocab = %" PRId64 " elements of %" PRId64
                    " bytes: exceeds the address space",
                    batch, vocab, element);
    return GH_SUCCESS;
}

// Of a valid shape.
gh_status check_row_stride(const char *name, int64_t stride, gh_dtype dtype, int64_t batch, int64_t vocab) {
    const auto element = static_cast<int64_t>(element_size(dtype));
    if (stride < vocab)
        return fail(GH_ERROR_INVALID_SIZE, "%s = %" PRId64 ": must be 0 or at least vocab (%" PRId64 ")", name, stride,
                    vocab);
    if (!fits(batch, stride, element))
        return fail(GH_ERROR_INVALID_SIZE,
                    "%s = %" PRId64 " x batch = %" PRId64 " elements of %" PRId64 " bytes: exceeds the address space",
                    name, stride, batch, element);
    return GH_SUCCESS;
}

gh_status check_sizes(const CrossEntropy &call) {
    if (gh_status status = check_shape(call.dtype, call.batch, call.vocab)) return status;
    if (gh_status status =
            check_row_stride("options.logits_row_stride", call.logits_row_stride, call.dtype, call.batch, call.vocab))
        return status;
    return check_row_stride("options.dlogits_row_stride", call.dlogits_row_stride, call.dtype, call.batch, call.vocab);
}

gh_status check_numbers(const CrossEntropy &call) {
    const auto refuse = [](const char *name, float value, const char *domain) {
        return fail(GH_ERROR_INVALID_VALUE, "%s = %g: must be %s", name, static_cast<double>(value), domain);
    };
    // Written so that a NaN fails each of them.
    if (!(call.label_smoothing >= 0 && call.label_smoothing <= 1))
        return refuse("options.label_smoothing", call.label_smoothing, "in [0, 1]");
    if (!std::isfinite(call.z_loss_multiplier))
        return refuse(call.losses_apart ? "z_loss_multiplier" : "options.z_loss_multiplier", call.z_loss_multiplier,
                      "finite");
    if (!(call.logit_scale > 0 && std::isfinite(call.logit_scale)))
        return refuse("options.logit_scale", call.logit_scale, "finite and positive");
    if (!(call.softcap >= 0 && std::isfinite(call.softcap)))
        return refuse("options.softcap", call.softcap, "finite and positive, or 0 for none");
    return GH_SUCCESS;
}

// Are the pointers given that must be, and none that must not? Without rows, one to [batch] of anything may be null.
gh_status check_presence(const CrossEntropy &call, const Arguments &arguments, bool on_host) {
    const bool has_rows = call.batch > 0;
    if (call.losses_apart && call.loss == nullptr)
        return fail(GH_ERROR_NULL_POINTER, "ce_sum = NULL: must point to one float");
    if (has_rows && call.logits == nullptr)
        return fail(GH_ERROR_NULL_POINTER, "logits = NULL: must point to [batch, vocab] elements");
    if (has_rows && call.labels == nullptr)
        return fail(GH_ERROR_NULL_POINTER, "labels = NULL: must point to [batch] int%zu",
                    8 * label_size(call.label_dtype));
    const Argument *output = arguments.find(Role::output);
    if (call.pass == Pass::backward) {
        if (has_rows && call.dlogits == nullptr)
            return fail(GH_ERROR_NULL_POINTER, "dlogits = NULL: must point to [batch, vocab] elements");
        if (has_rows && call.saved_statistics == nullptr && call.saved_lse == nullptr)
            return fail(GH_ERROR_NULL_POINTER, "row_statistics = NULL and row_lse = NULL: one of them must be given");
        if (call.saved_statistics != nullptr && call.saved_lse != nullptr)
            return fail(GH_ERROR_INVALID_VALUE, "row_statistics = %p and row_lse = %p: only one of them may be given",
                        call.saved_statistics, static_cast<const void *>(call.saved_lse));
        if (call.saved_lse != nullptr && call.row_dentropy != nullptr)
            return fail(GH_ERROR_INVALID_VALUE, "options.row_dentropy = %p: needs row_statistics, and row_lse is given",
                        static_cast<const void *>(call.row_dentropy));
        if (output != nullptr)
            return fail(GH_ERROR_INVALID_VALUE, "%s = %p: a backward pass has no outputs but dlogits; must be NULL",
                        output->name, output->pointer);
    } else if (has_rows && call.dlogits == nullptr && output == nullptr) {
        return fail(GH_ERROR_NULL_POINTER, "dlogits = NULL, and so are all outputs of options: nothing to compute");
    }
    if (!on_host && call.needs_argmax() && call.vocab > INT32_MAX)
        return fail(GH_ERROR_INVALID_SIZE,
                    "vocab = %" PRId64
                    ": options.row_argmax and options.n_correct need one below 2^31 on a CUDA stream",
                    call.vocab);
    if (!on_host && call.workspace == nullptr) {
        if (call.mean)
            return fail(
                GH_ERROR_NULL_POINTER,
                "options.workspace = NULL: options.reduction = GH_REDUCTION_MEAN needs one on a CUDA stream, of "
                "gh_cross_entropy_workspace_size() bytes");
        if (call.smooths_by_weight())
            return fail(GH_ERROR_NULL_POINTER,
                        "options.workspace = NULL: options.label_smoothing with options.class_weights needs one on a "
                        "CUDA stream, of gh_cross_entropy_workspace_size() bytes");
    }
    return GH_SUCCESS;
}

gh_status check_alignment(const Arguments &arguments) {
    for (const Argument &argument : arguments)
        if ((argument.begin() & (argument.alignment - 1)) != 0)
            return fail(GH_ERROR_MISALIGNED_POINTER, "%s = %p: must be aligned to %zu bytes", argument.name,
                        argument.pointer, argument.alignment);
    return GH_SUCCESS;
}

// Are logits and dlogits, of overlapping spans, the columns of one matrix side by side?
bool side_by_side(const CrossEntropy &call, const Argument &logits, const Argument &dlogits) {
    if (call.logits_row_stride != call.dlogits_row_stride) return false;
    const auto element = static_cast<uintptr_t>(element_size(call.dtype));
    const auto row = static_cast<uintptr_t>(call.vocab) * element;
    const auto stride = static_cast<uintptr_t>(call.logits_row_stride) * element;
    const uintptr_t low = logits.begin() < dlogits.begin() ? logits.begin() : dlogits.begin();
    const uintptr_t high = logits.begin() < dlogits.begin() ? dlogits.begin() : logits.begin();
    const uintptr_t column = (high - low) % stride;
    return column >= row && column <= stride - row;
}

// Logits and dlogits of overlapping spans.
gh_status check_matrices(const CrossEntropy &call, const Argument &logits, const Argument &dlogits) {
    if (side_by_side(call, logits, dlogits)) return GH_SUCCESS;
    return fail(GH_ERROR_OVERLAP,
                "dlogits = %#" PRIxPTR " (rows of %" PRId64 " elements, %" PRId64 " apart) overlaps logits = %#" PRIxPTR
                " (rows %" PRId64 " apart): both must be the same, with one stride, or share no element",
                dlogits.begin(), call.vocab, call.dlogits_row_stride, logits.begin(), call.logits_row_stride);
}

// What is written shares no byte with anything else. `call` has the logits, if the arguments do.
gh_status check_overlap(const Arguments &arguments, const CrossEntropy *call) {
    for (const Argument &a : arguments) {
        if (a.bytes > UINTPTR_MAX - a.begin())
            return fail(GH_ERROR_INVALID_SIZE, "%s = %#" PRIxPTR ": its %" PRIu64 " bytes exceed the address space",
                        a.name, a.begin(), a.bytes);
        if (a.bytes == 0) continue;
        for (const Argument &b : arguments) {
            if (&b == &a) break;
            if (a.begin() >= b.end() || b.begin() >= a.end() || b.bytes == 0 || !(a.written() || b.written())) continue;
            if (a.role == Role::gradient && b.role == Role::logits) {
                if (gh_status status = check_matrices(*call, b, a)) return status;
                continue;
            }
            return fail(GH_ERROR_OVERLAP,
                        "%s = %#" PRIxPTR " (%" PRIu64 " bytes) overlaps %s = %#" PRIxPTR " (%" PRIu64 " bytes)",
                        a.name, a.begin(), a.bytes, b.name, b.begin(), b.bytes);
        }
    }
    return GH_SUCCESS;
}

}  // namespace

gh_status validate(const CrossEntropy &call, bool on_host) {
    if (gh_status status = check_sizes(call)) return status;
    if (gh_status status = check_numbers(call)) return status;
    const Arguments arguments(call);
    if (gh_status status = check_presence(call, arguments, on_host)) return status;
    if (gh_status status = check_alignment(arguments)) return status;
    return check_overlap(arguments, &call);
}

gh_status validate(const ScaleDlogits &call) {
    if (gh_status status = check_shape(call.dtype, call.batch, call.vocab)) return status;
    if (gh_status status =
            check_row_stride("dlogits_row_stride", call.dlogits_row_stride, call.dtype, call.batch, call.vocab))
        return status;
    if (call.batch > 0 && call.dlogits == nullptr)
        return fail(GH_ERROR_NULL_POINTER, "dlogits = NULL: must point to [batch, vocab] elements");
    if (call.dloss_ptr == nullptr) return fail(GH_ERROR_NULL_POINTER, "dloss_ptr = NULL: must point to one float");
    const Arguments arguments(call);
    if (gh_status status = check_alignment(arguments)) return status;
    return check_overlap(arguments, nullptr);
}

gh_status validate_labels(const CrossEntropy &call) {
    if (call.n_out_of_range != nullptr) return GH_SUCCESS;  // counted instead
    for (int64_t row = 0; row < call.batch; row++) {
        const int64_t label = call.label(row);
        if (label != call.ignore_index && !call.label_in_range(label))
            return fail(GH_ERROR_LABEL_OUT_OF_RANGE,
                        "labels[%" PRId64 "] = %" PRId64 ": not in [0, %" PRId64 ") and not ignore_index (%" PRId64 ")",
                        row, label, call.vocab, call.ignore_index);
    }
    return GH_SUCCESS;
}

}  // namespace gh
