// Checks of a call's arguments that need nothing but the arguments. Each failure names the
// argument and its value.
#pragma once

#include "cross_entropy.h"

namespace gh {

// Everything that holds for both engines: NULL, sizes, dtype, alignment, overlap.
gh_status validate(const CrossEntropy &call, bool on_host);

// Labels in host memory: each in [0, vocab) or ignore_index.
gh_status validate_labels(const CrossEntropy &call);

}  // namespace gh
