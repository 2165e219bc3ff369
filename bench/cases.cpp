#include "cases.h"

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

void parse_option(const std::string &option, Case &c) {
    const std::vector<std::string> parts = split(option, '=');
    if (parts.size() == 2 && parts[0] == "ignored")
        c.ignored = std::stod(parts[1]);
    else if (parts.size() == 2 && parts[0] == "z")
        c.z_loss_multiplier = std::stof(parts[1]);
    else
        throw std::runtime_error("unknown option " + option);
}

void parse_line(const std::string &line, std::vector<Case> &cases) {
    std::istringstream words(line);
    std::string group, dtypes, batches, vocabs;
    if (!(words >> group >> dtypes >> batches >> vocabs)) throw std::runtime_error("fewer than four columns");
    Case c{group, GH_DTYPE_F32, 0, 0};
    for (std::string option; words >> option;) parse_option(option, c);
    for (const std::string &dtype : split(dtypes, ','))
        for (const std::string &batch : split(batches, ','))
            for (const std::string &vocab : split(vocabs, ',')) {
                c.dtype = parse_dtype(dtype);
                c.batch = std::stoll(batch);
                c.vocab = std::stoll(vocab);
                cases.push_back(c);
            }
}

}  // namespace

std::string Case::name() const {
    const char *const dtype_name = dtype == GH_DTYPE_F32 ? "f32" : dtype == GH_DTYPE_F16 ? "f16" : "bf16";
    return group + "/" + dtype_name + "/" + std::to_string(batch) + "x" + std::to_string(vocab);
}

std::vector<Case> parse_cases(const std::string &text) {
    std::vector<Case> cases;
    int number = 0;
    for (const std::string &line : split(text, '\n')) {
        number++;
        if (line.find_first_not_of(" \t\r") == std::string::npos || line[0] == '#') continue;
        try {
            parse_line(line, cases);
        } catch (const std::exception &e) {
            throw std::runtime_error("cases, line " + std::to_string(number) + ": " + e.what());
        }
    }
    return cases;
}

std::vector<Case> all_cases() {
    return parse_cases(cases_text);
}

}  // namespace bench
