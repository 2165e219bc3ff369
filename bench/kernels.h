// The benchmark's own kernels. Each is launched on `stream` and throws std::runtime_error if that fails.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "greyhound/greyhound.h"

namespace bench {

// Standard normal values, rounded to dtype.
void fill_normal_on_device(void *logits, gh_dtype dtype, int64_t elements, uint64_t seed, cudaStream_t stream);

// Reads all of `data` and writes it back unchanged, with 16-byte accesses: what a call would cost if it
// did no arithmetic and needed each element once.
void stream_in_place(void *data, size_t bytes, cudaStream_t stream);

// Reads all of `data`. Reading more than the L2 cache holds leaves nothing of other buffers in it.
void read_all(const void *data, size_t bytes, cudaStream_t stream);

// A kernel that does nothing, with as many bytes of arguments as a call of the library passes on.
struct EmptyArguments {
    unsigned char bytes[320];
};
void launch_empty(const cudaLaunchConfig_t &config);
// Allows the empty kernel any shared memory and cluster size that a launch may ask for.
void prepare_empty(int max_shared_memory);

}  // namespace bench
