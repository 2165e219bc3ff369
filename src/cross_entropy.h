// One cross-entropy call, as the layers below the C boundary see it: the arguments of
// gh_cross_entropy_fwd_bwd, already validated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "greyhound/greyhound.h"

namespace gh {

struct CrossEntropy {
    void *logits;  // [batch, vocab] of dtype; becomes dlogits
    gh_dtype dtype;
    const int64_t *labels;  // [batch]
    int64_t batch;
    int64_t vocab;
    float z_loss_multiplier;
    int64_t ignore_index;
    float *ce_sum;
    float *z_sum;    // may be null
    float *n_valid;  // may be null
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

}  // namespace gh
