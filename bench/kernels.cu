#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda_support.h"
#include "kernels.h"

namespace bench {
namespace {

constexpr int threads = 256;
constexpr int vectors_per_thread = 8;
constexpr int vectors_per_block = threads * vectors_per_thread;

// ---- Kernels ---------------------------------------------------------------------------------

// splitmix64: a good 64-bit hash of a counter, so that each element is drawn on its own.
__device__ uint64_t hash(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

__device__ void store(float *p, float value) {
    *p = value;
}
__device__ void store(__half *p, float value) {
    *p = __float2half_rn(value);
}
__device__ void store(__nv_bfloat16 *p, float value) {
    *p = __float2bfloat16_rn(value);
}

template <class T>
__global__ void fill_normal_kernel(T *logits, int64_t elements, uint64_t seed) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += stride) {
        const uint64_t bits = hash(hash(seed) + static_cast<uint64_t>(i));
        const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // in (0, 1]: its logarithm is finite
        const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
        store(logits + i, sqrtf(-2 * logf(u)) * cospif(2 * v));
    }
}

// `zero` is 0; an argument, so that the compiler cannot know that nothing changes.
__global__ void stream_in_place_kernel(uint4 *data, int64_t vectors, unsigned zero) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * vectors_per_block + threadIdx.x;
    uint4 held[vectors_per_thread];
#pragma unroll
    for (int i = 0; i < vectors_per_thread; i++)
        if (first + i * threads < vectors) held[i] = data[first + i * threads];
#pragma unroll
    for (int i = 0; i < vectors_per_thread; i++)
        if (first + i * threads < vectors) {
            held[i].x ^= zero;
            data[first + i * threads] = held[i];
        }
}

// `impossible` never equals the sum's high part, so nothing is written; the compiler cannot know that.
__global__ void read_all_kernel(const uint4 *data, int64_t vectors, uint64_t impossible, unsigned *sink) {
    uint64_t sum = 0;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += stride) {
        const uint4 v = data[i];
        sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == impossible) *sink = 1;
}

__global__ void empty_kernel(EmptyArguments) {}

// ---- Launchers -------------------------------------------------------------------------------

template <class T>
void fill_normal(void *logits, int64_t elements, uint64_t seed, cudaStream_t stream) {
    const int64_t blocks = std::min<int64_t>((elements + threads - 1) / threads, 1 << 16);
    fill_normal_kernel<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(static_cast<T *>(logits), elements, seed);
    check(cudaGetLastError(), "fill_normal");
}

}  // namespace

void fill_normal_on_device(void *logits, gh_dtype dtype, int64_t elements, uint64_t seed, cudaStream_t stream) {
    if (dtype == GH_DTYPE_F32)
        fill_normal<float>(logits, elements, seed, stream);
    else if (dtype == GH_DTYPE_F16)
        fill_normal<__half>(logits, elements, seed, stream);
    else
        fill_normal<__nv_bfloat16>(logits, elements, seed, stream);
}

void stream_in_place(void *data, size_t bytes, cudaStream_t stream) {
    const auto vectors = static_cast<int64_t>(bytes / sizeof(uint4));  // a tail of under 16 bytes stays
    const int64_t blocks = (vectors + vectors_per_block - 1) / vectors_per_block;
    stream_in_place_kernel<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(static_cast<uint4 *>(data), vectors,
                                                                                  0);
    check(cudaGetLastError(), "stream_in_place");
}

void read_all(const void *data, size_t bytes, cudaStream_t stream) {
    const auto vectors = static_cast<int64_t>(bytes / sizeof(uint4));
    // A thread's sum of fewer than 2^32 32-bit values stays below this.
    read_all_kernel<<<2048, threads, 0, stream>>>(static_cast<const uint4 *>(data), vectors, UINT64_MAX, nullptr);
    check(cudaGetLastError(), "read_all");
}

void prepare_empty(int max_shared_memory) {
    check(cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared_memory),
          "cudaFuncSetAttribute");
    // Devices without clusters refuse this, and then need it for nothing.
    if (cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess)
        cudaGetLastError();
}

void launch_empty(const cudaLaunchConfig_t &config) {
    check(cudaLaunchKernelEx(&config, empty_kernel, EmptyArguments{}), "launch of the empty kernel");
}

}  // namespace bench
