#include "option_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace test {
namespace {

constexpr unsigned char nan_byte = 0xff;  // all of them: a NaN of any dtype

size_t strided_bytes(const Rows &rows, int64_t padding) {
    if (rows.batch == 0) return 0;
    const int64_t elements = (rows.batch - 1) * (rows.vocab + padding) + rows.vocab;
    return static_cast<size_t>(elements) * element_size(rows.dtype);
}

template <typename T>
std::vector<unsigned char> bytes_of(const std::vector<T> &values) {
    std::vector<unsigned char> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

std::vector<unsigned char> label_bytes(const OptionProblem &problem) {
    if (problem.label_dtype == GH_LABEL_I64) return bytes_of(problem.labels);
    return bytes_of(std::vector<int32_t>(problem.labels.begin(), problem.labels.end()));
}

struct OutputFormat {
    const char *name;
    size_t bytes;      // of one row, or of the one sum
    size_t alignment;  // what the header asks for; no output gets more
    bool is_sum;
};

// In the order of Output.
constexpr OutputFormat output_formats[output_count] = {
    {"row_loss", sizeof(float), 4, false},
    {"row_lse", sizeof(float), 4, false},
    {"row_target_log_prob", sizeof(float), 4, false},
    {"row_entropy", sizeof(float), 4, false},
    {"row_argmax", sizeof(int64_t), 8, false},
    {"row_statistics", GH_ROW_STATISTICS_BYTES, 8, false},
    {"loss", sizeof(float), 4, true},
    {"z_loss", sizeof(float), 4, true},
    {"n_valid", sizeof(float), 4, true},
    {"n_correct", sizeof(float), 4, true},
    {"n_out_of_range", sizeof(float), 4, true},
};

void fill_with_nan(Guarded &memory) {
    memory.upload(std::vector<unsigned char>(memory.size(), nan_byte).data());
}

}  // namespace

StridedRows::StridedRows(Engine &engine, const Rows &rows, int64_t padding, int64_t offset)
    : engine_(engine),
      batch_(rows.batch),
      vocab_(rows.vocab),
      padding_(padding),
      element_bytes_(element_size(rows.dtype)),
      memory_(engine, strided_bytes(rows, padding), static_cast<size_t>(offset) * element_bytes_) {
    forbid_padding();
}

StridedRows::~StridedRows() {
    permit_padding();
}

void StridedRows::forbid_padding() const {
    if (padding_ == 0) return;
    auto *row = static_cast<unsigned char *>(data());
    for (int64_t i = 0; i + 1 < batch_; i++, row += stride_bytes())
        engine_.forbid(row + row_bytes(), stride_bytes() - row_bytes());
}

void StridedRows::permit_padding() const {
    engine_.permit(data(), memory_.size());
}

void StridedRows::upload(const std::vector<unsigned char> &elements) {
    std::vector<unsigned char> strided(memory_.size(), nan_byte);
    for (size_t i = 0; i < static_cast<size_t>(batch_); i++)
        std::memcpy(&strided[i * stride_bytes()], &elements[i * row_bytes()], row_bytes());
    permit_padding();
    memory_.upload(strided.data());
    forbid_padding();
}

void StridedRows::upload_nan() {
    upload(std::vector<unsigned char>(static_cast<size_t>(batch_) * row_bytes(), nan_byte));
}

std::vector<unsigned char> StridedRows::fetch(const char *name) const {
    std::vector<unsigned char> strided(memory_.size()), elements(static_cast<size_t>(batch_) * row_bytes());
    permit_padding();
    memory_.download(strided.data());
    forbid_padding();
    bool padding_intact = true;
    for (size_t i = 0; i < static_cast<size_t>(batch_); i++) {
        const unsigned char *row = &strided[i * stride_bytes()];
        std::memcpy(&elements[i * row_bytes()], row, row_bytes());
        if (i + 1 < static_cast<size_t>(batch_))
            padding_intact = padding_intact && std::all_of(row + row_bytes(), row + stride_bytes(),
                                                           [](unsigned char byte) { return byte == nan_byte; });
    }
    EXPECT_TRUE(padding_intact) << "memory between the rows of " << name << " was written";
    EXPECT_TRUE(memory_.guards_intact()) << "memory around " << name << " was written";
    return elements;
}

PlacedOptions::PlacedOptions(const OptionProblem &problem, Engine &where)
    : engine_(where), problem_(problem), logits_(where, problem, problem.padding, problem.offset) {
    if (problem.gradient == Gradient::out_of_place)
        dlogits_ = std::make_unique<StridedRows>(where, problem, problem.dlogits_padding, problem.dlogits_offset);

    options = GH_CROSS_ENTROPY_OPTIONS_INIT;
    // 0 and vocab mean the same: both are used.
    if (problem.padding != 0 || problem.batch % 2 != 0) options.logits_row_stride = logits_.stride();
    if (dlogits_ == nullptr)
        options.dlogits_row_stride = options.logits_row_stride;
    else if (problem.dlogits_padding != 0 || problem.batch % 2 != 0)
        options.dlogits_row_stride = dlogits_->stride();
    options.label_dtype = problem.label_dtype;
    options.sums = problem.sums;
    options.reduction = problem.reduction;
    options.label_smoothing = problem.label_smoothing;
    options.z_loss_multiplier = problem.z_loss_multiplier;
    options.logit_scale = problem.logit_scale;
    options.softcap = problem.softcap;
    options.dloss = problem.dloss;
    options.ignore_index = problem.ignore_index;

    labels_.bytes = label_bytes(problem);
    labels_.memory = std::make_unique<Guarded>(where, labels_.bytes.size(), 8);
    options.class_weights = place(problem.class_weights);
    options.dloss_ptr = place(problem.dloss_ptr ? std::vector<float>{*problem.dloss_ptr} : std::vector<float>());
    options.row_dloss = place(problem.row_dloss);
    options.row_dentropy = place(problem.row_dentropy);
    saved_statistics_ = place(problem.saved_statistics);
    saved_lse_ = place(problem.saved_lse);
    place_outputs();
    place_workspace();
    fill(problem);
}

void PlacedOptions::expect_unchanged(const Input &input, const char *name) {
    std::vector<unsigned char> now(input.bytes.size());
    input.memory->download(now.data());
    EXPECT_TRUE(now == input.bytes) << name << " was written";
    EXPECT_TRUE(input.memory->guards_intact()) << "memory around " << name << " was written";
}

template <typename T>
const T *PlacedOptions::place(const std::vector<T> &values) {
    if (values.empty()) return nullptr;
    // No more than the alignment that the header asks for: bytes stand for what is aligned to 8.
    const size_t offset = sizeof(T) == 1 ? 8 : sizeof(T);
    Input input{std::make_unique<Guarded>(engine_, values.size() * sizeof(T), offset), bytes_of(values)};
    inputs_.push_back(std::move(input));
    return static_cast<const T *>(inputs_.back().memory->data());
}

void PlacedOptions::place_outputs() {
    for (size_t k = 0; k < output_count; k++) {
        if (!problem_.outputs.has(static_cast<Output>(k))) continue;
        const OutputFormat &format = output_formats[k];
        const size_t count = format.is_sum ? 1 : static_cast<size_t>(problem_.batch);
        outputs_[k] = std::make_unique<Guarded>(engine_, count * format.bytes, format.alignment);
    }
    options.row_loss = output<float>(Output::row_loss);
    options.row_lse = output<float>(Output::row_lse);
    options.row_target_log_prob = output<float>(Output::row_target_log_prob);
    options.row_entropy = output<float>(Output::row_entropy);
    options.row_argmax = output<int64_t>(Output::row_argmax);
    options.row_statistics = output<void>(Output::row_statistics);
    options.loss = output<float>(Output::loss);
    options.z_loss = output<float>(Output::z_loss);
    options.n_valid = output<float>(Output::n_valid);
    options.n_correct = output<float>(Output::n_correct);
    options.n_out_of_range = output<float>(Output::n_out_of_range);
}

void PlacedOptions::place_workspace() {
    const bool smooths_by_weight = problem_.label_smoothing != 0 && !problem_.class_weights.empty();
    const bool needed = engine_.is_cuda() && (problem_.reduction == GH_REDUCTION_MEAN || smooths_by_weight);
    if (!problem_.with_workspace && !needed) return;
    size_t size = 0;
    EXPECT_EQ(gh_cross_entropy_workspace_size(engine_.stream(), &size), GH_SUCCESS) << gh_last_error();
    workspace_ = std::make_unique<Guarded>(engine_, size, 8);
    options.workspace = workspace_->data();
    options.workspace_size = size;
}

void *PlacedOptions::dlogits() const {
    if (problem_.gradient == Gradient::none) return nullptr;
    return dlogits_ ? dlogits_->data() : logits_.data();
}

gh_status PlacedOptions::call() const {
    const OptionProblem &p = problem_;
    if (p.is_backward())
        return gh_cross_entropy_backward(logits(), dlogits(), p.dtype, labels(), p.batch, p.vocab, saved_statistics_,
                                         saved_lse_, &options, engine_.stream());
    return gh_cross_entropy(logits(), dlogits(), p.dtype, labels(), p.batch, p.vocab, &options, engine_.stream());
}

void PlacedOptions::fill(const OptionProblem &problem) {
    problem_ = problem;
    logits_.upload(problem.logits);
    labels_.bytes = label_bytes(problem);
    labels_.memory->upload(labels_.bytes.data());
    if (dlogits_) dlogits_->upload_nan();
    for (const Input &input : inputs_) input.memory->upload(input.bytes.data());
    for (size_t k = 0; k < output_count; k++) {
        if (!outputs_[k]) continue;
        if (output_formats[k].is_sum)
            outputs_[k]->upload(&problem.before);
        else
            fill_with_nan(*outputs_[k]);
    }
    if (workspace_) fill_with_nan(*workspace_);
    engine_.finish();
}

OptionOutcome PlacedOptions::fetch() const {
    engine_.finish();
    OptionOutcome outcome;
    const std::vector<unsigned char> logits = logits_.fetch("logits");
    if (problem_.gradient == Gradient::in_place)
        outcome.dlogits = logits;
    else
        EXPECT_TRUE(logits == problem_.logits) << "logits were written";
    if (dlogits_) outcome.dlogits = dlogits_->fetch("dlogits");
    expect_unchanged(labels_, "labels");
    for (const Input &input : inputs_) expect_unchanged(input, "an input");
    for (size_t k = 0; k < output_count; k++) {
        if (!outputs_[k]) continue;
        outcome.outputs[k].resize(outputs_[k]->size());
        outputs_[k]->download(outcome.outputs[k].data());
        EXPECT_TRUE(outputs_[k]->guards_intact()) << "memory around " << output_formats[k].name << " was written";
    }
    EXPECT_TRUE(workspace_ == nullptr || workspace_->guards_intact()) << "memory around workspace was written";
    return outcome;
}

OptionOutcome run(const OptionProblem &problem, Engine &where) {
    SCOPED_TRACE(problem.describe());
    PlacedOptions placed(problem, where);
    const gh_status status = placed.call();
    EXPECT_EQ(status, GH_SUCCESS) << gh_last_error();
    OptionOutcome outcome = placed.fetch();
    outcome.status = status;
    return outcome;
}

}  // namespace test
