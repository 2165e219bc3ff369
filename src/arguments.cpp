#include "arguments.h"

namespace gh {
namespace {

bool is_in_place(const CrossEntropy &call) {
    return call.dlogits == call.logits && call.dlogits_row_stride == call.logits_row_stride;
}

// From the first row's first element to the last row's last one.
uint64_t matrix_bytes(int64_t batch, int64_t vocab, int64_t row_stride, gh_dtype dtype) {
    if (batch == 0) return 0;
    return (static_cast<uint64_t>(batch - 1) * static_cast<uint64_t>(row_stride) + static_cast<uint64_t>(vocab)) *
           element_size(dtype);
}

}  // namespace

Arguments::Arguments(const CrossEntropy &call) {
    const auto batch = static_cast<uint64_t>(call.batch);
    const size_t element = element_size(call.dtype);
    const uint64_t vocab = batch == 0 ? 0 : static_cast<uint64_t>(call.vocab);  // without rows, no column is touched
    const uint64_t logits_bytes = matrix_bytes(call.batch, call.vocab, call.logits_row_stride, call.dtype);
    if (is_in_place(call)) {
        add("logits", call.logits, logits_bytes, element, Role::gradient);
    } else {
        add("logits", call.logits, logits_bytes, element, Role::logits);
        add("dlogits", call.dlogits, matrix_bytes(call.batch, call.vocab, call.dlogits_row_stride, call.dtype), element,
            Role::gradient);
    }
    const size_t label = label_size(call.label_dtype);
    add("labels", call.labels, batch * label, label, Role::input);

    const auto add_floats = [&](const char *name, const void *pointer, uint64_t count, Role role) {
        add(name, pointer, count * sizeof(float), alignof(float), role);
    };
    if (call.losses_apart) {  // the short call's names
        add_floats("ce_sum", call.loss, 1, Role::output);
        add_floats("z_sum", call.z_loss, 1, Role::output);
        add_floats("n_valid", call.n_valid, 1, Role::output);
        return;
    }
    add("row_statistics", call.saved_statistics, batch * GH_ROW_STATISTICS_BYTES, 8, Role::input);
    add_floats("row_lse", call.saved_lse, batch, Role::input);

    add_floats("options.class_weights", call.class_weights, vocab, Role::input);
    add_floats("options.dloss_ptr", call.dloss_ptr, 1, Role::input);
    add_floats("options.row_dloss", call.row_dloss, batch, Role::input);
    add_floats("options.row_dentropy", call.row_dentropy, batch, Role::input);

    add_floats("options.row_loss", call.row_loss, batch, Role::output);
    add_floats("options.row_lse", call.row_lse, batch, Role::output);
    add_floats("options.row_target_log_prob", call.row_target_log_prob, batch, Role::output);
    add_floats("options.row_entropy", call.row_entropy, batch, Role::output);
    add("options.row_argmax", call.row_argmax, batch * sizeof(int64_t), alignof(int64_t), Role::output);
    add("options.row_statistics", call.row_statistics, batch * GH_ROW_STATISTICS_BYTES, 8, Role::output);

    add_floats("options.loss", call.loss, 1, Role::output);
    add_floats("options.z_loss", call.z_loss, 1, Role::output);
    add_floats("options.n_valid", call.n_valid, 1, Role::output);
    add_floats("options.n_correct", call.n_correct, 1, Role::output);
    add_floats("options.n_out_of_range", call.n_out_of_range, 1, Role::output);

    add("options.workspace", call.workspace, call.workspace_size, 8, Role::workspace);
}

Arguments::Arguments(const ScaleDlogits &call) {
    add("dlogits", call.dlogits, matrix_bytes(call.batch, call.vocab, call.dlogits_row_stride, call.dtype),
        element_size(call.dtype), Role::gradient);
    add("dloss_ptr", call.dloss_ptr, sizeof(float), alignof(float), Role::input);
}

const Argument *Arguments::find(Role role) const {
    for (const Argument &argument : *this)
        if (argument.role == role) return &argument;
    return nullptr;
}

void Arguments::add(const char *name, const void *pointer, uint64_t bytes, size_t alignment, Role role) {
    if (pointer != nullptr) arguments_[count_++] = {name, pointer, bytes, alignment, role};
}

}  // namespace gh
