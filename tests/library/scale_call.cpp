#include "scale_call.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

namespace test {

std::string ScaleProblem::describe() const {
    std::ostringstream out;
    out << dtype_name(dtype) << ", batch " << batch << ", vocab " << vocab << ", padding " << padding << ", offset "
        << offset << ", dloss " << std::hexfloat << dloss << ", GREYHOUND_TEST_SEED=" << run_seed();
    return out.str();
}

ScaleProblem random_scale_problem(Random &random, gh_dtype dtype, int64_t batch, int64_t vocab, float dloss,
                                  int64_t padding, int64_t offset) {
    ScaleProblem problem{dtype, batch, vocab, padding, offset, dloss, {}};
    problem.dlogits.resize(static_cast<size_t>(problem.elements()) * element_size(dtype));
    for (size_t i = 0; i < problem.dlogits.size(); i += 8) {
        const uint64_t bits = random();
        std::memcpy(&problem.dlogits[i], &bits, std::min<size_t>(8, problem.dlogits.size() - i));
    }
    return problem;
}

std::vector<float> factors(Random &random) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    std::vector<float> result = {0.0f,
                                 -0.0f,
                                 -1.0f,
                                 0.5f,
                                 2.0f,
                                 65536.0f,
                                 1.0f / 3,
                                 1e-4f,
                                 1e-30f,
                                 1e30f,
                                 FLT_MAX,
                                 FLT_MIN,
                                 std::numeric_limits<float>::denorm_min(),
                                 std::nextafter(1.0f, 0.0f),
                                 std::nextafter(1.0f, 2.0f),
                                 inf,
                                 -inf,
                                 std::numeric_limits<float>::quiet_NaN(),
                                 std::nanf("0x3fffff")};
    for (int i = 0; i < 4; i++) result.push_back(static_cast<float>(uniform(random, -4000000, 4000000)) / 1000003);
    return result;
}

uint32_t scaled(gh_dtype dtype, uint32_t bits, float dloss) {
    if (dloss == 1) return bits;
    const volatile float product = static_cast<float>(decode(dtype, bits)) * dloss;
    return encode(dtype, static_cast<double>(product));
}

bool check_scaled(const ScaleProblem &problem, const std::vector<unsigned char> &outcome) {
    const gh_dtype dtype = problem.dtype;
    for (int64_t i = 0; i < problem.elements(); i++) {
        const uint32_t before = load_bits(problem.dlogits, dtype, i), got = load_bits(outcome, dtype, i);
        const bool is_padding = i % problem.stride() >= problem.vocab;
        const uint32_t expected = is_padding ? before : scaled(dtype, before, problem.dloss);
        if (got == expected) continue;
        const bool any_nan = !is_padding && problem.dloss != 1 && std::isnan(decode(dtype, expected));
        if (any_nan && std::isnan(decode(dtype, got))) continue;
        ADD_FAILURE() << problem.describe() << ": row " << i / problem.stride() << ", column " << i % problem.stride()
                      << std::hex << ": " << before << " became " << got << ", not " << expected;
        return false;
    }
    return true;
}

PlacedScale::PlacedScale(const ScaleProblem &problem, Engine &where)
    : engine_(where),
      problem_(problem),
      dlogits_(where, problem.dlogits.size(), static_cast<size_t>(problem.offset) * element_size(problem.dtype)),
      dloss_(where, sizeof(float)) {
    fill(problem);
}

gh_status PlacedScale::call() const {
    return gh_scale_dlogits(dlogits(), problem_.dtype, problem_.batch, problem_.vocab, problem_.stride(), dloss_ptr(),
                            engine_.stream());
}

void PlacedScale::fill(const ScaleProblem &problem) {
    problem_ = problem;
    dlogits_.upload(problem.dlogits.data());
    dloss_.upload(&problem.dloss);
    engine_.finish();
}

std::vector<unsigned char> PlacedScale::fetch() const {
    engine_.finish();
    std::vector<unsigned char> outcome(dlogits_.size());
    dlogits_.download(outcome.data());
    float dloss;
    dloss_.download(&dloss);
    EXPECT_EQ(std::memcmp(&dloss, &problem_.dloss, sizeof(float)), 0) << "dloss_ptr was written";
    EXPECT_TRUE(dlogits_.guards_intact()) << "memory around dlogits was written";
    EXPECT_TRUE(dloss_.guards_intact()) << "memory around dloss_ptr was written";
    return outcome;
}

bool PlacedScale::unchanged() const {
    return fetch() == problem_.dlogits;
}

bool run_and_check(const ScaleProblem &problem) {
    const PlacedScale placed(problem);
    const gh_status status = placed.call();
    EXPECT_EQ(status, GH_SUCCESS) << gh_last_error();
    return status == GH_SUCCESS && check_scaled(problem, placed.fetch());
}

}  // namespace test
