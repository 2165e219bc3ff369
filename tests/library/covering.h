// A covering array of strength 2: cases, each with one value of every factor, in which any two values of any two
// factors meet, except those that exclude each other.
#pragma once

#include <vector>

#include "problem.h"

namespace test {

using Case = std::vector<int>;  // by factor

class Covering {
public:
    explicit Covering(std::vector<int> levels);  // how many values each factor has

    // These two never meet.
    void exclude(int factor, int value, int other_factor, int other_value);

    std::vector<Case> cases(Random &random) const;

private:
    bool excluded(int factor, int value, int other_factor, int other_value) const {
        return excluded_[pair(factor, value, other_factor, other_value)];
    }
    size_t pair(int factor, int value, int other_factor, int other_value) const {
        return static_cast<size_t>(first_[static_cast<size_t>(factor)] + value) * static_cast<size_t>(values_) +
               static_cast<size_t>(first_[static_cast<size_t>(other_factor)] + other_value);
    }
    int newly_covered(const std::vector<bool> &covered, const Case &partial, int factor, int value) const;

    std::vector<int> levels_;
    std::vector<int> first_;  // a number for every value of every factor: that of a factor's value 0
    int values_ = 0;
    std::vector<bool> excluded_;  // by pair()
};

}  // namespace test
