/*
 * Greyhound's calls as XLA custom calls.
 *
 * A custom call names what it passes. Its operands are logits, labels, and those that the attribute `operands` lists;
 * its results are those that `results` lists. A name is that of a field of gh_cross_entropy_options, or "dlogits". So
 * Python decides what a call computes, and nothing here changes for another combination.
 *
 * vmap adds dimensions in front of every operand and result. Each of their elements is a call of its own on its part
 * of every buffer, except where the parts can be taken as more rows of one call.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <greyhound/greyhound.h>
#include <xla/ffi/api/ffi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ffi = xla::ffi;

// The attributes of a custom call.
struct Attributes {
    std::string_view operands;
    std::string_view results;
    int64_t ignore_index;
    gh_reduction reduction;
    float label_smoothing;
    float z_loss_multiplier;
    float logit_scale;
    float softcap;
};

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(Attributes, ffi::StructMember<std::string_view>("operands"),
                                      ffi::StructMember<std::string_view>("results"),
                                      ffi::StructMember<int64_t>("ignore_index"),
                                      ffi::StructMember<gh_reduction>("reduction"),
                                      ffi::StructMember<float>("label_smoothing"),
                                      ffi::StructMember<float>("z_loss_multiplier"),
                                      ffi::StructMember<float>("logit_scale"), ffi::StructMember<float>("softcap"));

namespace {

// ---- The library -------------------------------------------------------------------------------

// Its functions, where the Python package `greyhound` found them. Not linked: one process, one libgreyhound.
struct Library {
    decltype(&::gh_cross_entropy) cross_entropy;
    decltype(&::gh_cross_entropy_backward) cross_entropy_backward;
    decltype(&::gh_cross_entropy_workspace_size) workspace_size;
    decltype(&::gh_last_error) last_error;
} library;

ffi::ErrorCode code_of(gh_status status) {
    switch (status) {
        case GH_ERROR_NO_CUDA:
        case GH_ERROR_NO_DEVICE:
        case GH_ERROR_UNSUPPORTED_DEVICE: return ffi::ErrorCode::kFailedPrecondition;
        case GH_ERROR_CUDA: return ffi::ErrorCode::kInternal;
        default: return ffi::ErrorCode::kInvalidArgument;
    }
}

ffi::Error failed(gh_status status) {
    return ffi::Error(code_of(status), std::string("greyhound: ") + library.last_error());
}

ffi::Error mistake(std::string text) {
    return ffi::Error(ffi::ErrorCode::kInternal, "greyhound_jax: " + text);
}

// ---- One custom call ---------------------------------------------------------------------------

struct Call {
    const void *logits;
    const void *labels;
    void *dlogits;
    gh_cross_entropy_options options;
};

// What a name stands for: a pointer in Call.
struct Field {
    std::string_view name;
    size_t offset;
    bool per_row;  // has a part for each row, rather than one for all
};

#define OPTION(name, per_row) \
    { #name, offsetof(Call, options) + offsetof(gh_cross_entropy_options, name), per_row }
constexpr Field fields[] = {
    {"dlogits", offsetof(Call, dlogits), true},
    OPTION(class_weights, false),
    OPTION(dloss_ptr, false),
    OPTION(row_dloss, true),
    OPTION(row_dentropy, true),
    OPTION(row_loss, true),
    OPTION(row_lse, true),
    OPTION(row_target_log_prob, true),
    OPTION(row_entropy, true),
    OPTION(row_argmax, true),
    OPTION(row_statistics, true),
    OPTION(loss, false),
    OPTION(z_loss, false),
    OPTION(n_valid, false),
    OPTION(n_correct, false),
    OPTION(n_out_of_range, false),
};
#undef OPTION
constexpr Field logits_field = {"logits", offsetof(Call, logits), true};
constexpr Field labels_field = {"labels", offsetof(Call, labels), true};

// A buffer, and the pointer that leads to it.
struct Part {
    Field field;
    char *data;
    size_t bytes;
};

bool add(std::vector<Part> &parts, std::string_view name, const ffi::AnyBuffer &buffer) {
    for (const Field &field : fields) {
        if (field.name != name) continue;
        parts.push_back({field, static_cast<char *>(buffer.untyped_data()), buffer.size_bytes()});
        return true;
    }
    return false;
}

// Takes the next of the names that stand in `names`, separated by spaces.
std::string_view next_of(std::string_view &names) {
    const size_t end = names.find(' ');
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(end == std::string_view::npos ? names.size() : end + 1);
    return name;
}

bool dtype_of(const ffi::AnyBuffer &logits, gh_dtype &dtype) {
    switch (logits.element_type()) {
        case ffi::DataType::F32: dtype = GH_DTYPE_F32; return true;
        case ffi::DataType::F16: dtype = GH_DTYPE_F16; return true;
        case ffi::DataType::BF16: dtype = GH_DTYPE_BF16; return true;
        default: return false;
    }
}

enum class Pass { forward, backward };

ffi::Error run(Pass pass, gh_stream stream, void *workspace, size_t workspace_size, const ffi::AnyBuffer &logits,
               const ffi::AnyBuffer &labels, const ffi::RemainingArgs &operands, const ffi::RemainingRets &results,
               const Attributes &attributes) {
    Call call{};
    call.options = GH_CROSS_ENTROPY_OPTIONS_INIT;
    call.options.sums = GH_SUMS_OVERWRITE;
    call.options.label_dtype = labels.element_type() == ffi::DataType::S64 ? GH_LABEL_I64 : GH_LABEL_I32;
    call.options.ignore_index = attributes.ignore_index;
    call.options.reduction = attributes.reduction;
    call.options.label_smoothing = attributes.label_smoothing;
    call.options.z_loss_multiplier = attributes.z_loss_multiplier;
    call.options.logit_scale = attributes.logit_scale;
    call.options.softcap = attributes.softcap;
    call.options.workspace = workspace;
    call.options.workspace_size = workspace_size;

    std::vector<Part> parts = {
        {logits_field, static_cast<char *>(logits.untyped_data()), logits.size_bytes()},
        {labels_field, static_cast<char *>(labels.untyped_data()), labels.size_bytes()},
    };
    std::string_view names = attributes.operands;
    for (size_t i = 0; i < operands.size(); ++i) {
        const auto operand = operands.get<ffi::AnyBuffer>(i);
        if (!operand || !add(parts, next_of(names), *operand)) return mistake("an operand without a name");
    }
    names = attributes.results;
    bool anything_to_write = false;
    for (size_t i = 0; i < results.size(); ++i) {
        auto result = results.get<ffi::AnyBuffer>(i);
        if (!result || !add(parts, next_of(names), **result)) return mistake("a result without a name");
        anything_to_write |= (*result)->size_bytes() > 0;
    }
    // Buffers without elements may have no address, and a call without outputs would be an error.
    if (!anything_to_write) return ffi::Error::Success();

    gh_dtype dtype;
    const auto dimensions = logits.dimensions();
    if (!dtype_of(logits, dtype) || dimensions.size() < 2) return mistake("logits that are no rows of numbers");
    const int64_t vocab = dimensions[dimensions.size() - 1];
    int64_t batch = dimensions[dimensions.size() - 2];
    int64_t calls = 1;
    for (size_t i = 0; i + 2 < dimensions.size(); ++i) calls *= dimensions[i];

    bool per_row = attributes.reduction == GH_REDUCTION_NONE;
    for (const Part &part : parts) per_row &= part.field.per_row;
    if (per_row) batch *= calls, calls = 1;

    for (int64_t i = 0; i < calls; ++i) {
        for (const Part &part : parts) {
            char *data = part.data + static_cast<size_t>(i) * (part.bytes / static_cast<size_t>(calls));
            std::memcpy(reinterpret_cast<char *>(&call) + part.field.offset, &data, sizeof data);
        }
        gh_status status;
        if (pass == Pass::forward) {
            status = library.cross_entropy(call.logits, call.dlogits, dtype, call.labels, batch, vocab, &call.options,
                                           stream);
        } else {
            const void *row_statistics = call.options.row_statistics;
            call.options.row_statistics = nullptr;
            status = library.cross_entropy_backward(call.logits, call.dlogits, dtype, call.labels, batch, vocab,
                                                    row_statistics, nullptr, &call.options, stream);
        }
        if (status != GH_SUCCESS) return failed(status);
    }
    return ffi::Error::Success();
}

// ---- Handlers ----------------------------------------------------------------------------------

template <Pass pass>
ffi::Error on_host(ffi::AnyBuffer logits, ffi::AnyBuffer labels, ffi::RemainingArgs operands,
                   ffi::RemainingRets results, Attributes attributes) {
    return run(pass, GH_STREAM_HOST, nullptr, 0, logits, labels, operands, results, attributes);
}

// The workspace is XLA's to take back when the handler returns, and is reused in the stream's order only. It would not
// outlive the capture of a CUDA graph: hence no handler has the trait that would let XLA capture it.
template <Pass pass>
ffi::Error on_stream(void *platform_stream, ffi::ScratchAllocator scratch, ffi::AnyBuffer logits, ffi::AnyBuffer labels,
                     ffi::RemainingArgs operands, ffi::RemainingRets results, Attributes attributes) {
    const auto stream = static_cast<gh_stream>(platform_stream);
    size_t size = 0;
    if (const gh_status status = library.workspace_size(stream, &size)) return failed(status);
    const auto workspace = scratch.Allocate(size, 8);
    if (!workspace) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "greyhound: no memory for the workspace");
    return run(pass, stream, *workspace, size, logits, labels, operands, results, attributes);
}

template <typename Binding>
auto with_arguments(Binding binding) {
    return std::move(binding)
        .template Arg<ffi::AnyBuffer>()
        .template Arg<ffi::AnyBuffer>()
        .RemainingArgs()
        .RemainingRets()
        .template Attrs<Attributes>();
}

auto host_binding() {
    return with_arguments(ffi::Ffi::Bind());
}

auto stream_binding() {
    return with_arguments(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void *>>().Ctx<ffi::ScratchAllocator>());
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(greyhound_jax_cross_entropy_cpu, on_host<Pass::forward>, host_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(greyhound_jax_cross_entropy_cuda, on_stream<Pass::forward>, stream_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(greyhound_jax_cross_entropy_backward_cpu, on_host<Pass::backward>, host_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(greyhound_jax_cross_entropy_backward_cuda, on_stream<Pass::backward>, stream_binding());

// Before any handler runs.
extern "C" void greyhound_jax_use_library(decltype(&gh_cross_entropy) cross_entropy,
                                          decltype(&gh_cross_entropy_backward) cross_entropy_backward,
                                          decltype(&gh_cross_entropy_workspace_size) workspace_size,
                                          decltype(&gh_last_error) last_error) {
    library = {cross_entropy, cross_entropy_backward, workspace_size, last_error};
}
