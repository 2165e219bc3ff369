// One option on the GPU: measurements of a call that uses it, each next to one of the plain call.
#pragma once

#include <map>
#include <string>

#include "device_problem.h"
#include "option_cases.h"

namespace bench {

// The device memory that an option's call needs besides logits and labels. Inputs are random.
class OptionMemory {
public:
    OptionMemory(const OptionCase &option, const DeviceProblem &problem);

    // What was allocated under a name, from `row` on; NULL if nothing was.
    template <class T>
    T *find(const std::string &name, int64_t row = 0) const;

    size_t bytes(const std::string &name) const;

private:
    struct Block {
        size_t bytes, bytes_per_row;
        DeviceBuffer buffer;
        Block(size_t size, size_t row_bytes) : bytes(size), bytes_per_row(row_bytes), buffer(size) {}
    };
    std::map<std::string, Block> blocks_;
};

// The calls take turns, plain and option, so that both see the same clocks and temperature. Which one is first changes
// from one pair to the next.
class DeviceOptionCase {
public:
    explicit DeviceOptionCase(const OptionCase &option);

    // Seconds of GPU time for gh_cross_entropy_fwd_bwd, and for the call with the option.
    struct Times {
        double plain, call;
    };
    Times run();

    const OptionCase &option() const { return option_; }
    int64_t calls() const { return problem_.calls(); }

private:
    void plain(int64_t call, cudaStream_t stream) const;
    void with_option(int64_t call, cudaStream_t stream) const;
    void save_rows() const;
    gh_cross_entropy_options options_of(int64_t call) const;
    const void *labels_of(int64_t call) const;
    char *dlogits_of(int64_t call) const;
    float *sums() const { return memory_.find<float>("sums"); }

    double time_restored(const DeviceProblem::Round &round);
    void verify_plain();
    void verify_option();

    OptionCase option_;
    DeviceProblem problem_;
    OptionMemory memory_;
    DeviceProblem::Round restore_, plain_, call_;
    bool plain_first_ = true;
};

}  // namespace bench
