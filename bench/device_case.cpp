#include "device_case.h"

#include "kernels.h"
#include "random_data.h"

namespace bench {

DeviceCase::DeviceCase(const Case &shape)
    : problem_(shape),
      sums_(3 * sizeof(float)),
      copy_(problem_, [this](int64_t call, cudaStream_t stream) { problem_.restore(call, stream); }),
      stream_in_place_(problem_,
                       [this](int64_t call, cudaStream_t stream) {
                           stream_in_place(problem_.logits(call), problem_.shape().bytes(), stream);
                       }),
      call_(problem_, [this](int64_t call, cudaStream_t stream) { cross_entropy(call, stream); }) {
    verify();
    run();
}

DeviceCase::Times DeviceCase::run() {
    Times times;
    // In this order each leaves the logits as the next one needs them: restored, then unchanged, then gradients.
    times.copy = problem_.time(copy_);
    times.stream = problem_.time(stream_in_place_);
    times.call = problem_.time(call_);
    return times;
}

void DeviceCase::cross_entropy(int64_t call, cudaStream_t stream) const {
    const Case &shape = problem_.shape();
    auto *const sums = reinterpret_cast<float *>(sums_.data());
    const gh_status status =
        gh_cross_entropy_fwd_bwd(problem_.logits(call), shape.dtype, problem_.labels(call), shape.batch, shape.vocab,
                                 shape.z_loss_multiplier, ignore_index, sums, sums + 1, sums + 2, stream);
    if (status) throw std::runtime_error(gh_last_error());
}

// The tests prove correctness; this keeps a call that did no work, or another shape's, out of the results.
void DeviceCase::verify() {
    const Stream &stream = problem_.stream();
    copy_.launch();
    check(cudaMemsetAsync(sums_.data(), 0, 3 * sizeof(float), stream), "cudaMemsetAsync");
    call_.launch();
    float sums[3];
    check(cudaMemcpyAsync(sums, sums_.data(), sizeof(sums), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    stream.synchronize();
    verify_sums(problem_.shape(), problem_.rows(), static_cast<double>(sums[0]), static_cast<double>(sums[2]));
}

}  // namespace bench
