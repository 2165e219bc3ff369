#include "device_case.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "random_data.h"

namespace bench {
namespace {

constexpr size_t long_enough = size_t{128} << 20;  // about 60 microseconds at 4 TB/s: one call is timed alone
constexpr size_t rotation = size_t{512} << 20;     // shorter ones rotate through this much, far more than L2 holds

size_t pitch_of(const Case &shape) {
    return (shape.bytes() + 255) / 256 * 256;
}

int64_t calls_of(const Case &shape) {
    if (shape.bytes() >= long_enough) return 1;
    return static_cast<int64_t>((rotation + pitch_of(shape) - 1) / pitch_of(shape));
}

size_t l2_bytes() {
    int device = 0, bytes = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    return static_cast<size_t>(bytes);
}

}  // namespace

DeviceCase::DeviceCase(const Case &shape)
    : shape_(shape),
      pitch_(pitch_of(shape)),
      calls_(calls_of(shape)),
      pristine_(pitch_ * static_cast<size_t>(calls_)),
      logits_(pitch_ * static_cast<size_t>(calls_)),
      labels_(sizeof(int64_t) * static_cast<size_t>(calls_ * shape.batch)),
      sums_(3 * sizeof(float)),
      other_bytes_(std::max<size_t>(4 * l2_bytes(), size_t{16} << 20)),
      other_(other_bytes_) {
    const size_t element = shape.bytes() / static_cast<size_t>(shape.elements());
    fill_normal_on_device(pristine_.data(), shape.dtype, static_cast<int64_t>(pitch_ / element) * calls_, 1, stream_);
    fill_normal_on_device(other_.data(), GH_DTYPE_F32, static_cast<int64_t>(other_bytes_ / sizeof(float)), 3, stream_);
    const std::vector<int64_t> labels = random_labels(shape, calls_ * shape.batch, 2);
    check(cudaMemcpyAsync(labels_.data(), labels.data(), labels.size() * sizeof(int64_t), cudaMemcpyHostToDevice,
                          stream_),
          "cudaMemcpyAsync");
    stream_.synchronize();

    prepare(copy_graph_, [this](cudaStream_t s) { copy_all(s); });
    prepare(stream_graph_, [this](cudaStream_t s) { stream_all(s); });
    prepare(call_graph_, [this](cudaStream_t s) { call_all(s); });
    verify();
    run();
}

template <class Work>
void DeviceCase::prepare(Graph &graph, Work work) {
    if (calls_ > 1) graph.capture(stream_, [&] { work(stream_); });
}

template <class Work>
double DeviceCase::time(const Graph &graph, Work work) {
    read_all(other_.data(), other_bytes_, stream_);
    timer_.start(stream_);
    if (calls_ > 1)
        graph.launch(stream_);
    else
        work(stream_);
    timer_.stop(stream_);
    return timer_.seconds() / static_cast<double>(calls_);
}

DeviceCase::Times DeviceCase::run() {
    Times times;
    // In this order each leaves the logits as the next one needs them: restored, then unchanged, then gradients.
    times.copy = time(copy_graph_, [this](cudaStream_t s) { copy_all(s); });
    times.stream = time(stream_graph_, [this](cudaStream_t s) { stream_all(s); });
    times.call = time(call_graph_, [this](cudaStream_t s) { call_all(s); });
    return times;
}

void DeviceCase::copy_all(cudaStream_t stream) {
    for (size_t i = 0; i < static_cast<size_t>(calls_); i++)
        check(cudaMemcpyAsync(logits_.data() + i * pitch_, pristine_.data() + i * pitch_, shape_.bytes(),
                              cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
}

void DeviceCase::stream_all(cudaStream_t stream) {
    for (size_t i = 0; i < static_cast<size_t>(calls_); i++)
        stream_in_place(logits_.data() + i * pitch_, shape_.bytes(), stream);
}

void DeviceCase::call_all(cudaStream_t stream) {
    auto *const sums = reinterpret_cast<float *>(sums_.data());
    for (int64_t i = 0; i < calls_; i++) {
        const gh_status status = gh_cross_entropy_fwd_bwd(
            logits_.data() + static_cast<size_t>(i) * pitch_, shape_.dtype,
            reinterpret_cast<const int64_t *>(labels_.data()) + i * shape_.batch, shape_.batch, shape_.vocab,
            shape_.z_loss_multiplier, ignore_index, sums, sums + 1, sums + 2, stream);
        if (status) throw std::runtime_error(gh_last_error());
    }
}

// The tests prove correctness; this keeps a call that did no work, or another shape's, out of the results.
void DeviceCase::verify() {
    copy_all(stream_);
    check(cudaMemsetAsync(sums_.data(), 0, 3 * sizeof(float), stream_), "cudaMemsetAsync");
    if (calls_ > 1)
        call_graph_.launch(stream_);
    else
        call_all(stream_);
    float sums[3];
    check(cudaMemcpyAsync(sums, sums_.data(), sizeof(sums), cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    stream_.synchronize();

    const auto rows = static_cast<double>(shape_.batch * calls_);
    const double valid = rows - static_cast<double>(std::llround(shape_.ignored * rows));
    if (static_cast<double>(sums[2]) != valid)
        throw std::runtime_error("n_valid is " + std::to_string(sums[2]) + ", not " + std::to_string(valid));
    // For standard normal logits a row's lse has mean log(vocab) + 1/2 and variance (e - 1) / vocab, to first order,
    // and its label's logit has mean 0 and variance 1: the mean loss is known to within its standard error.
    const auto vocab = static_cast<double>(shape_.vocab);
    const double variance = 1 + 1.72 / vocab;
    const double expected = std::log(vocab) + 0.5, mean = static_cast<double>(sums[0]) / valid;
    if (!(std::fabs(mean - expected) < 6 * std::sqrt(variance / valid) + 1.72 / vocab))
        throw std::runtime_error("mean loss is " + std::to_string(mean) + ", not about " + std::to_string(expected));
}

}  // namespace bench
