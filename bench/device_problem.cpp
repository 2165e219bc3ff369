#include "device_problem.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "random_data.h"

namespace bench {
namespace {

constexpr size_t long_enough = size_t{128} << 20;  // about 60 microseconds at 4 TB/s: one call is timed alone
constexpr size_t rotation = size_t{512} << 20;     // shorter ones rotate through this much, far more than L2 holds

size_t element_bytes(const Case &shape) {
    return shape.bytes() / static_cast<size_t>(shape.elements());
}

size_t l2_bytes() {
    int device = 0, bytes = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    return static_cast<size_t>(bytes);
}

}  // namespace

DeviceProblem::DeviceProblem(const Case &shape, int64_t row_padding)
    : shape_(shape),
      bytes_(static_cast<size_t>(shape.batch * (shape.vocab + row_padding)) * element_bytes(shape)),
      pitch_((bytes_ + 255) / 256 * 256),
      calls_(bytes_ >= long_enough ? 1 : static_cast<int64_t>((rotation + pitch_ - 1) / pitch_)),
      pristine_(all_bytes()),
      logits_(all_bytes()),
      labels_(sizeof(int64_t) * static_cast<size_t>(rows())),
      other_bytes_(std::max<size_t>(4 * l2_bytes(), size_t{16} << 20)),
      other_(other_bytes_) {
    fill_normal_on_device(pristine_.data(), shape.dtype, static_cast<int64_t>(all_bytes() / element_bytes(shape)), 1,
                          stream_);
    fill_normal_on_device(other_.data(), GH_DTYPE_F32, static_cast<int64_t>(other_bytes_ / sizeof(float)), 3, stream_);
    const std::vector<int64_t> labels = random_labels(shape, rows(), 2);
    check(cudaMemcpyAsync(labels_.data(), labels.data(), labels.size() * sizeof(int64_t), cudaMemcpyHostToDevice,
                          stream_),
          "cudaMemcpyAsync");
    stream_.synchronize();
}

void DeviceProblem::restore(int64_t call, cudaStream_t stream) const {
    check(cudaMemcpyAsync(logits(call), pristine_.data() + offset(call), bytes_, cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
}

DeviceProblem::Round::Round(const DeviceProblem &problem, Work work) : problem_(problem), work_(std::move(work)) {
    if (problem_.calls() > 1) graph_.capture(problem_.stream(), [this] { issue(); });
}

void DeviceProblem::Round::launch() const {
    if (problem_.calls() > 1)
        graph_.launch(problem_.stream());
    else
        issue();
}

void DeviceProblem::Round::issue() const {
    for (int64_t call = 0; call < problem_.calls(); call++) work_(call, problem_.stream());
}

double DeviceProblem::time(const Round &round) {
    read_all(other_.data(), other_bytes_, stream_);
    timer_.start(stream_);
    round.launch();
    timer_.stop(stream_);
    return timer_.seconds() / static_cast<double>(calls_);
}

void verify_sums(const Case &shape, int64_t rows, double loss_sum, double n_valid) {
    const double valid =
        static_cast<double>(rows) - static_cast<double>(std::llround(shape.ignored * static_cast<double>(rows)));
    if (n_valid != valid)
        throw std::runtime_error("n_valid is " + std::to_string(n_valid) + ", not " + std::to_string(valid));
    // A row's lse has mean log(vocab) + 1/2 and variance (e - 1) / vocab, to first order, and its label's logit has
    // mean 0 and variance 1.
    const auto vocab = static_cast<double>(shape.vocab);
    const double variance = 1 + 1.72 / vocab;
    const double expected = std::log(vocab) + 0.5, mean = loss_sum / valid;
    if (!(std::fabs(mean - expected) < 6 * std::sqrt(variance / valid) + 1.72 / vocab))
        throw std::runtime_error("mean loss is " + std::to_string(mean) + ", not about " + std::to_string(expected));
}

}  // namespace bench
