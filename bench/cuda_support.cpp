#include "cuda_support.h"

namespace bench {

DeviceBuffer::DeviceBuffer(size_t bytes) {
    check(cudaMalloc(&data_, bytes), "cudaMalloc");
}

Stream::Stream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Timer::Timer() {
    check(cudaEventCreate(&start_), "cudaEventCreate");
    check(cudaEventCreate(&stop_), "cudaEventCreate");
}

Timer::~Timer() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
}

double Timer::seconds() {
    float milliseconds = 0;
    check(cudaEventSynchronize(stop_), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
}

Graph::~Graph() {
    if (executable_) cudaGraphExecDestroy(executable_);
    if (graph_) cudaGraphDestroy(graph_);
}

void Graph::abandon(cudaStream_t stream) {
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(stream, &unfinished);
    if (unfinished) cudaGraphDestroy(unfinished);
}

void Graph::finish(cudaStream_t stream) {
    check(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(executable_, stream), "cudaGraphUpload");
}

}  // namespace bench
