// Errors, owners and timing for the CUDA benchmarks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace bench {

inline void check(cudaError_t error, const char *what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

class DeviceBuffer {
public:
    explicit DeviceBuffer(size_t bytes);
    ~DeviceBuffer() { cudaFree(data_); }
    DeviceBuffer(const DeviceBuffer &) = delete;
    DeviceBuffer &operator=(const DeviceBuffer &) = delete;
    char *data() const { return static_cast<char *>(data_); }

private:
    void *data_ = nullptr;
};

class Stream {
public:
    Stream();
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    operator cudaStream_t() const { return stream_; }
    void synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

private:
    cudaStream_t stream_ = nullptr;
};

// GPU time between two points of a stream.
class Timer {
public:
    Timer();
    ~Timer();
    Timer(const Timer &) = delete;
    Timer &operator=(const Timer &) = delete;
    void start(cudaStream_t stream) { check(cudaEventRecord(start_, stream), "cudaEventRecord"); }
    void stop(cudaStream_t stream) { check(cudaEventRecord(stop_, stream), "cudaEventRecord"); }
    double seconds();  // waits for stop

private:
    cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

// The work that `record` puts on a stream, as a graph that can be replayed.
class Graph {
public:
    Graph() = default;
    ~Graph();
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;

    template <class Record>
    void capture(cudaStream_t stream, Record record) {
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        try {
            record();
        } catch (...) {
            abandon(stream);
            throw;
        }
        finish(stream);
    }
    void launch(cudaStream_t stream) const { check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }
    cudaGraph_t get() const { return graph_; }

private:
    void abandon(cudaStream_t stream);
    void finish(cudaStream_t stream);
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace bench
