// The two engines as the tests see them: memory, copies and a stream. Every test program runs on one
// of them, chosen by --engine=host (the default) or --engine=cuda.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "problem.h"

namespace test {

class Engine {
public:
    virtual ~Engine() = default;
    virtual bool is_cuda() const = 0;
    virtual gh_stream stream() = 0;
    virtual void *allocate(size_t bytes) = 0;  // aligned to 256 bytes
    virtual void release(void *memory) = 0;
    virtual void upload(void *to, const void *from, size_t bytes) = 0;
    virtual void download(void *to, const void *from, size_t bytes) = 0;
    virtual void finish() = 0;  // waits for the stream; its errors fail the test
    // Makes an access to this memory an error where a sanitizer can see it.
    virtual void forbid(void *, size_t) {}
    virtual void permit(void *, size_t) {}
};

Engine &engine();  // the one that this program runs on
void set_engine(std::unique_ptr<Engine> engine);

std::unique_ptr<Engine> make_host_engine();
#ifdef GREYHOUND_TEST_CUDA
std::unique_ptr<Engine> make_cuda_engine();
bool has_cuda_device();
#endif

// Engine memory with a guard band on either side.
class Guarded {
public:
    Guarded(Engine &engine, size_t bytes, size_t offset = 0);
    ~Guarded();
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;

    void *data() const { return base_ + front_; }
    size_t size() const { return size_; }
    void upload(const void *from);
    void download(void *to) const;
    bool guards_intact() const;

private:
    Engine &engine_;
    size_t size_, front_;
    unsigned char *base_;
    std::vector<unsigned char> guards_;  // what the two bands should hold, one after the other
};

struct Arguments {
    void *logits;
    gh_dtype dtype;
    const int64_t *labels;
    int64_t batch, vocab;
    float z_loss_multiplier;
    int64_t ignore_index;
    float *ce_sum, *z_sum, *n_valid;
    gh_stream stream;
};

gh_status call(const Arguments &arguments);

// A problem in an engine's memory, and the arguments of the call that solves it.
class Placed {
public:
    explicit Placed(const Problem &problem, Engine &where = engine());

    Arguments arguments;  // change them to make a wrong call

    void fill(const Problem &problem);  // of the same shape
    Outcome fetch() const;              // also fails the test if memory around the arguments changed
    bool unchanged() const;             // bitwise, since fill()

private:
    Engine &engine_;
    Problem problem_;
    Guarded logits_, labels_, ce_sum_, z_sum_, n_valid_;
};

// Places the problem, calls, waits, fetches.
Outcome run(const Problem &problem, Engine &where = engine());

}  // namespace test
