// A cudaStream_t and a CUstream are gh_streams, without a cast.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <greyhound/greyhound.h>

#include <type_traits>

static_assert(std::is_same<gh_stream, cudaStream_t>::value, "the runtime API's stream");
static_assert(std::is_same<gh_stream, CUstream>::value, "the driver API's stream");
