// gh_scale_dlogits: every element is its fp32 product with *dloss_ptr, rounded once; for 1, nothing happens.
#include <gtest/gtest.h>

#include <cstring>

#include "of_every_dtype.h"
#include "option_call.h"
#include "scale_call.h"

namespace test {
namespace {

class Scale : public OfEveryDtype {
protected:
    float any_factor() { return static_cast<float>(uniform(random, -4000000, 4000000)) / 1000003; }
};

INSTANTIATE_OF_EVERY_DTYPE(Scale);

// All of the 16-bit types; as many of fp32.
TEST_P(Scale, EveryValueByEveryKindOfFactor) {
    ScaleProblem problem = random_scale_problem(random, dtype, 1, 1 << 16, 0);
    if (element_size(dtype) == 2)
        for (int64_t i = 0; i < problem.vocab; i++) store_bits(problem.dlogits, dtype, i, static_cast<uint32_t>(i));
    for (float factor : factors(random)) {
        problem.dloss = factor;
        ASSERT_TRUE(run_and_check(problem));
    }
}

TEST_P(Scale, OneLeavesEveryBitAlone) {
    ScaleProblem problem = random_scale_problem(random, dtype, 3, 1 << 16, 1, 5, 3);
    for (int64_t i = 0; i < problem.vocab; i++)
        store_bits(problem.dlogits, dtype, i, static_cast<uint32_t>(i) << (8 * element_size(dtype) - 16));
    ASSERT_TRUE(run_and_check(problem));
}

TEST_P(Scale, OddShapesOffsetsAndStrides) {
    for (int64_t vocab : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 100, 255, 257, 1000, 4095, 4097})
        for (int64_t batch : {1, 2, 3, 37})
            for (int64_t padding : {0, 1, 3, 8, 13}) {
                const int64_t offset = uniform(random, 0, 9);
                ASSERT_TRUE(
                    run_and_check(random_scale_problem(random, dtype, batch, vocab, any_factor(), padding, offset)));
            }
}

TEST_P(Scale, EveryOffsetWithinAVector) {
    for (int64_t offset = 0; offset <= 16; offset++)
        for (int64_t vocab : {1, 5, 8, 40, 301})
            for (int64_t padding : {0, 1})
                ASSERT_TRUE(
                    run_and_check(random_scale_problem(random, dtype, 4, vocab, any_factor(), padding, offset)));
}

// More than one thread, block or wave of blocks has to do with it.
TEST_P(Scale, LargeTensors) {
    for (int64_t padding : {0, 1, 8}) {
        ASSERT_TRUE(run_and_check(random_scale_problem(random, dtype, 40, 50257, any_factor(), padding, padding)));
        ASSERT_TRUE(run_and_check(random_scale_problem(random, dtype, 1, 3000001, any_factor(), padding, 2)));
        ASSERT_TRUE(run_and_check(random_scale_problem(random, dtype, 100003, 3, any_factor(), padding, 1)));
        ASSERT_TRUE(run_and_check(random_scale_problem(random, dtype, 30011, 70, any_factor(), padding)));
    }
}

TEST_P(Scale, AStrideOf0IsTheVocabulary) {
    const ScaleProblem problem = random_scale_problem(random, dtype, 5, 77, any_factor());
    const PlacedScale placed(problem);
    ASSERT_EQ(gh_scale_dlogits(placed.dlogits(), dtype, 5, 77, 0, placed.dloss_ptr(), engine().stream()), GH_SUCCESS)
        << gh_last_error();
    check_scaled(problem, placed.fetch());
}

TEST_P(Scale, NoRowsTouchNothing) {
    const ScaleProblem problem = random_scale_problem(random, dtype, 2, 10, 3);
    const PlacedScale placed(problem);
    const gh_stream stream = engine().stream();
    EXPECT_EQ(gh_scale_dlogits(placed.dlogits(), dtype, 0, 10, 0, placed.dloss_ptr(), stream), GH_SUCCESS)
        << gh_last_error();
    EXPECT_EQ(gh_scale_dlogits(nullptr, dtype, 0, 10, 0, placed.dloss_ptr(), stream), GH_SUCCESS) << gh_last_error();
    EXPECT_TRUE(placed.unchanged());
}

// What it is for: the gradient of a loss, times an upstream gradient known later. A power of two is exact both ways,
// since nothing underflows: logits within 2 of each other have probabilities above exp(-2) / vocab.
TEST_P(Scale, ByAPowerOfTwoIsTheGradientOfThatUpstreamGradient) {
    OptionProblem problem(dtype, 20, 300);
    for (int64_t i = 0; i < problem.batch; i++) {
        problem.labels[static_cast<size_t>(i)] = uniform(random, 0, problem.vocab - 1);
        for (int64_t j = 0; j < problem.vocab; j++)
            problem.set(i, j, static_cast<double>(uniform(random, -100, 100)) / 100);
    }
    ScaleProblem later{dtype, problem.batch, problem.vocab, 0, 0, 4, run(problem).dlogits};
    problem.dloss = later.dloss;
    const std::vector<unsigned char> expected = run(problem).dlogits;
    const PlacedScale placed(later);
    ASSERT_EQ(placed.call(), GH_SUCCESS) << gh_last_error();
    EXPECT_TRUE(placed.fetch() == expected) << later.describe();
}

}  // namespace
}  // namespace test
