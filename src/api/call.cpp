#include "api/call.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "status.h"

namespace gh {
namespace {

// A struct's size is a number that the caller sets. One beyond this is garbage, and reading so far could crash.
constexpr size_t max_size = 4096;

// The fields of this library's options, those that the caller does not know at their defaults.
gh_status complete(const gh_cross_entropy_options *given, gh_cross_entropy_options &options) {
    options = GH_CROSS_ENTROPY_OPTIONS_INIT;
    if (given == nullptr) return GH_SUCCESS;
    if (reinterpret_cast<uintptr_t>(given) % alignof(gh_cross_entropy_options) != 0)
        return fail(GH_ERROR_MISALIGNED_POINTER, "options = %p: must be aligned to %zu bytes",
                    static_cast<const void *>(given), alignof(gh_cross_entropy_options));
    const size_t size = given->size;
    // Fields come in groups of 8 bytes, so that a caller's struct ends at such a one, whatever its age.
    if (size < sizeof(size_t) || size > max_size || size % 8 != 0)
        return fail(GH_ERROR_INVALID_SIZE,
                    "options.size = %zu: not the size of a gh_cross_entropy_options; start from "
                    "GH_CROSS_ENTROPY_OPTIONS_INIT",
                    size);
    const auto *bytes = reinterpret_cast<const unsigned char *>(given);
    for (size_t i = sizeof(options); i < size; i++)
        if (bytes[i] != 0)
            return fail(GH_ERROR_INVALID_VALUE,
                        "options.size = %zu: byte %zu is not 0, and belongs to an option that this library, version "
                        "%s, does not know",
                        size, i, gh_version_string());
    std::memcpy(&options, given, std::min(size, sizeof(options)));
    return GH_SUCCESS;
}

// What a CrossEntropy cannot express is refused here: numbers that name nothing, and losses without a reduction.
gh_status check_choices(const gh_cross_entropy_options &options) {
    if (label_size(options.label_dtype) == 0)
        return fail(GH_ERROR_INVALID_VALUE,
                    "options.label_dtype = %" PRId32 ": not a gh_label_dtype (I64 = 0, I32 = 1)", options.label_dtype);
    if (options.sums != GH_SUMS_ADD && options.sums != GH_SUMS_OVERWRITE)
        return fail(GH_ERROR_INVALID_VALUE, "options.sums = %" PRId32 ": not a gh_sums (ADD = 0, OVERWRITE = 1)",
                    options.sums);
    switch (options.reduction) {
        case GH_REDUCTION_SUM:
        case GH_REDUCTION_MEAN: return GH_SUCCESS;
        case GH_REDUCTION_NONE: break;
        default:
            return fail(GH_ERROR_INVALID_VALUE,
                        "options.reduction = %" PRId32 ": not a gh_reduction (SUM = 0, MEAN = 1, NONE = 2)",
                        options.reduction);
    }
    const char *loss = options.loss != nullptr ? "loss" : "z_loss";
    const void *pointer = options.loss != nullptr ? options.loss : options.z_loss;
    if (pointer == nullptr) return GH_SUCCESS;
    return fail(GH_ERROR_INVALID_VALUE, "options.%s = %p: must be NULL, because options.reduction = GH_REDUCTION_NONE",
                loss, pointer);
}

}  // namespace

gh_status read_options(const gh_cross_entropy_options *given, CrossEntropy &call) {
    gh_cross_entropy_options options;
    if (gh_status status = complete(given, options)) return status;
    if (gh_status status = check_choices(options)) return status;
    call.logits_row_stride = options.logits_row_stride == 0 ? call.vocab : options.logits_row_stride;
    call.dlogits_row_stride = options.dlogits_row_stride == 0 ? call.vocab : options.dlogits_row_stride;
    call.label_dtype = options.label_dtype;
    call.overwrite_sums = options.sums == GH_SUMS_OVERWRITE;
    call.mean = options.reduction == GH_REDUCTION_MEAN;
    call.label_smoothing = options.label_smoothing;
    call.z_loss_multiplier = options.z_loss_multiplier;
    call.logit_scale = options.logit_scale;
    call.softcap = options.softcap;
    call.dloss = options.dloss;
    call.ignore_index = options.ignore_index;
    call.class_weights = options.class_weights;
    call.dloss_ptr = options.dloss_ptr;
    call.row_dloss = options.row_dloss;
    call.row_dentropy = options.row_dentropy;
    call.row_loss = options.row_loss;
    call.row_lse = options.row_lse;
    call.row_target_log_prob = options.row_target_log_prob;
    call.row_entropy = options.row_entropy;
    call.row_argmax = options.row_argmax;
    call.row_statistics = options.row_statistics;
    call.loss = options.loss;
    call.z_loss = options.z_loss;
    call.n_valid = options.n_valid;
    call.n_correct = options.n_correct;
    call.n_out_of_range = options.n_out_of_range;
    call.workspace = options.workspace;
    call.workspace_size = options.workspace_size;
    return GH_SUCCESS;
}

}  // namespace gh
