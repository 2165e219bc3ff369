#include "covering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace test {
namespace {

constexpr int open = -1;  // a factor without a value yet

}  // namespace

Covering::Covering(std::vector<int> levels) : levels_(std::move(levels)) {
    for (int count : levels_) {
        first_.push_back(values_);
        values_ += count;
    }
    excluded_.resize(static_cast<size_t>(values_) * static_cast<size_t>(values_));
}

void Covering::exclude(int factor, int value, int other_factor, int other_value) {
    excluded_[pair(factor, value, other_factor, other_value)] = true;
    excluded_[pair(other_factor, other_value, factor, value)] = true;
}

// How many pairs this value would be the first to bring; -1 if it must not join what is there.
int Covering::newly_covered(const std::vector<bool> &covered, const Case &partial, int factor, int value) const {
    int count = 0;
    for (size_t other = 0; other < partial.size(); other++) {
        if (partial[other] == open) continue;
        if (excluded(factor, value, static_cast<int>(other), partial[other])) return -1;
        if (!covered[pair(factor, value, static_cast<int>(other), partial[other])]) count++;
    }
    return count;
}

// Every case starts from one pair that is not covered yet. The other factors follow in random order, each with the
// value that covers most.
std::vector<Case> Covering::cases(Random &random) const {
    const int factors = static_cast<int>(levels_.size());
    struct Seed {
        int factor, value, other_factor, other_value;
    };
    std::vector<Seed> seeds;
    for (int a = 0; a < factors; a++)
        for (int b = a + 1; b < factors; b++)
            for (int i = 0; i < levels_[static_cast<size_t>(a)]; i++)
                for (int j = 0; j < levels_[static_cast<size_t>(b)]; j++)
                    if (!excluded(a, i, b, j)) seeds.push_back({a, i, b, j});
    std::shuffle(seeds.begin(), seeds.end(), random);

    std::vector<bool> covered(excluded_.size());
    std::vector<int> order(static_cast<size_t>(factors));
    std::iota(order.begin(), order.end(), 0);
    std::vector<Case> result;
    for (const Seed &seed : seeds) {
        for (int attempt = 0; !covered[pair(seed.factor, seed.value, seed.other_factor, seed.other_value)]; attempt++) {
            if (attempt == 100) {
                ADD_FAILURE() << "no case has value " << seed.value << " of factor " << seed.factor << " and value "
                              << seed.other_value << " of factor " << seed.other_factor;
                return result;
            }
            Case chosen(static_cast<size_t>(factors), open);
            chosen[static_cast<size_t>(seed.factor)] = seed.value;
            chosen[static_cast<size_t>(seed.other_factor)] = seed.other_value;
            std::shuffle(order.begin(), order.end(), random);
            bool complete = true;
            for (int factor : order) {
                int &value = chosen[static_cast<size_t>(factor)];
                if (value != open) continue;
                // Among equally good values, any: starting from a random one is random enough.
                const int levels = levels_[static_cast<size_t>(factor)];
                const int start = static_cast<int>(uniform(random, 0, levels - 1));
                int best = open, best_count = -1;
                for (int k = 0; k < levels; k++) {
                    const int candidate = (start + k) % levels;
                    const int count = newly_covered(covered, chosen, factor, candidate);
                    if (count > best_count) best = candidate, best_count = count;
                }
                complete = complete && best != open;
                value = best;
                if (!complete) break;
            }
            if (!complete) continue;  // exclusions left a factor without a value
            for (int a = 0; a < factors; a++)
                for (int b = 0; b < factors; b++)
                    covered[pair(a, chosen[static_cast<size_t>(a)], b, chosen[static_cast<size_t>(b)])] = true;
            result.push_back(chosen);
        }
    }
    return result;
}

}  // namespace test
