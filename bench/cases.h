// The shapes to measure, as bench/cases.txt lists them.
#pragma once

#include <cstdint>
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

// Throws std::runtime_error, naming the line, for text that is not in the file's format.
std::vector<Case> parse_cases(const std::string &text);

// The cases of bench/cases.txt, which is compiled in.
std::vector<Case> all_cases();

}  // namespace bench
