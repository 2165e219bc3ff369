// Wrong options, and wrong arguments of the calls that take options: the right code, a message that names the argument
// and its value, nothing written, and an engine that still works.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "engine.h"

namespace test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

[[gnu::format(printf, 1, 2)]] std::string text(const char *format, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

// The arguments of gh_cross_entropy, or of gh_cross_entropy_backward.
struct Call {
    bool backward;
    const void *logits;
    void *dlogits;
    gh_dtype dtype;
    const void *labels;
    int64_t batch, vocab;
    const void *row_statistics;
    const float *row_lse;
    gh_cross_entropy_options options;
    gh_stream stream;
};

gh_status call(const Call &c, const gh_cross_entropy_options *options) {
    return c.backward ? gh_cross_entropy_backward(c.logits, c.dlogits, c.dtype, c.labels, c.batch, c.vocab,
                                                  c.row_statistics, c.row_lse, options, c.stream)
                      : gh_cross_entropy(c.logits, c.dlogits, c.dtype, c.labels, c.batch, c.vocab, options, c.stream);
}

gh_status call(const Call &c) {
    return call(c, &c.options);
}

constexpr int64_t batch = 4, vocab = 12, stride = 16;
constexpr int64_t matrix = ((batch - 1) * stride + vocab) * 4;

// A pointer of a Call, by its place there.
struct Pointer {
    const char *name;
    size_t place;
    int64_t bytes;
    int64_t alignment;
    bool written;

    char *of(const Call &call) const {
        char *pointer;
        std::memcpy(&pointer, reinterpret_cast<const char *>(&call) + place, sizeof pointer);
        return pointer;
    }
    void set(Call &call, const void *pointer) const {
        std::memcpy(reinterpret_cast<char *>(&call) + place, &pointer, sizeof pointer);
    }
};

#define OPTION(field) "options." #field, offsetof(Call, options.field)

// In the order in which the library looks at them. Without the workspace, whose size depends on the engine.
const Pointer pointers[] = {
    {"logits", offsetof(Call, logits), matrix, 4, false},
    {"dlogits", offsetof(Call, dlogits), matrix, 4, true},
    {"labels", offsetof(Call, labels), batch * 8, 8, false},
    {"row_statistics", offsetof(Call, row_statistics), batch *GH_ROW_STATISTICS_BYTES, 8, false},
    {"row_lse", offsetof(Call, row_lse), batch * 4, 4, false},
    {OPTION(class_weights), vocab * 4, 4, false},
    {OPTION(dloss_ptr), 4, 4, false},
    {OPTION(row_dloss), batch * 4, 4, false},
    {OPTION(row_dentropy), batch * 4, 4, false},
    {OPTION(row_loss), batch * 4, 4, true},
    {OPTION(row_lse), batch * 4, 4, true},
    {OPTION(row_target_log_prob), batch * 4, 4, true},
    {OPTION(row_entropy), batch * 4, 4, true},
    {OPTION(row_argmax), batch * 8, 8, true},
    {OPTION(row_statistics), batch *GH_ROW_STATISTICS_BYTES, 8, true},
    {OPTION(loss), 4, 4, true},
    {OPTION(z_loss), 4, 4, true},
    {OPTION(n_valid), 4, 4, true},
    {OPTION(n_correct), 4, 4, true},
    {OPTION(n_out_of_range), 4, 4, true},
};

const Pointer &pointer(const std::string &name) {
    for (const Pointer &pointer : pointers)
        if (pointer.name == name) return pointer;
    throw std::invalid_argument(name);
}

bool is_output(const Pointer &pointer) {
    return pointer.written && pointer.place != offsetof(Call, dlogits);
}

size_t workspace_size() {
    size_t size = 0;
    EXPECT_EQ(gh_cross_entropy_workspace_size(engine().stream(), &size), GH_SUCCESS) << gh_last_error();
    return size;
}

class OptionErrors : public ::testing::Test {
protected:
    // Every pointer's memory, each in a slot of its own with room around it; behind them the workspace.
    static constexpr size_t slot = 1024, room = 512;
    static constexpr size_t slots = sizeof(pointers) / sizeof(pointers[0]);

    Random random = make_random();
    const size_t workspace_bytes = workspace_size() + 64;  // some even where none is needed
    Guarded memory{engine(), slots *slot + workspace_bytes};
    std::vector<unsigned char> before = std::vector<unsigned char>(memory.size());

    void SetUp() override {
        for (size_t i = 0; i + 4 <= before.size(); i += 4) {
            const auto value = static_cast<float>(uniform(random, 1, 1000)) / 500;
            std::memcpy(&before[i], &value, 4);
        }
        std::vector<int64_t> labels(batch);
        for (int64_t &label : labels) label = uniform(random, 0, vocab - 1);
        set_labels(labels);
    }

    // The engine, and on CUDA its context, must have survived every test.
    void TearDown() override { run_and_check(random_problem(random, GH_DTYPE_BF16, 3, 100)); }

    template <typename Label>
    void set_labels(const std::vector<Label> &labels) {
        std::memcpy(&before[offset(pointer("labels"))], labels.data(), labels.size() * sizeof(Label));
        memory.upload(before.data());
        engine().finish();
    }

    static size_t offset(const Pointer &pointer) { return static_cast<size_t>(&pointer - pointers) * slot + room; }
    char *at(const Pointer &pointer) { return static_cast<char *>(memory.data()) + offset(pointer); }

    bool unchanged() {
        engine().finish();
        std::vector<unsigned char> now(memory.size());
        memory.download(now.data());
        return now == before && memory.guards_intact();
    }

    // A right call with everything that it can have: all options, all inputs, all outputs.
    Call everything(bool backward) {
        Call result;
        std::memset(&result, 0, sizeof result);
        result.options = GH_CROSS_ENTROPY_OPTIONS_INIT;
        for (const Pointer &pointer : pointers) pointer.set(result, at(pointer));
        if (backward) {
            for (const Pointer &pointer : pointers)
                if (is_output(pointer)) pointer.set(result, nullptr);
        } else {
            result.row_statistics = nullptr;
        }
        result.row_lse = nullptr;
        result.backward = backward;
        result.dtype = GH_DTYPE_F32;
        result.batch = batch;
        result.vocab = vocab;
        result.stream = engine().stream();
        gh_cross_entropy_options &options = result.options;
        options.logits_row_stride = options.dlogits_row_stride = stride;
        options.reduction = GH_REDUCTION_MEAN;
        options.label_smoothing = 0.1f;
        options.z_loss_multiplier = 1e-3f;
        options.logit_scale = 0.5f;
        options.softcap = 30;
        options.dloss = 2;
        options.workspace = static_cast<char *>(memory.data()) + slots * slot;
        options.workspace_size = workspace_bytes;
        return result;
    }
    Call forward() { return everything(false); }
    Call backward() { return everything(true); }
    std::vector<Call> both() { return {forward(), backward()}; }

    // Makes the wrong call and holds it to its promises.
    void expect(const Call &wrong, gh_status status, const std::string &message) {
        expect(wrong, &wrong.options, status, message);
    }
    void expect(const Call &wrong, const gh_cross_entropy_options *options, gh_status status,
                const std::string &message) {
        EXPECT_EQ(call(wrong, options), status) << message << "\n" << gh_last_error();
        const std::string said = gh_last_error();
        EXPECT_NE(said.find(message), std::string::npos) << "\"" << said << "\" lacks \"" << message << "\"";
        EXPECT_EQ(said.find('\n'), std::string::npos) << "more than one line: " << said;
        EXPECT_TRUE(unchanged()) << "a failing call wrote something; " << said;
    }

    void expect_success(const Call &right) {
        EXPECT_EQ(call(right), GH_SUCCESS) << gh_last_error();
        engine().finish();
        EXPECT_TRUE(memory.guards_intact());
    }
};

// The calls that every other test makes one change to.
TEST_F(OptionErrors, NoneInTheRightCalls) {
    for (const Call &right : both()) {
        expect_success(right);
        EXPECT_FALSE(unchanged());
        memory.upload(before.data());
    }
}

// ---- Sizes and types ----------------------------------------------------------------------------

TEST_F(OptionErrors, SizesAndDtypeAreThoseOfTheShortCall) {
    for (const Call &right : both()) {
        Call wrong = right;
        wrong.dtype = 3;
        expect(wrong, GH_ERROR_INVALID_DTYPE, "dtype = 3:");
        wrong = right;
        wrong.batch = -1;
        expect(wrong, GH_ERROR_INVALID_SIZE, "batch = -1:");
        wrong = right;
        wrong.vocab = 0;
        expect(wrong, GH_ERROR_INVALID_SIZE, "vocab = 0:");
        wrong = right;
        wrong.batch = INT64_MAX;
        expect(wrong, GH_ERROR_INVALID_SIZE, "batch = 9223372036854775807 x vocab = 12");
    }
}

TEST_F(OptionErrors, RowStrideBelowTheVocabulary) {
    for (const Call &right : both())
        for (int64_t value : {vocab - 1, int64_t{1}, int64_t{-1}, -vocab, INT64_MIN}) {
            Call wrong = right;
            wrong.options.logits_row_stride = value;
            expect(wrong, GH_ERROR_INVALID_SIZE, text("options.logits_row_stride = %" PRId64 ":", value));
            wrong = right;
            wrong.options.dlogits_row_stride = value;
            expect(wrong, GH_ERROR_INVALID_SIZE, text("options.dlogits_row_stride = %" PRId64 ":", value));
        }
}

TEST_F(OptionErrors, RowStrideThatOverflows) {
    // 2^60 x 4 rows x 4 bytes = 2^64, which is 0 if it wraps.
    for (int64_t value : {INT64_MAX, int64_t{1} << 62, int64_t{1} << 60, (int64_t{1} << 59)}) {
        Call logits = forward(), dlogits = forward();
        logits.options.logits_row_stride = value;
        dlogits.options.dlogits_row_stride = value;
        expect(logits, GH_ERROR_INVALID_SIZE, text("options.logits_row_stride = %" PRId64 " x batch = 4", value));
        expect(dlogits, GH_ERROR_INVALID_SIZE, text("options.dlogits_row_stride = %" PRId64 " x batch = 4", value));
    }
    // Fits in 63 bits, but not behind the pointer.
    Call last = forward();
    last.options.dlogits_row_stride = INT64_MAX / 16;
    last.dlogits = reinterpret_cast<void *>(UINTPTR_MAX - 3);
    expect(last, GH_ERROR_INVALID_SIZE, text("dlogits = 0x%" PRIxPTR, UINTPTR_MAX - 3));
}

TEST_F(OptionErrors, UnknownChoices) {
    for (const Call &right : both())
        for (int32_t value : {-1, 3, 100, INT32_MAX, INT32_MIN}) {
            Call wrong = right;
            wrong.options.label_dtype = value;
            expect(wrong, GH_ERROR_INVALID_VALUE, text("options.label_dtype = %" PRId32 ":", value));
            wrong = right;
            wrong.options.sums = value;
            expect(wrong, GH_ERROR_INVALID_VALUE, text("options.sums = %" PRId32 ":", value));
            wrong = right;
            wrong.options.reduction = value;
            expect(wrong, GH_ERROR_INVALID_VALUE, text("options.reduction = %" PRId32 ":", value));
        }
    Call label_dtype = forward(), sums = forward();
    label_dtype.options.label_dtype = 2;
    sums.options.sums = 2;
    expect(label_dtype, GH_ERROR_INVALID_VALUE, "options.label_dtype = 2:");
    expect(sums, GH_ERROR_INVALID_VALUE, "options.sums = 2:");
}

// ---- Numbers ------------------------------------------------------------------------------------

TEST_F(OptionErrors, NumbersOutsideTheirDomain) {
    const struct {
        const char *name;
        float gh_cross_entropy_options::*field;
        std::vector<float> wrong;
    } numbers[] = {
        {"label_smoothing",
         &gh_cross_entropy_options::label_smoothing,
         {-1e-30f, -1, std::nextafter(1.0f, 2.0f), inf, -inf, nan_value}},
        {"z_loss_multiplier", &gh_cross_entropy_options::z_loss_multiplier, {inf, -inf, nan_value}},
        {"logit_scale", &gh_cross_entropy_options::logit_scale, {0, -0.0f, -1, inf, -inf, nan_value}},
        {"softcap", &gh_cross_entropy_options::softcap, {-1e-30f, -30, inf, -inf, nan_value}},
    };
    for (const Call &right : both())
        for (const auto &number : numbers)
            for (float value : number.wrong) {
                Call wrong = right;
                wrong.options.*number.field = value;
                expect(wrong, GH_ERROR_INVALID_VALUE,
                       text("options.%s = %g:", number.name, static_cast<double>(value)));
            }
}

TEST_F(OptionErrors, NumbersAtTheBoundsOfTheirDomain) {
    const float smallest = std::numeric_limits<float>::denorm_min(), largest = std::numeric_limits<float>::max();
    const struct {
        float gh_cross_entropy_options::*field;
        std::vector<float> right;
    } numbers[] = {
        {&gh_cross_entropy_options::label_smoothing, {0, -0.0f, 1}},
        {&gh_cross_entropy_options::z_loss_multiplier, {0, -1, largest, -largest}},
        {&gh_cross_entropy_options::logit_scale, {smallest, largest}},
        {&gh_cross_entropy_options::softcap, {0, -0.0f, smallest, largest}},
        {&gh_cross_entropy_options::dloss, {0, -1, inf, -inf, nan_value}},
    };
    for (const auto &number : numbers)
        for (float value : number.right) {
            Call right = forward();
            right.options.*number.field = value;
            expect_success(right);
        }
}

// ---- Pointers that must be given, and pointers that must not -------------------------------------

TEST_F(OptionErrors, RequiredPointerIsNull) {
    for (const Call &right : both()) {
        Call wrong = right;
        wrong.logits = nullptr;
        expect(wrong, GH_ERROR_NULL_POINTER, "logits = NULL:");
        wrong = right;
        wrong.labels = nullptr;
        expect(wrong, GH_ERROR_NULL_POINTER, "labels = NULL: must point to [batch] int64");
        wrong.options.label_dtype = GH_LABEL_I32;
        expect(wrong, GH_ERROR_NULL_POINTER, "labels = NULL: must point to [batch] int32");
    }
}

TEST_F(OptionErrors, NothingToCompute) {
    Call none = forward();
    none.dlogits = nullptr;
    for (const Pointer &pointer : pointers)
        if (is_output(pointer)) pointer.set(none, nullptr);
    expect(none, GH_ERROR_NULL_POINTER, "dlogits = NULL, and so are all outputs of options");
    expect(none, nullptr, GH_ERROR_NULL_POINTER, "dlogits = NULL, and so are all outputs of options");
    // Any one of them is enough; upstream gradients are then allowed, and not used.
    for (const Pointer &pointer : pointers)
        if (pointer.written) {
            Call one = none;
            pointer.set(one, at(pointer));
            expect_success(one);
        }
}

TEST_F(OptionErrors, NoReducedLossWithoutAReduction) {
    Call wrong = forward();
    wrong.options.reduction = GH_REDUCTION_NONE;
    expect(wrong, GH_ERROR_INVALID_VALUE, text("options.loss = %p:", static_cast<void *>(wrong.options.loss)));
    wrong.options.loss = nullptr;
    expect(wrong, GH_ERROR_INVALID_VALUE, text("options.z_loss = %p:", static_cast<void *>(wrong.options.z_loss)));
    wrong.options.z_loss = nullptr;
    expect_success(wrong);
}

// Needs no device: the default CUDA stream is an argument like any other.
TEST_F(OptionErrors, NoWorkspaceOnACudaStream) {
    for (Call mean : both()) {
        Call weighted_smoothing = mean;
        mean.options.reduction = GH_REDUCTION_MEAN;
        mean.options.label_smoothing = 0;
        weighted_smoothing.options.reduction = GH_REDUCTION_SUM;
        weighted_smoothing.options.label_smoothing = 0.1f;
        for (Call wrong : {mean, weighted_smoothing}) {
            wrong.stream = engine().is_cuda() ? engine().stream() : nullptr;
            wrong.options.workspace = nullptr;
            expect(wrong, GH_ERROR_NULL_POINTER, "options.workspace = NULL:");
            EXPECT_NE(std::string(gh_last_error()).find("gh_cross_entropy_workspace_size()"), std::string::npos);
            wrong.options.workspace_size = 0;
            expect(wrong, GH_ERROR_NULL_POINTER, "options.workspace = NULL:");
            wrong.batch = 0;
            expect(wrong, GH_ERROR_NULL_POINTER, "options.workspace = NULL:");
        }
    }
}

// Columns are 32 bits wide in the CUDA kernels' argmax. Looked at before any memory is, so that this needs no device
// and no such row. What is not refused goes on to the alignment of pointers, which comes next.
TEST_F(OptionErrors, AnArgmaxOfAVastVocabularyOnACudaStream) {
    const gh_stream cuda = engine().is_cuda() ? engine().stream() : nullptr;
    constexpr int64_t limit = int64_t{1} << 31;
    for (bool row_argmax : {false, true})
        for (bool n_correct : {false, true})
            for (int64_t size : {limit - 1, limit, limit + 1, int64_t{1} << 40})
                for (gh_stream stream : {cuda, GH_STREAM_HOST}) {
                    Call vast = forward();
                    if (!row_argmax) vast.options.row_argmax = nullptr;
                    if (!n_correct) vast.options.n_correct = nullptr;
                    vast.options.logits_row_stride = vast.options.dlogits_row_stride = 0;
                    vast.options.workspace = static_cast<char *>(vast.options.workspace) + 4;
                    vast.vocab = size;
                    vast.stream = stream;
                    if (stream != GH_STREAM_HOST && size >= limit && (row_argmax || n_correct)) {
                        expect(vast, GH_ERROR_INVALID_SIZE, text("vocab = %" PRId64 ":", size));
                        vast.dlogits = nullptr;
                        expect(vast, GH_ERROR_INVALID_SIZE, text("vocab = %" PRId64 ":", size));
                        vast.batch = 0;
                        expect(vast, GH_ERROR_INVALID_SIZE, text("vocab = %" PRId64 ":", size));
                    } else {
                        expect(vast, GH_ERROR_MISALIGNED_POINTER, "options.workspace = ");
                    }
                }
}

TEST_F(OptionErrors, OtherCallsNeedNoWorkspace) {
    for (Call right : both()) {
        right.options.workspace = nullptr;
        right.options.workspace_size = 0;
        if (engine().is_cuda()) {
            right.options.reduction = GH_REDUCTION_SUM;
            right.options.label_smoothing = 0;
        }
        expect_success(right);
    }
}

TEST_F(OptionErrors, WorkspaceTooSmall) {
    const size_t needed = workspace_size();
    if (needed == 0) GTEST_SKIP() << "this engine needs none";
    for (Call wrong : both())
        for (size_t size : {needed - 1, size_t{0}}) {
            wrong.options.workspace_size = size;
            expect(wrong, GH_ERROR_INVALID_SIZE, text("options.workspace_size = %zu:", size));
        }
}

TEST_F(OptionErrors, WorkspaceSizeNeedsAPlaceToWriteItTo) {
    EXPECT_EQ(gh_cross_entropy_workspace_size(engine().stream(), nullptr), GH_ERROR_NULL_POINTER);
    EXPECT_STREQ(gh_last_error(), "size = NULL: must point to one size_t");
}

// ---- The backward pass --------------------------------------------------------------------------

TEST_F(OptionErrors, BackwardNeedsAGradient) {
    Call wrong = backward();
    wrong.dlogits = nullptr;
    expect(wrong, GH_ERROR_NULL_POINTER, "dlogits = NULL:");
}

TEST_F(OptionErrors, BackwardHasNoOutputs) {
    for (const Pointer &pointer : pointers) {
        if (!is_output(pointer)) continue;
        Call wrong = backward();
        pointer.set(wrong, at(pointer));
        expect(wrong, GH_ERROR_INVALID_VALUE,
               text("%s = %p: a backward pass", pointer.name, static_cast<void *>(at(pointer))));
    }
}

TEST_F(OptionErrors, BackwardNeedsOneOfStatisticsAndLse) {
    Call neither = backward();
    neither.row_statistics = nullptr;
    expect(neither, GH_ERROR_NULL_POINTER, "row_statistics = NULL and row_lse = NULL:");
    Call two = backward();
    pointer("row_lse").set(two, at(pointer("row_lse")));
    expect(two, GH_ERROR_INVALID_VALUE,
           text("row_statistics = %p and row_lse = %p:", two.row_statistics, static_cast<const void *>(two.row_lse)));
}

TEST_F(OptionErrors, EntropyGradientNeedsStatistics) {
    Call wrong = backward();
    wrong.row_statistics = nullptr;
    pointer("row_lse").set(wrong, at(pointer("row_lse")));
    expect(wrong, GH_ERROR_INVALID_VALUE,
           text("options.row_dentropy = %p:", static_cast<const void *>(wrong.options.row_dentropy)));
    wrong.options.row_dentropy = nullptr;
    expect_success(wrong);
}

// ---- Alignment ----------------------------------------------------------------------------------

TEST_F(OptionErrors, PointerIsNotAligned) {
    for (const Call &right : both())
        for (const Pointer &pointer : pointers) {
            if (pointer.of(right) == nullptr) continue;
            for (int64_t bytes = 1; bytes < pointer.alignment; bytes++) {
                Call wrong = right;
                pointer.set(wrong, at(pointer) + bytes);
                expect(wrong, GH_ERROR_MISALIGNED_POINTER,
                       text("%s = %p:", pointer.name, static_cast<void *>(at(pointer) + bytes)));
            }
        }
    Call lse = backward();
    lse.row_statistics = nullptr;
    lse.options.row_dentropy = nullptr;
    lse.row_lse = reinterpret_cast<float *>(at(pointer("row_lse")) + 2);
    expect(lse, GH_ERROR_MISALIGNED_POINTER, text("row_lse = %p:", static_cast<const void *>(lse.row_lse)));
}

TEST_F(OptionErrors, WorkspaceIsNotAligned) {
    for (const Call &right : both())
        for (int64_t bytes = 1; bytes < 8; bytes++) {
            Call wrong = right;
            wrong.options.workspace = static_cast<char *>(right.options.workspace) + bytes;
            expect(wrong, GH_ERROR_MISALIGNED_POINTER, text("options.workspace = %p:", wrong.options.workspace));
        }
}

TEST_F(OptionErrors, ElementsOfTwoAndLabelsOfFourBytes) {
    for (gh_dtype dtype : {GH_DTYPE_F16, GH_DTYPE_BF16}) {
        Call wrong = forward();
        wrong.dtype = dtype;
        wrong.logits = at(pointer("logits")) + 1;
        expect(wrong, GH_ERROR_MISALIGNED_POINTER, text("logits = %p:", wrong.logits));
        wrong.logits = at(pointer("logits")) + 2;
        expect_success(wrong);
        memory.upload(before.data());
    }
    Call labels = forward();
    labels.options.label_dtype = GH_LABEL_I32;
    labels.labels = at(pointer("labels")) + 2;
    expect(labels, GH_ERROR_MISALIGNED_POINTER, text("labels = %p:", labels.labels));
    set_labels(std::vector<int32_t>(batch + 1, 3));
    labels.labels = at(pointer("labels")) + 4;
    expect_success(labels);
}

TEST_F(OptionErrors, TheStructIsNotAligned) {
    alignas(gh_cross_entropy_options) unsigned char bytes[sizeof(gh_cross_entropy_options) + 4];
    for (const Call &right : both()) {
        std::memcpy(bytes + 4, &right.options, sizeof right.options);
        const void *options = bytes + 4;
        expect(right, static_cast<const gh_cross_entropy_options *>(options), GH_ERROR_MISALIGNED_POINTER,
               text("options = %p:", options));
    }
}

// ---- Overlap ------------------------------------------------------------------------------------

class OptionOverlap : public OptionErrors {
protected:
    void expect_overlap(const Call &wrong, const char *one, const char *other) {
        expect(wrong, GH_ERROR_OVERLAP, "overlaps");
        const std::string said = gh_last_error();
        EXPECT_EQ(said.find(text("%s = 0x", one)), 0u) << said;
        EXPECT_NE(said.find(text(" overlaps %s = 0x", other)), std::string::npos) << said;
    }
};

// Each pair of arguments of which one is written, sharing anything from all of their bytes to a few at either end.
TEST_F(OptionOverlap, OfWhatIsWrittenWithAnything) {
    for (const Call &right : both())
        for (const Pointer &one : pointers)
            for (const Pointer &other : pointers) {
                if (&one <= &other || one.of(right) == nullptr || other.of(right) == nullptr) continue;
                if (!one.written && !other.written) continue;
                const bool matrices = other.place == offsetof(Call, logits) && one.place == offsetof(Call, dlogits);
                for (int64_t shift : {-(one.bytes - 4) / 8 * 8, int64_t{0}, (other.bytes - 4) / 8 * 8}) {
                    if (matrices && shift == 0) continue;  // in place
                    Call wrong = right;
                    one.set(wrong, at(other) + shift);
                    expect_overlap(wrong, one.name, other.name);
                }
            }
}

TEST_F(OptionOverlap, OfTheWorkspace) {
    for (const Call &right : both())
        for (const Pointer &other : pointers) {
            if (other.of(right) == nullptr) continue;
            Call wrong = right;
            wrong.options.workspace = at(other) + (other.bytes - 4) / 8 * 8;
            expect_overlap(wrong, "options.workspace", other.name);
        }
}

TEST_F(OptionOverlap, OfTheSavedLse) {
    Call wrong = backward();
    wrong.row_statistics = nullptr;
    wrong.options.row_dentropy = nullptr;
    wrong.row_lse = reinterpret_cast<float *>(at(pointer("dlogits")));
    expect_overlap(wrong, "row_lse", "dlogits");
}

TEST_F(OptionOverlap, OfLogitsInPlaceWithAnOutput) {
    Call wrong = forward();
    wrong.dlogits = const_cast<void *>(wrong.logits);
    wrong.options.row_loss = reinterpret_cast<float *>(at(pointer("logits")) + matrix - 4);
    expect_overlap(wrong, "options.row_loss", "logits");
}

// What lies between the rows is theirs; what lies behind the last one is not.
TEST_F(OptionOverlap, OfWhatLiesBetweenTheRows) {
    for (const char *name : {"logits", "dlogits"}) {
        Call wrong = forward();
        wrong.options.loss = reinterpret_cast<float *>(at(pointer(name)) + vocab * 4);
        expect_overlap(wrong, "options.loss", name);
        wrong.options.loss = reinterpret_cast<float *>(at(pointer(name)) + matrix);
        expect_success(wrong);
        memory.upload(before.data());
    }
}

TEST_F(OptionOverlap, OfLogitsInPlaceWithAnotherStride) {
    for (Call wrong : both()) {
        wrong.dlogits = const_cast<void *>(wrong.logits);
        expect_success(wrong);
        memory.upload(before.data());
        wrong.options.dlogits_row_stride = stride + 1;
        expect_overlap(wrong, "dlogits", "logits");
        EXPECT_NE(std::string(gh_last_error()).find("17 apart"), std::string::npos) << gh_last_error();
        EXPECT_NE(std::string(gh_last_error()).find("16 apart"), std::string::npos) << gh_last_error();
    }
}

// logits and dlogits as the columns of one matrix: 24 wide, of which each has 12.
TEST_F(OptionOverlap, ColumnsSideBySide) {
    const Pointer &logits = pointer("logits");
    for (Call columns : both()) {
        columns.options.logits_row_stride = columns.options.dlogits_row_stride = 2 * vocab;
        for (int64_t shift : {vocab, -vocab, 3 * vocab, -3 * vocab}) {
            columns.dlogits = at(logits) + shift * 4;
            expect_success(columns);
            // The other half is still the logits.
            std::vector<unsigned char> now(memory.size());
            memory.download(now.data());
            for (int64_t row = 0; row < batch; row++) {
                const size_t begin = offset(logits) + static_cast<size_t>(row * 2 * vocab * 4);
                EXPECT_EQ(std::memcmp(&now[begin], &before[begin], vocab * 4), 0) << "row " << row;
            }
            memory.upload(before.data());
        }
        for (int64_t shift : {vocab - 1, vocab + 1, -vocab - 1, 1 - vocab, 2 * vocab, -4 * vocab, int64_t{1}}) {
            columns.dlogits = at(logits) + shift * 4;
            expect_overlap(columns, "dlogits", "logits");
        }
        columns.dlogits = at(logits) + vocab * 4;
        columns.options.dlogits_row_stride = 2 * vocab + 1;  // another width
        expect_overlap(columns, "dlogits", "logits");
        columns.options.logits_row_stride = columns.options.dlogits_row_stride = 2 * vocab - 1;  // one too narrow
        expect_overlap(columns, "dlogits", "logits");
    }
}

TEST_F(OptionOverlap, InputsMayShareMemory) {
    for (Call right : both()) {
        right.options.dloss_ptr = right.options.row_dloss = right.options.row_dentropy = right.options.class_weights;
        expect_success(right);
    }
}

// ---- Labels -------------------------------------------------------------------------------------

template <typename Label>
class OptionLabels : public OptionErrors {
protected:
    static constexpr gh_label_dtype label_dtype = sizeof(Label) == 4 ? GH_LABEL_I32 : GH_LABEL_I64;
};
using LabelTypes = ::testing::Types<int32_t, int64_t>;
TYPED_TEST_SUITE(OptionLabels, LabelTypes, );

TYPED_TEST(OptionLabels, OutOfRangeOnTheHost) {
    if (engine().is_cuda()) GTEST_SKIP() << "on a CUDA stream they are no error";
    const TypeParam lowest = std::numeric_limits<TypeParam>::min(), highest = std::numeric_limits<TypeParam>::max();
    for (TypeParam label : {TypeParam{vocab}, TypeParam{-1}, lowest, highest}) {
        this->set_labels(std::vector<TypeParam>{-100, 0, label, 13});
        for (Call wrong : this->both()) {
            wrong.options.label_dtype = this->label_dtype;
            wrong.options.n_out_of_range = nullptr;
            this->expect(wrong, GH_ERROR_LABEL_OUT_OF_RANGE,
                         text("labels[2] = %" PRId64 ": not in [0, 12) and not ignore_index (-100)",
                              static_cast<int64_t>(label)));
            wrong.options.ignore_index = label;
            this->expect(wrong, GH_ERROR_LABEL_OUT_OF_RANGE, "labels[0] = -100:");
        }
    }
}

TYPED_TEST(OptionLabels, OutOfRangeIsNoErrorIfTheyAreCounted) {
    this->set_labels(std::vector<TypeParam>{vocab, 0, -1, 5});
    Call right = this->forward();
    right.options.label_dtype = this->label_dtype;
    this->expect_success(right);
}

// ---- An empty batch -----------------------------------------------------------------------------

TEST_F(OptionErrors, AnEmptyBatchNeedsNoPointerToRows) {
    for (Call empty : both()) {
        empty.batch = 0;
        for (const Pointer &pointer : pointers)
            if (!is_output(pointer)) pointer.set(empty, nullptr);
        expect_success(empty);
        EXPECT_TRUE(unchanged());
        for (const Pointer &pointer : pointers) pointer.set(empty, nullptr);
        expect_success(empty);
        EXPECT_TRUE(unchanged());
        EXPECT_EQ(call(empty, nullptr), GH_SUCCESS) << gh_last_error();
    }
}

// No rows take no memory, wherever the pointer to them points.
TEST_F(OptionErrors, AnEmptyBatchOverlapsNothing) {
    Call empty = forward();
    empty.batch = 0;
    empty.dlogits = empty.options.loss;
    empty.options.row_loss = empty.options.loss;
    empty.options.row_lse = static_cast<float *>(empty.options.workspace) + 2;
    empty.options.dlogits_row_stride = stride + 1;
    expect_success(empty);
    EXPECT_TRUE(unchanged());
}

TEST_F(OptionErrors, AnEmptyBatchIsStillChecked) {
    for (Call wrong : both()) {
        wrong.batch = 0;
        Call softcap = wrong, reduction = wrong, row_stride = wrong, alignment = wrong;
        softcap.options.softcap = -1;
        reduction.options.reduction = 3;
        row_stride.options.logits_row_stride = 11;
        alignment.options.workspace = static_cast<char *>(wrong.options.workspace) + 4;
        expect(softcap, GH_ERROR_INVALID_VALUE, "options.softcap = -1:");
        expect(reduction, GH_ERROR_INVALID_VALUE, "options.reduction = 3:");
        expect(row_stride, GH_ERROR_INVALID_SIZE, "options.logits_row_stride = 11:");
        expect(alignment, GH_ERROR_MISALIGNED_POINTER, "options.workspace = ");
    }
    Call two = backward(), outputs = backward();
    two.batch = outputs.batch = 0;
    pointer("row_lse").set(two, at(pointer("row_lse")));
    pointer("options.loss").set(outputs, at(pointer("options.loss")));
    expect(two, GH_ERROR_INVALID_VALUE, "only one of them may be given");
    expect(outputs, GH_ERROR_INVALID_VALUE, "options.loss = ");
}

// ---- The struct's size --------------------------------------------------------------------------

TEST_F(OptionErrors, SizesThatNoStructHas) {
    const size_t right = sizeof(gh_cross_entropy_options);
    for (Call wrong : both())
        for (size_t size : {size_t{0}, size_t{1}, size_t{4}, size_t{7}, size_t{12}, right - 1, right - 4, right + 1,
                            right + 4, size_t{4104}, size_t{1} << 40, SIZE_MAX - 7, SIZE_MAX}) {
            wrong.options.size = size;
            expect(wrong, GH_ERROR_INVALID_SIZE, text("options.size = %zu: not the size", size));
        }
}

// A caller who was compiled with a later header, whose struct has two more fields.
TEST_F(OptionErrors, FieldsThatThisLibraryDoesNotKnow) {
    struct Later {
        gh_cross_entropy_options known;
        unsigned char more[16];
    };
    for (const Call &right : both()) {
        Later later{right.options, {}};
        later.known.size = sizeof later;
        EXPECT_EQ(call(right, &later.known), GH_SUCCESS) << gh_last_error();
        engine().finish();
        memory.upload(before.data());
        for (size_t i = 0; i < sizeof later.more; i++) {
            later.more[i] = 1;
            expect(right, &later.known, GH_ERROR_INVALID_VALUE,
                   text("options.size = %zu: byte %zu is not 0", sizeof later, sizeof later.known + i));
            later.more[i] = 0;
        }
    }
}

// A caller who was compiled with an earlier header, whose struct ended earlier: what it lacks is at its default, and
// what lies behind it is not read.
TEST_F(OptionErrors, EveryEarlierSize) {
    for (const Call &right : both())
        for (size_t size = 8; size < sizeof(gh_cross_entropy_options); size += 8) {
            Call complete = right;
            const gh_cross_entropy_options defaults = GH_CROSS_ENTROPY_OPTIONS_INIT;
            std::memcpy(reinterpret_cast<char *>(&complete.options) + size,
                        reinterpret_cast<const char *>(&defaults) + size, sizeof defaults - size);
            complete.options.size = sizeof defaults;
            const gh_status expected = call(complete);  // a mean without its workspace is an error on a CUDA stream
            engine().finish();
            std::vector<unsigned char> outcome(memory.size()), earlier_outcome(memory.size());
            memory.download(outcome.data());
            memory.upload(before.data());

            std::vector<size_t> earlier(size / sizeof(size_t));  // exactly as long, for a sanitizer to see
            std::memcpy(earlier.data(), &right.options, size);
            earlier[0] = size;
            const void *options = earlier.data();
            EXPECT_EQ(call(right, static_cast<const gh_cross_entropy_options *>(options)), expected)
                << size << ": " << gh_last_error();
            engine().finish();
            memory.download(earlier_outcome.data());
            EXPECT_TRUE(earlier_outcome == outcome) << size;
            memory.upload(before.data());
        }
}

}  // namespace
}  // namespace test
