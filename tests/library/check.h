// Compares an engine's outcome with the oracle.
#pragma once

#include "oracle.h"
#include "problem.h"

namespace test {

struct Rounding {
    int64_t elements = 0;           // gradients of rows that count
    int64_t correctly_rounded = 0;  // of those, equal to the exact value rounded once
};

// Fails the test if anything differs from the contract by more than fp32 arithmetic explains. `partial_sums` is what
// oracle.h calls P.
Rounding check(const Problem &problem, const Outcome &outcome, int partial_sums = 256);

// run() and check(), on the program's engine.
Rounding run_and_check(const Problem &problem);

// The gradient of one row alone. Returns false, and fails the test, at the first wrong element.
bool check_gradient(const Problem &problem, const Row &expected, int64_t row, const std::vector<unsigned char> &dlogits,
                    int64_t first_element, Rounding *rounding = nullptr);

}  // namespace test
