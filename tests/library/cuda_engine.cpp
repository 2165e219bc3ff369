#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "cuda.h"

static_assert(std::is_same<gh_stream, cudaStream_t>::value, "a cudaStream_t is a gh_stream without a cast");

namespace test {

void cuda_check(cudaError_t result, const char *what) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    std::exit(1);
}

int device_count() {
    int count = 0;
    CUDA_CHECK(cudaGetDeviceCount(&count));
    return count;
}

bool has_cuda_device() {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver) return false;
    CUDA_CHECK(result);
    return count > 0;
}

CurrentDevice::CurrentDevice(int device) {
    CUDA_CHECK(cudaGetDevice(&previous_));
    CUDA_CHECK(cudaSetDevice(device));
}

CurrentDevice::~CurrentDevice() {
    CUDA_CHECK(cudaSetDevice(previous_));
}

CudaEngine::CudaEngine(int device) : device_(device), owns_stream_(true) {
    CurrentDevice current(device_);
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CudaEngine::CudaEngine(int device, cudaStream_t stream) : device_(device), owns_stream_(false), stream_(stream) {}

CudaEngine::~CudaEngine() {
    if (owns_stream_) CUDA_CHECK(cudaStreamDestroy(stream_));
}

void *CudaEngine::allocate(size_t bytes) {
    CurrentDevice current(device_);
    void *memory = nullptr;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

void CudaEngine::release(void *memory) {
    CUDA_CHECK(cudaFree(memory));
}

// Copies go through the engine's stream, so that they are ordered with the calls under test and with
// nothing else. cudaMemcpyDefault: tests also place arguments in pinned and in managed memory.
void CudaEngine::upload(void *to, const void *from, size_t bytes) {
    CurrentDevice current(device_);
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
    finish();
}

void CudaEngine::download(void *to, const void *from, size_t bytes) {
    CurrentDevice current(device_);
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
    finish();
}

void CudaEngine::finish() {
    CurrentDevice current(device_);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
}

std::unique_ptr<Engine> make_cuda_engine() {
    return std::make_unique<CudaEngine>();
}

}  // namespace test
