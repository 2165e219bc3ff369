// The options to measure, as bench/options.txt lists them.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cases.h"

namespace bench {

struct OptionCase {
    Case shape;  // its group is the option's name
    // All that are not pointers have their values; the pointers are NULL.
    gh_cross_entropy_options values = GH_CROSS_ENTROPY_OPTIONS_INIT;
    std::set<std::string> pointers;  // the fields that need memory
    bool on_host = false;            // for the CPU engine
    bool out_of_place = false;
    bool forward_only = false;
    int64_t row_padding = 0;  // elements
    std::string backward;     // "row_statistics" or "row_lse", which it starts from; "" for gh_cross_entropy
    float scale = 0;          // what gh_scale_dlogits, in the place of all others, multiplies by; 0 for no such call

    bool has(const char *pointer) const { return pointers.count(pointer) > 0; }
    bool has_outputs() const { return backward.empty() && scale == 0; }
    std::string name() const { return (on_host ? "host_options/" : "options/") + shape.name(); }

    // The options of a call, with the memory that `find` gives for a field's name.
    gh_cross_entropy_options options(const std::function<void *(const char *)> &find) const;

    // What must be allocated for calls of `rows` rows in all: the pointers but workspace and the summed outputs, and
    // what a backward pass starts from.
    struct Array {
        std::string name;
        size_t bytes;
        bool is_input;  // of floats
    };
    std::vector<Array> arrays(int64_t rows) const;
};

// Bytes for each row that a pointer of gh_cross_entropy_options leads to; 0 if it is not a pointer to rows.
size_t bytes_per_row(const std::string &pointer);

// Throws std::runtime_error, naming the line, for text that is not in the file's format.
std::vector<OptionCase> parse_option_cases(const std::string &text);

// The cases of bench/options.txt, which is compiled in.
std::vector<OptionCase> all_option_cases();

}  // namespace bench
