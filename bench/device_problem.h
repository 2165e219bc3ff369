// One shape's logits and labels on the GPU, and the means to time work on them.
#pragma once

#include <functional>

#include "cases.h"
#include "cuda_support.h"

namespace bench {

// A call turns logits into gradients, so they are restored from a copy before each timed call; and what the
// copying leaves in the L2 cache is displaced by reading other memory. Neither is timed.
//
// A call too short for two events around it to time is measured as a graph of many calls, each on logits of its
// own: the time divided by the number of calls. It includes what lies between kernels that follow each other.
class DeviceProblem {
public:
    // `row_padding` elements lie between the rows.
    explicit DeviceProblem(const Case &shape, int64_t row_padding = 0);

    const Case &shape() const { return shape_; }
    int64_t calls() const { return calls_; }  // that are timed together
    int64_t rows() const { return calls_ * shape_.batch; }
    const Stream &stream() const { return stream_; }

    // One call's.
    char *logits(int64_t call) const { return logits_.data() + offset(call); }
    const int64_t *labels(int64_t call) const {
        return reinterpret_cast<const int64_t *>(labels_.data()) + call * shape_.batch;
    }
    size_t bytes() const { return bytes_; }  // of the logits, with the padding
    size_t row_pitch() const { return bytes_ / static_cast<size_t>(shape_.batch); }
    size_t all_bytes() const { return pitch_ * static_cast<size_t>(calls_); }  // of all calls' logits
    size_t offset(int64_t call) const { return pitch_ * static_cast<size_t>(call); }
    void restore(int64_t call, cudaStream_t stream) const;

    // What is done for one call.
    using Work = std::function<void(int64_t call, cudaStream_t stream)>;

    // That for all calls, ready to be launched.
    class Round {
    public:
        Round(const DeviceProblem &problem, Work work);
        void launch() const;

    private:
        void issue() const;
        const DeviceProblem &problem_;
        Work work_;
        Graph graph_;
    };

    // Seconds of GPU time for one call.
    double time(const Round &round);

private:
    Case shape_;
    size_t bytes_;
    size_t pitch_;  // bytes from one call's logits to the next call's
    int64_t calls_;
    Stream stream_;
    Timer timer_;
    DeviceBuffer pristine_, logits_, labels_;
    size_t other_bytes_;
    DeviceBuffer other_;  // read to displace everything else from L2
};

// For standard normal logits the mean loss of many rows is known to within its standard error. Throws
// std::runtime_error if `loss_sum` and `n_valid`, summed over `rows` rows, are not what that gives.
void verify_sums(const Case &shape, int64_t rows, double loss_sum, double n_valid);

}  // namespace bench
