#include "option_cases.h"

#include <map>
#include <stdexcept>

#include "cases_text.h"

namespace bench {
namespace {

using Options = gh_cross_entropy_options;

const std::map<std::string, float Options::*> &numbers() {
    static const std::map<std::string, float Options::*> fields = {{"dloss", &Options::dloss},
                                                                   {"label_smoothing", &Options::label_smoothing},
                                                                   {"logit_scale", &Options::logit_scale},
                                                                   {"softcap", &Options::softcap},
                                                                   {"z_loss_multiplier", &Options::z_loss_multiplier}};
    return fields;
}

const std::map<std::string, size_t> &row_pointers() {
    static const std::map<std::string, size_t> fields = {{"row_dloss", sizeof(float)},
                                                         {"row_dentropy", sizeof(float)},
                                                         {"row_loss", sizeof(float)},
                                                         {"row_lse", sizeof(float)},
                                                         {"row_target_log_prob", sizeof(float)},
                                                         {"row_entropy", sizeof(float)},
                                                         {"row_argmax", sizeof(int64_t)},
                                                         {"row_statistics", GH_ROW_STATISTICS_BYTES}};
    return fields;
}

bool is_pointer(const std::string &key) {
    static const std::set<std::string> others = {"class_weights",  "dloss_ptr", "n_correct",
                                                 "n_out_of_range", "workspace", "z_loss"};
    return bytes_per_row(key) > 0 || others.count(key) > 0;
}

void apply(const Setting &setting, OptionCase &c) {
    const auto &[key, value] = setting;
    const auto number = numbers().find(key);
    if (number != numbers().end() && !value.empty())
        c.values.*number->second = std::stof(value);
    else if (key == "reduction" && value == "mean")
        c.values.reduction = GH_REDUCTION_MEAN;
    else if (key == "label_dtype" && value == "i32")
        c.values.label_dtype = GH_LABEL_I32;
    else if (key == "sums" && value == "overwrite")
        c.values.sums = GH_SUMS_OVERWRITE;
    else if (key == "row_padding")
        c.row_padding = std::stoll(value);
    else if (key == "backward" && (value == "row_statistics" || value == "row_lse"))
        c.backward = value;
    else if (key == "scale" && !value.empty())
        c.scale = std::stof(value);
    else if (key == "on_host" && value.empty())
        c.on_host = true;
    else if (key == "out_of_place" && value.empty())
        c.out_of_place = true;
    else if (key == "forward_only" && value.empty())
        c.forward_only = true;
    else if (is_pointer(key) && value.empty())
        c.pointers.insert(key);
    else
        throw std::runtime_error("unknown setting " + key + (value.empty() ? "" : "=" + value));
}

}  // namespace

gh_cross_entropy_options OptionCase::options(const std::function<void *(const char *)> &find) const {
    const auto wanted = [&](const char *name) { return has(name) ? find(name) : nullptr; };
    const auto floats = [&](const char *name) { return static_cast<float *>(wanted(name)); };
    gh_cross_entropy_options options = values;
    options.class_weights = floats("class_weights");
    options.dloss_ptr = floats("dloss_ptr");
    options.row_dloss = floats("row_dloss");
    options.row_dentropy = floats("row_dentropy");
    options.row_loss = floats("row_loss");
    options.row_lse = floats("row_lse");
    options.row_target_log_prob = floats("row_target_log_prob");
    options.row_entropy = floats("row_entropy");
    options.row_argmax = static_cast<int64_t *>(wanted("row_argmax"));
    options.row_statistics = wanted("row_statistics");
    options.z_loss = floats("z_loss");
    options.n_correct = floats("n_correct");
    options.n_out_of_range = floats("n_out_of_range");
    options.workspace = wanted("workspace");
    if (has_outputs()) {
        options.loss = static_cast<float *>(find("loss"));
        options.n_valid = static_cast<float *>(find("n_valid"));
    }
    return options;
}

std::vector<OptionCase::Array> OptionCase::arrays(int64_t rows) const {
    std::vector<Array> arrays;
    for (const std::string &name : pointers) {
        if (name == "class_weights")
            arrays.push_back({name, static_cast<size_t>(shape.vocab) * sizeof(float), true});
        else if (name == "dloss_ptr")
            arrays.push_back({name, sizeof(float), true});
        else if (bytes_per_row(name) > 0)
            arrays.push_back(
                {name, static_cast<size_t>(rows) * bytes_per_row(name), name == "row_dloss" || name == "row_dentropy"});
    }
    if (!backward.empty()) arrays.push_back({backward, static_cast<size_t>(rows) * bytes_per_row(backward), false});
    return arrays;
}

size_t bytes_per_row(const std::string &pointer) {
    const auto found = row_pointers().find(pointer);
    return found == row_pointers().end() ? 0 : found->second;
}

std::vector<OptionCase> parse_option_cases(const std::string &text) {
    std::vector<OptionCase> cases;
    parse_lines(text, [&](std::vector<Case> shapes, const std::vector<Setting> &settings) {
        if (settings.empty()) throw std::runtime_error("the column \"at most\" is missing");
        for (const Case &shape : shapes) {
            OptionCase c{};
            c.shape = shape;
            // The first is the target, which matters to the report only.
            for (size_t i = 1; i < settings.size(); i++) apply(settings[i], c);
            if (c.row_padding > 0)
                c.values.logits_row_stride = c.values.dlogits_row_stride = shape.vocab + c.row_padding;
            cases.push_back(c);
        }
    });
    return cases;
}

std::vector<OptionCase> all_option_cases() {
    return parse_option_cases(options_text);
}

}  // namespace bench
