// One cross-entropy call, as the layers below the C boundary see it: already validated, every default filled in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "greyhound/greyhound.h"

namespace gh {

// What a call computes.
enum class Pass {
    forward,               // the outputs; dlogits is null
    forward_and_backward,  // the outputs and dlogits
    backward,              // dlogits from saved statistics; no outputs
};

// A call's own values. The formulas are in greyhound.h, at gh_cross_entropy_options; null pointers are what was not
// asked for.
struct CrossEntropy {
    Pass pass = Pass::forward_and_backward;

    const void *logits = nullptr;  // [batch, vocab] of dtype
    void *dlogits = nullptr;       // likewise; may be `logits`
    gh_dtype dtype = GH_DTYPE_F32;
    int64_t batch = 0;
    int64_t vocab = 0;
    int64_t logits_row_stride = 0;   // elements
    int64_t dlogits_row_stride = 0;  // elements; not used if dlogits is null

    const void *labels = nullptr;  // [batch]
    gh_label_dtype label_dtype = GH_LABEL_I64;
    int64_t ignore_index = 0;

    float label_smoothing = 0.0f;
    float z_loss_multiplier = 0.0f;
    float logit_scale = 1.0f;
    float softcap = 0.0f;                  // 0: off
    const float *class_weights = nullptr;  // [vocab]

    bool mean = false;
    float dloss = 1.0f;
    const float *dloss_ptr = nullptr;
    const float *row_dloss = nullptr;     // [batch]
    const float *row_dentropy = nullptr;  // [batch]

    // What the forward pass saved; in a backward pass, one of the two is given.
    const void *saved_statistics = nullptr;
    const float *saved_lse = nullptr;

    float *row_loss = nullptr;  // [batch] each
    float *row_lse = nullptr;
    float *row_target_log_prob = nullptr;
    float *row_entropy = nullptr;
    int64_t *row_argmax = nullptr;
    void *row_statistics = nullptr;  // [batch][GH_ROW_STATISTICS_BYTES]

    // One float each. The short call keeps the two losses apart: its ce_sum is without the z-loss, and its z_sum
    // without the multiplier.
    float *loss = nullptr;
    float *z_loss = nullptr;
    float *n_valid = nullptr;
    float *n_correct = nullptr;
    float *n_out_of_range = nullptr;
    bool losses_apart = false;
    bool overwrite_sums = false;

    void *workspace = nullptr;
    size_t workspace_size = 0;

    int64_t label(int64_t row) const {  // for labels in host memory
        return label_dtype == GH_LABEL_I32 ? static_cast<const int32_t *>(labels)[row]
                                           : static_cast<const int64_t *>(labels)[row];
    }
    bool label_in_range(int64_t label) const { return label >= 0 && label < vocab; }

    // What is added to `loss` and to `z_loss` for a row's lse^2, before the reduction.
    float z_in_loss() const { return losses_apart ? 0.0f : z_loss_multiplier; }
    float z_in_z_loss() const { return losses_apart ? 1.0f : z_loss_multiplier; }

    bool smooths_by_weight() const { return label_smoothing != 0.0f && class_weights != nullptr; }
    bool needs_argmax() const { return row_argmax != nullptr || n_correct != nullptr; }
    bool needs_entropy() const { return row_entropy != nullptr || row_dentropy != nullptr; }
};

// Bytes of one element; 0 if `dtype` is not a gh_dtype.
constexpr size_t element_size(gh_dtype dtype) {
    switch (dtype) {
        case GH_DTYPE_F32: return 4;
        case GH_DTYPE_F16: return 2;
        case GH_DTYPE_BF16: return 2;
        default: return 0;
    }
}

// Bytes of one label; 0 if `dtype` is not a gh_label_dtype.
constexpr size_t label_size(gh_label_dtype dtype) {
    switch (dtype) {
        case GH_LABEL_I64: return 8;
        case GH_LABEL_I32: return 4;
        default: return 0;
    }
}

}  // namespace gh
