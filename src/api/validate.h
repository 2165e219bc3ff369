// Checks of a call's arguments that need nothing but the arguments. Each failure names the
// argument and its value.
#pragma once

#include "cross_entropy.h"
#include "scale_dlogits.h"

namespace gh {

// Everything but the memory itself: sizes, dtype, numbers, which pointers are NULL, alignment, overlap.
gh_status validate(const CrossEntropy &call, bool on_host);
gh_status validate(const ScaleDlogits &call);

// Labels in host memory: each in [0, vocab) or ignore_index, unless the call counts those that are not.
gh_status validate_labels(const CrossEntropy &call);

}  // namespace gh
