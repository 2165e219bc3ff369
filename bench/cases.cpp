#include "cases.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "cases_text.h"

namespace bench {
namespace {

std::vector<std::string> split(const std::string &text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

gh_dtype parse_dtype(const std::string &text) {
    if (text == "f32") return GH_DTYPE_F32;
    if (text == "f16") return GH_DTYPE_F16;
    if (text == "bf16") return GH_DTYPE_BF16;
    throw std::runtime_error("unknown dtype " + text);
}

Setting parse_setting(const std::string &word) {
    const size_t equals = std::min(word.find('='), word.size());
    return {word.substr(0, equals), word.substr(std::min(equals + 1, word.size()))};
}

std::vector<Case> parse_shapes(std::istringstream &words) {
    std::string group, dtypes, batches, vocabs;
    if (!(words >> group >> dtypes >> batches >> vocabs)) throw std::runtime_error("fewer than four columns");
    std::vector<Case> shapes;
    for (const std::string &dtype : split(dtypes, ','))
        for (const std::string &batch : split(batches, ','))
            for (const std::string &vocab : split(vocabs, ','))
                shapes.push_back({group, parse_dtype(dtype), std::stoll(batch), std::stoll(vocab)});
    return shapes;
}

void apply(const Setting &setting, Case &c) {
    if (setting.key == "ignored")
        c.ignored = std::stod(setting.value);
    else if (setting.key == "z")
        c.z_loss_multiplier = std::stof(setting.value);
    else
        throw std::runtime_error("unknown option " + setting.key);
}

}  // namespace

std::string Case::name() const {
    const char *const dtype_name = dtype == GH_DTYPE_F32 ? "f32" : dtype == GH_DTYPE_F16 ? "f16" : "bf16";
    return group + "/" + dtype_name + "/" + std::to_string(batch) + "x" + std::to_string(vocab);
}

void parse_lines(const std::string &text,
                 const std::function<void(std::vector<Case>, const std::vector<Setting> &)> &take) {
    int number = 0;
    for (const std::string &line : split(text, '\n')) {
        number++;
        if (line.find_first_not_of(" \t\r") == std::string::npos || line[0] == '#') continue;
        try {
            std::istringstream words(line);
            const std::vector<Case> shapes = parse_shapes(words);
            std::vector<Setting> settings;
            for (std::string word; words >> word;) settings.push_back(parse_setting(word));
            take(shapes, settings);
        } catch (const std::exception &e) {
            throw std::runtime_error("cases, line " + std::to_string(number) + ": " + e.what());
        }
    }
}

std::vector<Case> parse_cases(const std::string &text) {
    std::vector<Case> cases;
    parse_lines(text, [&](std::vector<Case> shapes, const std::vector<Setting> &settings) {
        for (Case &shape : shapes) {
            for (const Setting &setting : settings) apply(setting, shape);
            cases.push_back(shape);
        }
    });
    return cases;
}

std::vector<Case> all_cases() {
    return parse_cases(cases_text);
}

}  // namespace bench
