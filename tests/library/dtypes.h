// The three element types as bit patterns and as doubles, independent of the library's own conversions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "greyhound/greyhound.h"

namespace test {

constexpr gh_dtype all_dtypes[] = {GH_DTYPE_F32, GH_DTYPE_F16, GH_DTYPE_BF16};

const char *dtype_name(gh_dtype dtype);
size_t element_size(gh_dtype dtype);
double largest(gh_dtype dtype);

// Exact.
double decode(gh_dtype dtype, uint32_t bits);

// Rounds the double to the nearest value of the dtype, ties to even, in one step: going through
// float first would round twice.
uint32_t encode(gh_dtype dtype, double value);

}  // namespace test
