// One shape on the GPU: one measurement of a call beside its two ceilings.
#pragma once

#include "device_problem.h"

namespace bench {

class DeviceCase {
public:
    explicit DeviceCase(const Case &shape);

    // Seconds of GPU time for one call and for its ceilings: a device-to-device copy of the logits, and a kernel
    // that reads and rewrites them in place.
    struct Times {
        double copy, stream, call;
    };
    Times run();

    const Case &shape() const { return problem_.shape(); }
    int64_t calls() const { return problem_.calls(); }

private:
    void cross_entropy(int64_t call, cudaStream_t stream) const;
    void verify();

    DeviceProblem problem_;
    DeviceBuffer sums_;
    DeviceProblem::Round copy_, stream_in_place_, call_;
};

}  // namespace bench
