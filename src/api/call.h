// From the arguments of an exported function to a call with every default filled in.
#pragma once

#include "cross_entropy.h"

namespace gh {

// Fills in `call` from the caller's struct, of whatever age; null stands for the defaults. Fails if its size is none
// that a caller could have been compiled with, if it sets a field that this library does not know, or if a choice in
// it is none of this library's.
gh_status read_options(const gh_cross_entropy_options *options, CrossEntropy &call);

}  // namespace gh
