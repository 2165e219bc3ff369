// Compares an engine's outcome of a call with options with the oracle.
#pragma once

#include "option_oracle.h"
#include "option_problem.h"

namespace test {

// Fails the test if anything differs from the contract by more than fp32 arithmetic explains.
void check(const OptionProblem &problem, const OptionOutcome &outcome, int partial_sums = 256);

// run() and check(), on the program's engine.
OptionOutcome run_and_check(const OptionProblem &problem);

// Of the gradient and of every output.
void expect_same_bits(const OptionOutcome &a, const OptionOutcome &b, const OptionProblem &problem);

// The gradient alone, against rows that the oracle has given.
void check_gradient(const OptionProblem &problem, const OptionRow &expected, int64_t row,
                    const std::vector<unsigned char> &dlogits);

double gradient(const OptionProblem &problem, const OptionOutcome &outcome, int64_t row, int64_t column);

}  // namespace test
