// Nothing outside the arguments is accessed, reads included: each argument's memory ends where it ends.
// On the host the next byte belongs to a page that may not be touched. On CUDA the allocations are
// exact, which compute-sanitizer's memcheck turns into the same test.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "check.h"
#include "engine.h"

namespace test {
namespace {

enum class Against { kFront, kBack };

class Exact {
public:
    Exact(size_t bytes, Against side) : bytes_(bytes) {
        if (engine().is_cuda()) {
            data_ = engine().allocate(bytes);
            return;
        }
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const size_t inner = (bytes + page - 1) / page * page;
        mapped_ = inner + 2 * page;
        base_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base_ == MAP_FAILED) throw std::bad_alloc();
        char *first = static_cast<char *>(base_) + page;
        if (mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
        data_ = side == Against::kFront ? first : first + (inner - bytes);
    }
    Exact(const void *contents, size_t bytes, Against side) : Exact(bytes, side) {
        engine().upload(data_, contents, bytes);
    }
    ~Exact() {
        if (base_ == nullptr)
            engine().release(data_);
        else
            munmap(base_, mapped_);
    }
    Exact(const Exact &) = delete;
    Exact &operator=(const Exact &) = delete;

    void *data() const { return data_; }
    void download(void *to) const { engine().download(to, data_, bytes_); }

private:
    size_t bytes_, mapped_ = 0;
    void *base_ = nullptr, *data_ = nullptr;
};

void run_exactly(const Problem &problem, Against side) {
    const Exact logits(problem.logits.data(), problem.logits.size(), side);
    const Exact labels(problem.labels.data(), problem.labels.size() * sizeof(int64_t), side);
    const Exact ce_sum(&problem.ce_sum, sizeof(float), side);
    const Exact z_sum(&problem.z_sum, sizeof(float), side);
    const Exact n_valid(&problem.n_valid, sizeof(float), side);
    ASSERT_EQ(gh_cross_entropy_fwd_bwd(logits.data(), problem.dtype, static_cast<const int64_t *>(labels.data()),
                                       problem.batch, problem.vocab, problem.z_loss_multiplier, problem.ignore_index,
                                       static_cast<float *>(ce_sum.data()), static_cast<float *>(z_sum.data()),
                                       static_cast<float *>(n_valid.data()), engine().stream()),
              GH_SUCCESS)
        << gh_last_error();
    Outcome outcome;
    outcome.dlogits.resize(problem.logits.size());
    logits.download(outcome.dlogits.data());
    ce_sum.download(&outcome.ce_sum);
    z_sum.download(&outcome.z_sum);
    n_valid.download(&outcome.n_valid);
    check(problem, outcome);
}

TEST(Bounds, NothingOutsideTheArgumentsIsAccessed) {
    Random random = make_random();
    for (Against side : {Against::kFront, Against::kBack})
        for (gh_dtype dtype : all_dtypes)
            for (int64_t vocab : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1000, 4097, 8193, 33001})
                for (int64_t batch : {1, 3}) run_exactly(random_problem(random, dtype, batch, vocab), side);
}

// A label out of range must not become an address, wherever that address would point.
TEST(Bounds, LabelsOutOfRangeAreNotDereferenced) {
    if (!engine().is_cuda()) GTEST_SKIP() << "the host refuses them before it reads a logit";
    Random random = make_random();
    for (int64_t vocab : {1, 100, 8193})
        for (int64_t label : {vocab, int64_t{-1}, int64_t{1} << 40, -(int64_t{1} << 40), INT64_MAX, INT64_MIN}) {
            Problem problem = random_problem(random, GH_DTYPE_BF16, 3, vocab);
            problem.labels[1] = label;
            run_exactly(problem, Against::kBack);
        }
}

}  // namespace
}  // namespace test
