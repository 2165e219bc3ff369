#include <cstdlib>
#include <cstring>
#include <new>

#include "engine.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace test {
namespace {

class HostEngine final : public Engine {
public:
    bool is_cuda() const override { return false; }
    gh_stream stream() override { return GH_STREAM_HOST; }
    void *allocate(size_t bytes) override {
        void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
        if (memory == nullptr) throw std::bad_alloc();
        return memory;
    }
    void release(void *memory) override { std::free(memory); }
    void upload(void *to, const void *from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void download(void *to, const void *from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void finish() override {}
#ifdef __SANITIZE_ADDRESS__
    void forbid(void *memory, size_t bytes) override {
        ASAN_POISON_MEMORY_REGION(memory, bytes);
    }
    void permit(void *memory, size_t bytes) override {
        ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    }
#endif
};

}  // namespace

std::unique_ptr<Engine> make_host_engine() {
    return std::make_unique<HostEngine>();
}

}  // namespace test
