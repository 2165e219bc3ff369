#include "api/validate.h"

#include <cinttypes>
#include <cmath>
#include <cstdint>

#include "status.h"

namespace gh {
namespace {

struct Range {
    const char *name;
    uintptr_t begin;
    uint64_t bytes;
};

gh_status check_alignment(const char *name, const void *pointer, size_t alignment) {
    if (reinterpret_cast<uintptr_t>(pointer) % alignment == 0) return GH_SUCCESS;
    return fail(GH_ERROR_MISALIGNED_POINTER, "%s = %p: must be aligned to its element of %zu bytes", name, pointer,
                alignment);
}

// No two of the ranges may share a byte; an absent one has 0 bytes.
template <int N>
gh_status check_overlap(const Range (&ranges)[N]) {
    for (int i = 0; i < N; i++) {
        const Range &a = ranges[i];
        if (a.bytes > UINTPTR_MAX - a.begin)
            return fail(GH_ERROR_INVALID_SIZE, "%s = %#" PRIxPTR ": its %" PRIu64 " bytes exceed the address space",
                        a.name, a.begin, a.bytes);
        for (int j = 0; j < i; j++) {
            const Range &b = ranges[j];
            if (a.bytes == 0 || b.bytes == 0) continue;
            if (a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes)
                return fail(GH_ERROR_OVERLAP,
                            "%s = %#" PRIxPTR " (%" PRIu64 " bytes) overlaps %s = %#" PRIxPTR " (%" PRIu64 " bytes)",
                            a.name, a.begin, a.bytes, b.name, b.begin, b.bytes);
        }
    }
    return GH_SUCCESS;
}

Range range(const char *name, const void *pointer, uint64_t bytes) {
    return {name, reinterpret_cast<uintptr_t>(pointer), pointer ? bytes : 0};
}

}  // namespace

gh_status validate(const CrossEntropy &call, [[maybe_unused]] bool on_host) {
    const size_t element = element_size(call.dtype);
    if (element == 0)
        return fail(GH_ERROR_INVALID_DTYPE, "dtype = %" PRId32 ": not a gh_dtype (F32 = 0, F16 = 1, BF16 = 2)",
                    call.dtype);
    if (call.batch < 0) return fail(GH_ERROR_INVALID_SIZE, "batch = %" PRId64 ": must not be negative", call.batch);
    if (call.vocab < 1) return fail(GH_ERROR_INVALID_SIZE, "vocab = %" PRId64 ": must be at least 1", call.vocab);
    // Offsets are computed in signed 64 bits, so the whole tensor must fit in them.
    if (call.batch > INT64_MAX / static_cast<int64_t>(element) / call.vocab ||
        call.batch > INT64_MAX / static_cast<int64_t>(sizeof(int64_t)))
        return fail(GH_ERROR_INVALID_SIZE,
                    "batch = %" PRId64 " x vocab = %" PRId64 " elements of %zu bytes: exceeds the address space",
                    call.batch, call.vocab, element);
    if (!std::isfinite(call.z_loss_multiplier))
        return fail(GH_ERROR_INVALID_VALUE, "z_loss_multiplier = %g: must be finite",
                    static_cast<double>(call.z_loss_multiplier));

    if (call.losses_apart && call.loss == nullptr)
        return fail(GH_ERROR_NULL_POINTER, "ce_sum = NULL: must point to one float");
    if (call.batch > 0 && call.logits == nullptr)
        return fail(GH_ERROR_NULL_POINTER, "logits = NULL: must point to [batch, vocab] elements");
    if (call.batch > 0 && call.labels == nullptr)
        return fail(GH_ERROR_NULL_POINTER, "labels = NULL: must point to [batch] int64");

    if (gh_status status = check_alignment("logits", call.logits, element)) return status;
    if (gh_status status = check_alignment("labels", call.labels, sizeof(int64_t))) return status;
    if (gh_status status = check_alignment("ce_sum", call.loss, sizeof(float))) return status;
    if (gh_status status = check_alignment("z_sum", call.z_loss, sizeof(float))) return status;
    if (gh_status status = check_alignment("n_valid", call.n_valid, sizeof(float))) return status;

    const uint64_t rows = static_cast<uint64_t>(call.batch);
    const Range ranges[] = {
        range("logits", call.logits, rows * static_cast<uint64_t>(call.vocab) * element),
        range("labels", call.labels, rows * sizeof(int64_t)),
        range("ce_sum", call.loss, sizeof(float)),
        range("z_sum", call.z_loss, sizeof(float)),
        range("n_valid", call.n_valid, sizeof(float)),
    };
    return check_overlap(ranges);
}

gh_status validate_labels(const CrossEntropy &call) {
    for (int64_t row = 0; row < call.batch; row++) {
        const int64_t label = call.label(row);
        if (label == call.ignore_index) continue;
        if (label < 0 || label >= call.vocab)
            return fail(GH_ERROR_LABEL_OUT_OF_RANGE,
                        "labels[%" PRId64 "] = %" PRId64 ": not in [0, %" PRId64 ") and not ignore_index (%" PRId64 ")",
                        row, label, call.vocab, call.ignore_index);
    }
    return GH_SUCCESS;
}

}  // namespace gh
