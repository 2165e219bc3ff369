// The public header alone, as strict C++11: compiling is the test.
#include <greyhound/greyhound.h>

#include <type_traits>

static_assert(std::is_same<gh_status, int32_t>::value && std::is_same<gh_dtype, int32_t>::value, "32 bits, signed");
static_assert(std::is_same<decltype(gh_cross_entropy_fwd_bwd),
                           gh_status(void *, gh_dtype, const int64_t *, int64_t, int64_t, float, int64_t, float *,
                                     float *, float *, gh_stream)>::value,
              "the call's signature");
