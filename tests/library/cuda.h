// Helpers for the tests that speak to CUDA themselves.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "engine.h"

// Stops the program: no later result could be trusted.
#define CUDA_CHECK(call) ::test::cuda_check((call), #call)

namespace test {

void cuda_check(cudaError_t result, const char *what);

int device_count();

// The CUDA engine of one device, on a stream of its own or on the given one.
class CudaEngine : public Engine {
public:
    explicit CudaEngine(int device = 0);
    CudaEngine(int device, cudaStream_t stream);
    ~CudaEngine() override;

    bool is_cuda() const override { return true; }
    gh_stream stream() override { return stream_; }
    void *allocate(size_t bytes) override;
    void release(void *memory) override;
    void upload(void *to, const void *from, size_t bytes) override;
    void download(void *to, const void *from, size_t bytes) override;
    void finish() override;

private:
    int device_;
    bool owns_stream_;
    cudaStream_t stream_;
};

// Makes a device current for a scope.
class CurrentDevice {
public:
    explicit CurrentDevice(int device);
    ~CurrentDevice();
    CurrentDevice(const CurrentDevice &) = delete;
    CurrentDevice &operator=(const CurrentDevice &) = delete;

private:
    int previous_ = 0;
};

// Captures what `body` puts on the engine's stream.
template <typename Body>
cudaGraphExec_t capture(Body body, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CUDA_CHECK(cudaStreamBeginCapture(engine().stream(), mode));
    body();
    // An operation that capture forbids would have invalidated it, and this fails.
    CUDA_CHECK(cudaStreamEndCapture(engine().stream(), &graph));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return executable;
}

}  // namespace test
