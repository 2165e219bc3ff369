// Many threads call at once, each with problems, memory and (on CUDA) a stream of its own.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "engine.h"
#ifdef GREYHOUND_TEST_CUDA
#include "cuda.h"
#endif

namespace test {
namespace {

constexpr int thread_count = 8;

// An engine for one thread: what the program runs on, but with a stream of its own.
std::unique_ptr<Engine> another_engine() {
#ifdef GREYHOUND_TEST_CUDA
    if (engine().is_cuda()) return make_cuda_engine();
#endif
    return make_host_engine();
}

TEST(Concurrency, ThreadsDoNotDisturbEachOther) {
    Random random = make_random();
    constexpr int rounds = 6;
    std::vector<Problem> problems;
    for (int k = 0; k < thread_count * rounds; k++) {
        problems.push_back(random_problem(random, all_dtypes[k % 3], uniform(random, 1, 9), uniform(random, 1, 3000)));
        problems.back().z_loss_multiplier = k % 2 ? 1e-3f : 0.0f;
        problems.back().offset = k % 8;
    }
    // Calls that fail run among those that succeed.
    std::vector<Outcome> outcomes(problems.size());
    std::vector<int> refused(thread_count);
    std::vector<std::thread> threads;
    for (int t = 0; t < thread_count; t++)
        threads.emplace_back([&, t] {
            const std::unique_ptr<Engine> own = another_engine();
            for (int k = t * rounds; k < (t + 1) * rounds; k++) {
                Placed placed(problems[static_cast<size_t>(k)], *own);
                Arguments wrong = placed.arguments;
                wrong.vocab = -t;
                refused[static_cast<size_t>(t)] += call(wrong) == GH_ERROR_INVALID_SIZE;
                Outcome &outcome = outcomes[static_cast<size_t>(k)];
                const gh_status status = call(placed.arguments);
                outcome = placed.fetch();
                outcome.status = status;
            }
        });
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(refused, std::vector<int>(thread_count, rounds));
    for (size_t k = 0; k < problems.size(); k++) {
        EXPECT_EQ(outcomes[k].status, GH_SUCCESS);
        check(problems[k], outcomes[k]);
    }
}

// Labels are only read, so that calls may share them.
TEST(Concurrency, ThreadsMayShareLabels) {
    Random random = make_random();
    const Problem problem = random_problem(random, GH_DTYPE_F32, 40, 100);
    Placed shared(problem);
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<std::unique_ptr<Placed>> own;
    for (int t = 0; t < thread_count; t++) {
        engines.push_back(another_engine());
        own.push_back(std::make_unique<Placed>(problem, *engines.back()));
        own.back()->arguments.labels = shared.arguments.labels;
    }
    std::vector<gh_status> statuses(thread_count, -1);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < thread_count; t++) threads.emplace_back([&, t] { statuses[t] = call(own[t]->arguments); });
    for (std::thread &thread : threads) thread.join();
    for (size_t t = 0; t < thread_count; t++) {
        EXPECT_EQ(statuses[t], GH_SUCCESS);
        check(problem, own[t]->fetch());
    }
}

}  // namespace
}  // namespace test
