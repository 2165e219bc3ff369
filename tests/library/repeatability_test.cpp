// The same call gives the same bits: on the host for any number of threads, sums included; on a CUDA
// stream the gradient, run to run.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

#include "check.h"
#include "engine.h"
#include "of_every_dtype.h"

namespace test {
namespace {

class Repeatability : public OfEveryDtype {};

INSTANTIATE_OF_EVERY_DTYPE(Repeatability);

constexpr int64_t shapes[][2] = {{1, 200064}, {3, 50257}, {64, 4099}, {150, 8200}, {1500, 33}};

void expect_same_bits(const Outcome &a, const Outcome &b, bool with_sums, const Problem &problem) {
    EXPECT_TRUE(a.dlogits == b.dlogits) << problem.describe();
    if (!with_sums) return;
    EXPECT_EQ(std::memcmp(&a.ce_sum, &b.ce_sum, sizeof(float)), 0) << problem.describe();
    EXPECT_EQ(std::memcmp(&a.z_sum, &b.z_sum, sizeof(float)), 0) << problem.describe();
    EXPECT_EQ(std::memcmp(&a.n_valid, &b.n_valid, sizeof(float)), 0) << problem.describe();
}

TEST_P(Repeatability, RunToRun) {
    for (const auto &shape : shapes) {
        Problem problem = random_problem(random, dtype, shape[0], shape[1]);
        problem.z_loss_multiplier = 1e-3f;
        problem.offset = 1;
        const Outcome first = run(problem);
        for (int repeat = 0; repeat < 5; repeat++) expect_same_bits(first, run(problem), !engine().is_cuda(), problem);
    }
}

TEST_P(Repeatability, AnyNumberOfThreads) {
    if (engine().is_cuda()) GTEST_SKIP() << "host threads do not matter to a CUDA stream";
    // The OpenMP runtime that the library brought into this process; the setting holds for calls of this thread.
    const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    const auto get_threads = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    if (set_threads == nullptr || get_threads == nullptr) GTEST_SKIP() << "the library was built without OpenMP";
    const int before = get_threads();
    for (const auto &shape : shapes) {
        Problem problem = random_problem(random, dtype, shape[0], shape[1]);
        problem.z_loss_multiplier = 1e-3f;
        problem.offset = 1;
        problem.ce_sum = 0.1f;
        set_threads(1);
        const Outcome one = run(problem);
        for (int threads : {2, 3, 5, 8, 16}) {
            set_threads(threads);
            ASSERT_EQ(get_threads(), threads);
            expect_same_bits(one, run(problem), true, problem);
        }
        set_threads(before);
    }
}

}  // namespace
}  // namespace test
