// One shape on the GPU: its buffers, and one measurement of a call beside its two ceilings.
#pragma once

#include <memory>

#include "cases.h"
#include "cuda_support.h"

namespace bench {

// A call turns logits into gradients, so they are restored from a copy before each timed call; and what the
// copying leaves in the L2 cache is displaced by reading other memory. Neither is timed.
//
// A call too short for two events around it to time is measured as a graph of many calls, each on logits of its
// own: the time divided by the number of calls. It includes what lies between kernels that follow each other.
class DeviceCase {
public:
    explicit DeviceCase(const Case &shape);

    // Seconds of GPU time for one call and for its ceilings: a device-to-device copy of the logits, and a kernel
    // that reads and rewrites them in place.
    struct Times {
        double copy, stream, call;
    };
    Times run();

    const Case &shape() const { return shape_; }
    int64_t calls() const { return calls_; }

private:
    template <class Work>
    void prepare(Graph &graph, Work work);
    template <class Work>
    double time(const Graph &graph, Work work);
    void copy_all(cudaStream_t stream);
    void stream_all(cudaStream_t stream);
    void call_all(cudaStream_t stream);
    void verify();

    Case shape_;
    size_t pitch_;   // bytes from one call's logits to the next call's
    int64_t calls_;  // timed together
    Stream stream_;
    Timer timer_;
    DeviceBuffer pristine_, logits_, labels_, sums_;
    size_t other_bytes_;
    DeviceBuffer other_;  // read to displace everything else from L2
    Graph copy_graph_, stream_graph_, call_graph_;
};

}  // namespace bench
