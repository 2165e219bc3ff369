// A call of gh_scale_dlogits, and what must come of it, bit for bit.
#pragma once

#include <string>
#include <vector>

#include "engine.h"
#include "problem.h"

namespace test {

struct ScaleProblem {
    gh_dtype dtype;
    int64_t batch, vocab;
    int64_t padding = 0;  // elements between the rows
    int64_t offset = 0;   // elements between an address aligned to 256 bytes and dlogits
    float dloss = 1;
    std::vector<unsigned char> dlogits;  // with the padding

    int64_t stride() const { return vocab + padding; }
    int64_t elements() const { return batch == 0 ? 0 : (batch - 1) * stride() + vocab; }
    std::string describe() const;
};

// Elements and padding of random bits: among them NaNs of all kinds, infinities and denormals.
ScaleProblem random_scale_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, float dloss,
                                  int64_t padding = 0, int64_t offset = 0);

// Factors at which something could go wrong, and some random ones; without 1.
std::vector<float> factors(Random &random);

// The element that the contract asks for: one product in fp32, rounded once.
uint32_t scaled(gh_dtype dtype, uint32_t bits, float dloss);

// Fails the test, and says false, at the first element that differs. NaNs may have any payload, except where nothing
// was to be done.
bool check_scaled(const ScaleProblem &problem, const std::vector<unsigned char> &outcome);

// A problem in an engine's memory.
class PlacedScale {
public:
    explicit PlacedScale(const ScaleProblem &problem, Engine &where = engine());

    void *dlogits() const { return dlogits_.data(); }
    float *dloss_ptr() const { return static_cast<float *>(dloss_.data()); }
    gh_status call() const;

    void fill(const ScaleProblem &problem);    // of the same shape
    std::vector<unsigned char> fetch() const;  // also fails the test if memory around the arguments changed
    bool unchanged() const;                    // bitwise, since fill()

private:
    Engine &engine_;
    ScaleProblem problem_;
    Guarded dlogits_, dloss_;
};

// Places the problem, calls, waits, checks.
bool run_and_check(const ScaleProblem &problem);

}  // namespace test
