#include "device_option_case.h"

#include <algorithm>
#include <cmath>

#include "random_data.h"

namespace bench {
namespace {

// The floats of "sums".
enum Sum { loss, z_loss, n_valid, n_correct, n_out_of_range, sum_count };

void succeed(gh_status status) {
    if (status) throw std::runtime_error(gh_last_error());
}

template <class T>
void upload(T *to, const std::vector<T> &values) {
    check(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
}

template <class T>
std::vector<T> download(const T *from, size_t count, const Stream &stream) {
    std::vector<T> values(count);
    check(cudaMemcpyAsync(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    stream.synchronize();
    return values;
}

}  // namespace

// ---- OptionMemory ----------------------------------------------------------------------------------

OptionMemory::OptionMemory(const OptionCase &option, const DeviceProblem &problem) {
    const auto add = [this](const std::string &name, size_t bytes) {
        blocks_.try_emplace(name, bytes, bytes_per_row(name));
    };
    add("sums", sum_count * sizeof(float));
    if (option.out_of_place) add("dlogits", problem.all_bytes());
    if (option.values.label_dtype == GH_LABEL_I32) {
        const std::vector<int64_t> labels = random_labels(option.shape, problem.rows(), 2);
        add("labels", labels.size() * sizeof(int32_t));
        upload(find<int32_t>("labels"), std::vector<int32_t>(labels.begin(), labels.end()));
    }
    for (const auto &[name, size, is_input] : option.arrays(problem.rows())) {
        add(name, size);
        if (is_input) upload(find<float>(name), random_factors(static_cast<int64_t>(size / sizeof(float)), 4));
    }
    if (option.scale != 0) {
        add("scale", sizeof(float));
        upload(find<float>("scale"), {option.scale});
    }
    if (option.has("workspace")) {
        size_t size = 0;
        succeed(gh_cross_entropy_workspace_size(problem.stream(), &size));
        add("workspace", size);
    }
}

template <class T>
T *OptionMemory::find(const std::string &name, int64_t row) const {
    const auto found = blocks_.find(name);
    if (found == blocks_.end()) return nullptr;
    const Block &block = found->second;
    return reinterpret_cast<T *>(block.buffer.data() + static_cast<size_t>(row) * block.bytes_per_row);
}

size_t OptionMemory::bytes(const std::string &name) const {
    const auto found = blocks_.find(name);
    return found == blocks_.end() ? 0 : found->second.bytes;
}

// ---- DeviceOptionCase ------------------------------------------------------------------------------

DeviceOptionCase::DeviceOptionCase(const OptionCase &option)
    : option_(option),
      problem_(option.shape, option.row_padding),
      memory_(option_, problem_),
      restore_(problem_, [this](int64_t call, cudaStream_t stream) { problem_.restore(call, stream); }),
      plain_(problem_, [this](int64_t call, cudaStream_t stream) { plain(call, stream); }),
      call_(problem_, [this](int64_t call, cudaStream_t stream) { with_option(call, stream); }) {
    restore_.launch();
    if (!option_.backward.empty()) save_rows();
    verify_plain();
    verify_option();
    run();
}

DeviceOptionCase::Times DeviceOptionCase::run() {
    Times times;
    if (plain_first_) times.plain = time_restored(plain_);
    times.call = time_restored(call_);
    if (!plain_first_) times.plain = time_restored(plain_);
    plain_first_ = !plain_first_;
    return times;
}

double DeviceOptionCase::time_restored(const DeviceProblem::Round &round) {
    restore_.launch();
    return problem_.time(round);
}

void DeviceOptionCase::plain(int64_t call, cudaStream_t stream) const {
    const Case &shape = option_.shape;
    succeed(gh_cross_entropy_fwd_bwd(problem_.logits(call), shape.dtype, problem_.labels(call), shape.batch,
                                     shape.vocab, 0, ignore_index, sums() + loss, sums() + z_loss, sums() + n_valid,
                                     stream));
}

void DeviceOptionCase::with_option(int64_t call, cudaStream_t stream) const {
    const Case &shape = option_.shape;
    if (option_.scale != 0) {
        succeed(gh_scale_dlogits(dlogits_of(call), shape.dtype, shape.batch, shape.vocab,
                                 option_.values.dlogits_row_stride, memory_.find<float>("scale"), stream));
        return;
    }
    const gh_cross_entropy_options options = options_of(call);
    if (option_.backward.empty()) {
        succeed(gh_cross_entropy(problem_.logits(call), dlogits_of(call), shape.dtype, labels_of(call), shape.batch,
                                 shape.vocab, &options, stream));
        return;
    }
    const void *const saved = memory_.find<const void>(option_.backward, call * shape.batch);
    const bool from_lse = option_.backward == "row_lse";
    succeed(gh_cross_entropy_backward(problem_.logits(call), dlogits_of(call), shape.dtype, labels_of(call),
                                      shape.batch, shape.vocab, from_lse ? nullptr : saved,
                                      from_lse ? static_cast<const float *>(saved) : nullptr, &options, stream));
}

gh_cross_entropy_options DeviceOptionCase::options_of(int64_t call) const {
    static const std::map<std::string, Sum> sum_names = {{"loss", loss},
                                                         {"z_loss", z_loss},
                                                         {"n_valid", n_valid},
                                                         {"n_correct", n_correct},
                                                         {"n_out_of_range", n_out_of_range}};
    gh_cross_entropy_options options = option_.options([&](const char *name) -> void * {
        const auto sum = sum_names.find(name);
        return sum != sum_names.end() ? sums() + sum->second : memory_.find<void>(name, call * option_.shape.batch);
    });
    options.workspace_size = memory_.bytes("workspace");
    return options;
}

const void *DeviceOptionCase::labels_of(int64_t call) const {
    if (option_.values.label_dtype != GH_LABEL_I32) return problem_.labels(call);
    return memory_.find<int32_t>("labels") + call * option_.shape.batch;
}

char *DeviceOptionCase::dlogits_of(int64_t call) const {
    if (option_.forward_only) return nullptr;
    return option_.out_of_place ? memory_.find<char>("dlogits") + problem_.offset(call) : problem_.logits(call);
}

// What the backward pass starts from. The logits must be restored.
void DeviceOptionCase::save_rows() const {
    const Case &shape = option_.shape;
    for (int64_t call = 0; call < problem_.calls(); call++) {
        gh_cross_entropy_options options = option_.values;
        const int64_t row = call * shape.batch;
        if (option_.backward == "row_lse")
            options.row_lse = memory_.find<float>(option_.backward, row);
        else
            options.row_statistics = memory_.find<void>(option_.backward, row);
        succeed(gh_cross_entropy(problem_.logits(call), nullptr, shape.dtype, labels_of(call), shape.batch, shape.vocab,
                                 &options, problem_.stream()));
    }
}

// The tests prove correctness; these two keep a call that did no work, or another shape's, out of the results.

void DeviceOptionCase::verify_plain() {
    const Stream &stream = problem_.stream();
    restore_.launch();
    check(cudaMemsetAsync(sums(), 0, memory_.bytes("sums"), stream), "cudaMemsetAsync");
    plain_.launch();
    const std::vector<float> found = download(sums(), sum_count, stream);
    verify_sums(option_.shape, problem_.rows(), static_cast<double>(found[loss]), static_cast<double>(found[n_valid]));
}

void DeviceOptionCase::verify_option() {
    const Stream &stream = problem_.stream();
    restore_.launch();
    check(cudaMemsetAsync(sums(), 0, memory_.bytes("sums"), stream), "cudaMemsetAsync");
    if (option_.out_of_place)
        check(cudaMemsetAsync(dlogits_of(0), 0xff, memory_.bytes("dlogits"), stream), "cudaMemsetAsync");

    // The last row's end, without the padding that may follow it.
    const auto row_bytes = option_.shape.bytes() / static_cast<size_t>(option_.shape.batch);
    const char *const last_row =
        option_.forward_only ? nullptr : dlogits_of(problem_.calls() - 1) + problem_.bytes() - problem_.row_pitch();
    const size_t count = std::min<size_t>(row_bytes, 256);
    std::vector<char> before;
    if (last_row) before = download(last_row + row_bytes - count, count, stream);
    call_.launch();
    if (last_row) {
        const bool same = download(last_row + row_bytes - count, count, stream) == before;
        if (same && option_.scale != 1) throw std::runtime_error("the call left its last row as it was");
        if (!same && option_.scale == 1) throw std::runtime_error("multiplying by 1 has changed the last row");
    }

    if (!option_.has_outputs()) return;
    const std::vector<float> found = download(sums(), sum_count, stream);
    const int64_t rows = option_.values.sums == GH_SUMS_OVERWRITE ? option_.shape.batch : problem_.rows();
    if (static_cast<double>(found[n_valid]) != static_cast<double>(rows))
        throw std::runtime_error("n_valid is " + std::to_string(found[n_valid]) + ", not " + std::to_string(rows));
    if (!(found[loss] > 0 && std::isfinite(found[loss])))
        throw std::runtime_error("the loss is " + std::to_string(found[loss]));
}

}  // namespace bench
