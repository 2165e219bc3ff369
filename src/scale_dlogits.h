// One call that multiplies a gradient by an upstream gradient, as the layers below the C boundary see it.
#pragma once

#include <cstdint>

#include "greyhound/greyhound.h"

namespace gh {

struct ScaleDlogits {
    void *dlogits;  // [batch, vocab] of dtype
    gh_dtype dtype;
    int64_t batch;
    int64_t vocab;
    int64_t dlogits_row_stride;  // elements
    const float *dloss_ptr;

    // Rows without anything between them are one long row.
    int64_t rows() const { return dlogits_row_stride == vocab && batch > 0 ? 1 : batch; }
    int64_t row_elements() const { return dlogits_row_stride == vocab ? batch * vocab : vocab; }
};

}  // namespace gh
