// What an option costs on the CPU engine: time of a call that uses it, next to the plain call's.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

#include "option_cases.h"
#include "random_data.h"
#include "suites.h"

namespace bench {
namespace {

void succeed(gh_status status) {
    if (status) throw std::runtime_error(gh_last_error());
}

// As DeviceOptionCase, the calls take turns, and each starts from restored logits.
class HostOptionCase {
public:
    explicit HostOptionCase(const OptionCase &option)
        : option_(option),
          bytes_(static_cast<size_t>(option.shape.batch * (option.shape.vocab + option.row_padding)) *
                 (option.shape.bytes() / static_cast<size_t>(option.shape.elements()))),
          pristine_(new char[bytes_]),
          logits_(new char[bytes_]),
          labels_(random_labels(option.shape, option.shape.batch, 2)),
          labels_i32_(labels_.begin(), labels_.end()) {
        const Case &shape = option_.shape;
        fill_normal(pristine_.get(), shape.dtype, shape.batch * (shape.vocab + option_.row_padding), 1);
        if (option_.out_of_place) dlogits_.reset(new char[bytes_]);
        for (const auto &[name, size, is_input] : option_.arrays(shape.batch)) {
            arrays_[name].resize((size + 7) / 8);
            if (!is_input) continue;
            const std::vector<float> factors = random_factors(static_cast<int64_t>(size / sizeof(float)), 4);
            std::memcpy(arrays_[name].data(), factors.data(), size);
        }
        if (!option_.backward.empty()) save_rows();
        run();
    }

    struct Times {
        double plain, call;
    };
    Times run() {
        Times times;
        if (plain_first_) times.plain = time_restored([this] { plain(); });
        times.call = time_restored([this] { with_option(); });
        if (!plain_first_) times.plain = time_restored([this] { plain(); });
        plain_first_ = !plain_first_;
        return times;
    }

    const OptionCase &option() const { return option_; }

private:
    template <class Call>
    double time_restored(Call call) {
        using Clock = std::chrono::steady_clock;
        std::memcpy(logits_.get(), pristine_.get(), bytes_);
        sums_.clear();
        const Clock::time_point start = Clock::now();
        call();
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        if (!sums_.empty() && sums_["n_valid"] != static_cast<float>(option_.shape.batch))
            throw std::runtime_error("n_valid is " + std::to_string(sums_["n_valid"]));
        return seconds;
    }

    void plain() {
        const Case &shape = option_.shape;
        succeed(gh_cross_entropy_fwd_bwd(logits_.get(), shape.dtype, labels_.data(), shape.batch, shape.vocab, 0,
                                         ignore_index, &sums_["loss"], &sums_["z_loss"], &sums_["n_valid"],
                                         GH_STREAM_HOST));
    }

    void with_option() {
        const Case &shape = option_.shape;
        char *const in_place_or_not = option_.out_of_place ? dlogits_.get() : logits_.get();
        char *const dlogits = option_.forward_only ? nullptr : in_place_or_not;
        if (option_.scale != 0) {
            succeed(gh_scale_dlogits(dlogits, shape.dtype, shape.batch, shape.vocab, option_.values.dlogits_row_stride,
                                     &option_.scale, GH_STREAM_HOST));
            return;
        }
        const gh_cross_entropy_options options = option_.options([this](const char *name) -> void * {
            const auto array = arrays_.find(name);
            if (array != arrays_.end()) return array->second.data();
            return std::strcmp(name, "workspace") == 0 ? nullptr : &sums_[name];
        });
        if (option_.has_outputs()) {
            succeed(gh_cross_entropy(logits_.get(), dlogits, shape.dtype, labels(), shape.batch, shape.vocab, &options,
                                     GH_STREAM_HOST));
            return;
        }
        const void *const saved = arrays_[option_.backward].data();
        const bool from_lse = option_.backward == "row_lse";
        succeed(gh_cross_entropy_backward(
            logits_.get(), dlogits, shape.dtype, labels(), shape.batch, shape.vocab, from_lse ? nullptr : saved,
            from_lse ? static_cast<const float *>(saved) : nullptr, &options, GH_STREAM_HOST));
    }

    // What the backward pass starts from.
    void save_rows() {
        const Case &shape = option_.shape;
        gh_cross_entropy_options options = option_.values;
        void *const saved = arrays_[option_.backward].data();
        if (option_.backward == "row_lse")
            options.row_lse = static_cast<float *>(saved);
        else
            options.row_statistics = saved;
        succeed(gh_cross_entropy(pristine_.get(), nullptr, shape.dtype, labels(), shape.batch, shape.vocab, &options,
                                 GH_STREAM_HOST));
    }

    const void *labels() const {
        if (option_.values.label_dtype == GH_LABEL_I32) return labels_i32_.data();
        return labels_.data();
    }

    OptionCase option_;
    size_t bytes_;
    std::unique_ptr<char[]> pristine_, logits_, dlogits_;
    std::vector<int64_t> labels_;
    std::vector<int32_t> labels_i32_;
    std::map<std::string, std::vector<uint64_t>> arrays_;  // of uint64_t, so that they are aligned for every field
    std::map<std::string, float> sums_;
    bool plain_first_ = true;
};

void option_cost(benchmark::State &state, const OptionCase &option) {
    // Kept from one repetition to the next, and freed when the next case starts.
    static std::unique_ptr<HostOptionCase> current;
    try {
        if (!current || current->option().name() != option.name()) {
            current.reset();
            current = std::make_unique<HostOptionCase>(option);
        }
        HostOptionCase::Times times{};
        for (auto _ : state) {
            times = current->run();
            state.SetIterationTime(times.call);
        }
        state.counters["plain_us"] = 1e6 * times.plain;
        state.counters["of_plain"] = times.call / times.plain;
    } catch (const std::exception &e) {
        current.reset();
        state.SkipWithError(e.what());
    }
}

}  // namespace

void register_host_option_suite(const Settings &settings) {
    for (const OptionCase &option : all_option_cases()) {
        if (!option.on_host) continue;
        benchmark::RegisterBenchmark(option.name().c_str(), option_cost, option)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(1)
            ->Repetitions(settings.repetitions(31))
            ->ReportAggregatesOnly();
    }
}

}  // namespace bench
