#include "engine.h"

#include <gtest/gtest.h>

#include <cstring>

namespace test {
namespace {

constexpr size_t guard_bytes = 1024;

std::unique_ptr<Engine> &selected() {
    static std::unique_ptr<Engine> engine;
    return engine;
}

}  // namespace

Engine &engine() {
    return *selected();
}

void set_engine(std::unique_ptr<Engine> engine) {
    selected() = std::move(engine);
}

Guarded::Guarded(Engine &engine, size_t bytes, size_t offset)
    : engine_(engine),
      size_(bytes),
      front_(guard_bytes + offset),
      base_(static_cast<unsigned char *>(engine.allocate(front_ + bytes + guard_bytes))),
      guards_(front_ + guard_bytes) {
    for (size_t i = 0; i < guards_.size(); i++) guards_[i] = static_cast<unsigned char>(37 * i + 11);
    engine_.upload(base_, guards_.data(), front_);
    engine_.upload(base_ + front_ + size_, guards_.data() + front_, guard_bytes);
    engine_.forbid(base_, front_);
    engine_.forbid(base_ + front_ + size_, guard_bytes);
}

Guarded::~Guarded() {
    engine_.permit(base_, front_ + size_ + guard_bytes);
    engine_.release(base_);
}

void Guarded::upload(const void *from) {
    if (size_ > 0) engine_.upload(data(), from, size_);
}

void Guarded::download(void *to) const {
    if (size_ > 0) engine_.download(to, data(), size_);
}

bool Guarded::guards_intact() const {
    std::vector<unsigned char> now(guards_.size());
    engine_.permit(base_, front_ + size_ + guard_bytes);
    engine_.download(now.data(), base_, front_);
    engine_.download(now.data() + front_, base_ + front_ + size_, guard_bytes);
    engine_.forbid(base_, front_);
    engine_.forbid(base_ + front_ + size_, guard_bytes);
    return now == guards_;
}

gh_status call(const Arguments &a) {
    return gh_cross_entropy_fwd_bwd(a.logits, a.dtype, a.labels, a.batch, a.vocab, a.z_loss_multiplier, a.ignore_index,
                                    a.ce_sum, a.z_sum, a.n_valid, a.stream);
}

Placed::Placed(const Problem &problem, Engine &where)
    : engine_(where),
      problem_(problem),
      logits_(where, problem.logits.size(), static_cast<size_t>(problem.offset) * element_size(problem.dtype)),
      labels_(where, problem.labels.size() * sizeof(int64_t)),
      ce_sum_(where, sizeof(float)),
      z_sum_(where, sizeof(float)),
      n_valid_(where, sizeof(float)) {
    arguments.logits = logits_.data();
    arguments.dtype = problem.dtype;
    arguments.labels = static_cast<const int64_t *>(labels_.data());
    arguments.batch = problem.batch;
    arguments.vocab = problem.vocab;
    arguments.z_loss_multiplier = problem.z_loss_multiplier;
    arguments.ignore_index = problem.ignore_index;
    arguments.ce_sum = static_cast<float *>(ce_sum_.data());
    arguments.z_sum = problem.with_z_sum ? static_cast<float *>(z_sum_.data()) : nullptr;
    arguments.n_valid = problem.with_n_valid ? static_cast<float *>(n_valid_.data()) : nullptr;
    arguments.stream = where.stream();
    fill(problem);
}

void Placed::fill(const Problem &problem) {
    problem_ = problem;
    logits_.upload(problem.logits.data());
    labels_.upload(problem.labels.data());
    ce_sum_.upload(&problem.ce_sum);
    z_sum_.upload(&problem.z_sum);
    n_valid_.upload(&problem.n_valid);
    engine_.finish();
}

Outcome Placed::fetch() const {
    engine_.finish();
    Outcome outcome;
    outcome.dlogits.resize(logits_.size());
    logits_.download(outcome.dlogits.data());
    ce_sum_.download(&outcome.ce_sum);
    z_sum_.download(&outcome.z_sum);
    n_valid_.download(&outcome.n_valid);
    std::vector<int64_t> labels(problem_.labels.size());
    labels_.download(labels.data());
    EXPECT_TRUE(labels == problem_.labels) << "labels were written";
    EXPECT_TRUE(logits_.guards_intact()) << "memory around logits was written";
    EXPECT_TRUE(labels_.guards_intact()) << "memory around labels was written";
    EXPECT_TRUE(ce_sum_.guards_intact()) << "memory around ce_sum was written";
    EXPECT_TRUE(z_sum_.guards_intact()) << "memory around z_sum was written";
    EXPECT_TRUE(n_valid_.guards_intact()) << "memory around n_valid was written";
    return outcome;
}

bool Placed::unchanged() const {
    const Outcome now = fetch();
    return now.dlogits == problem_.logits && std::memcmp(&now.ce_sum, &problem_.ce_sum, sizeof(float)) == 0 &&
           std::memcmp(&now.z_sum, &problem_.z_sum, sizeof(float)) == 0 &&
           std::memcmp(&now.n_valid, &problem_.n_valid, sizeof(float)) == 0;
}

Outcome run(const Problem &problem, Engine &where) {
    Placed placed(problem, where);
    const gh_status status = call(placed.arguments);
    EXPECT_EQ(status, GH_SUCCESS) << gh_last_error();
    Outcome outcome = placed.fetch();
    outcome.status = status;
    return outcome;
}

}  // namespace test
