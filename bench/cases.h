// The shapes to measure, as bench/cases.txt lists them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "greyhound/greyhound.h"

namespace bench {

struct Case {
    std::string group;
    gh_dtype dtype;
    int64_t batch, vocab;
    double ignored = 0;  // fraction of rows whose label is ignore_index
    float z_loss_multiplier = 0;

    bool on_host() const { return group == "host"; }
    int64_t elements() const { return batch * vocab; }
    size_t bytes() const { return static_cast<size_t>(elements()) * (dtype == GH_DTYPE_F32 ? 4 : 2); }

    // "grid/bf16/8192x128256", the name in results; bench/peers/cases.py builds the same.
    std::string name() const;
};

// A word after a line's shapes: "key=value", or "key" with an empty value.
struct Setting {
    std::string key, value;
};

// Calls `take` with every line's shapes and the words after them. Throws std::runtime_error, naming the line, for text
// that is not in the format of bench/cases.txt, and for what `take` throws.
void parse_lines(const std::string &text,
                 const std::function<void(std::vector<Case>, const std::vector<Setting> &)> &take);

std::vector<Case> parse_cases(const std::string &text);

// The cases of bench/cases.txt, which is compiled in.
std::vector<Case> all_cases();

}  // namespace bench
