// Random calls of every kind at once: dtype, shape, alignment, ignored rows, special values, z-loss,
// optional accumulators. GREYHOUND_TEST_CASES sets how many; a failure names the seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "check.h"
#include "engine.h"

namespace test {
namespace {

Problem draw(Random &random) {
    auto chance = [&](double probability) {
        return std::uniform_real_distribution<double>(0, 1)(random) < probability;
    };
    auto log_uniform = [&](double most) {
        return static_cast<int64_t>(std::exp(std::uniform_real_distribution<double>(0, std::log(most))(random)));
    };
    const int64_t vocab = log_uniform(20000);
    const int64_t batch = log_uniform(std::max(2.0, std::min(400.0, 20000.0 / static_cast<double>(vocab))));
    const double deviations[] = {0.01, 1, 10, 100};
    Problem problem =
        random_problem(random, all_dtypes[uniform(random, 0, 2)], batch, vocab, deviations[uniform(random, 0, 3)]);
    problem.offset = uniform(random, 0, 15);
    problem.with_z_sum = chance(0.8);
    problem.with_n_valid = chance(0.8);
    if (chance(0.5)) problem.z_loss_multiplier = static_cast<float>(std::normal_distribution<double>(0, 0.1)(random));
    if (chance(0.3)) problem.ce_sum = 50, problem.z_sum = 60, problem.n_valid = 70;
    if (chance(0.3)) problem.ignore_index = uniform(random, 0, vocab - 1);
    const double ignored = chance(0.5) ? 0 : std::uniform_real_distribution<double>(0, 1)(random);
    for (int64_t &label : problem.labels)
        if (chance(ignored)) label = problem.ignore_index;
    if (engine().is_cuda() && chance(0.1))
        problem.labels[static_cast<size_t>(uniform(random, 0, batch - 1))] = chance(0.5) ? vocab : -7;

    const double inf = std::numeric_limits<double>::infinity(), most = largest(problem.dtype);
    const double specials[] = {std::numeric_limits<double>::quiet_NaN(), inf, -inf, most, -most, 0, -0.0};
    if (chance(0.4)) {
        const bool any_special = chance(0.3);  // else -inf alone, so that most rows stay finite
        for (int64_t k = uniform(random, 1, 1 + batch); k > 0; k--) {
            const int64_t row = uniform(random, 0, batch - 1);
            const int64_t column = chance(0.3)
                                       ? std::clamp<int64_t>(problem.labels[static_cast<size_t>(row)], 0, vocab - 1)
                                       : uniform(random, 0, vocab - 1);
            problem.set(row, column, specials[any_special ? uniform(random, 0, 6) : 2]);
        }
    }
    if (chance(0.1)) problem.fill(uniform(random, 0, batch - 1), -inf);
    return problem;
}

TEST(RandomCalls, AgreeWithTheOracle) {
    Random random = make_random();
    const char *wanted = std::getenv("GREYHOUND_TEST_CASES");
    const int cases = wanted != nullptr ? std::atoi(wanted) : 500;
    ASSERT_GT(cases, 0);
    for (int k = 0; k < cases && !::testing::Test::HasFailure(); k++) {
        SCOPED_TRACE("case " + std::to_string(k));
        run_and_check(draw(random));
    }
}

}  // namespace
}  // namespace test
