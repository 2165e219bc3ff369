// The stream says where the work runs, and every pointer must be memory that it can access there.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "cuda.h"

namespace test {
namespace {

struct Argument {
    const char *name;
    void (*set)(Arguments &, void *);
};

const Argument pointers[] = {
    {"logits", [](Arguments &a, void *p) { a.logits = p; }},
    {"labels", [](Arguments &a, void *p) { a.labels = static_cast<const int64_t *>(p); }},
    {"ce_sum", [](Arguments &a, void *p) { a.ce_sum = static_cast<float *>(p); }},
    {"z_sum", [](Arguments &a, void *p) { a.z_sum = static_cast<float *>(p); }},
    {"n_valid", [](Arguments &a, void *p) { a.n_valid = static_cast<float *>(p); }},
};

bool reads_pageable_memory(int device) {
    int yes = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&yes, cudaDevAttrPageableMemoryAccess, device));
    return yes != 0;
}

bool reads_peer(int device, int peer) {
    int yes = 0;
    CUDA_CHECK(cudaDeviceCanAccessPeer(&yes, device, peer));
    return yes != 0;
}

class ReachableMemory : public ::testing::Test {
protected:
    Random random = make_random();
    const Problem problem = random_problem(random, GH_DTYPE_F32, 4, 300);

    // Makes the call with one pointer replaced, and expects to be refused because of it.
    void expect_refused(Placed &placed, const Argument &argument, void *pointer) {
        const Arguments right = placed.arguments;
        argument.set(placed.arguments, pointer);
        EXPECT_EQ(call(placed.arguments), GH_ERROR_UNREACHABLE_POINTER) << argument.name << ": " << gh_last_error();
        char named[64];
        std::snprintf(named, sizeof named, "%s = %p", argument.name, pointer);
        EXPECT_NE(std::string(gh_last_error()).find(named), std::string::npos) << gh_last_error();
        placed.arguments = right;
        EXPECT_TRUE(placed.unchanged()) << argument.name;
    }

    void TearDown() override { run_and_check(problem); }  // the context is usable after every test
};

TEST_F(ReachableMemory, PlainHostMemoryOnACudaStream) {
    Placed placed(problem);
    std::vector<double> memory(problem.logits.size() / sizeof(double) + 1, 7.0);
    const std::vector<double> before = memory;
    if (reads_pageable_memory(0)) {
        placed.arguments.ce_sum = reinterpret_cast<float *>(memory.data());
        memory[0] = 0;
        EXPECT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
        Outcome outcome = placed.fetch();
        outcome.ce_sum = *reinterpret_cast<float *>(memory.data());
        check(problem, outcome);
        return;
    }
    for (const Argument &argument : pointers) expect_refused(placed, argument, memory.data());
    EXPECT_TRUE(memory == before);
}

TEST_F(ReachableMemory, DeviceMemoryOnTheHostStream) {
    const std::unique_ptr<Engine> host = make_host_engine();
    Placed on_host(problem, *host);
    for (const Argument &argument : pointers) {
        Placed on_device(problem);
        const void *device_pointers[] = {on_device.arguments.logits, on_device.arguments.labels,
                                         on_device.arguments.ce_sum, on_device.arguments.z_sum,
                                         on_device.arguments.n_valid};
        expect_refused(on_host, argument, const_cast<void *>(device_pointers[&argument - pointers]));
        EXPECT_TRUE(on_device.unchanged());
    }
}

// Every pointer of a call with options, replaced by memory of the other side.
class ReachableOptions : public ReachableMemory {
protected:
    struct Field {
        const char *name;
        size_t offset;
    };
    const std::vector<Field> fields = {
        {"options.class_weights", offsetof(gh_cross_entropy_options, class_weights)},
        {"options.dloss_ptr", offsetof(gh_cross_entropy_options, dloss_ptr)},
        {"options.row_dloss", offsetof(gh_cross_entropy_options, row_dloss)},
        {"options.row_dentropy", offsetof(gh_cross_entropy_options, row_dentropy)},
        {"options.row_loss", offsetof(gh_cross_entropy_options, row_loss)},
        {"options.row_lse", offsetof(gh_cross_entropy_options, row_lse)},
        {"options.row_target_log_prob", offsetof(gh_cross_entropy_options, row_target_log_prob)},
        {"options.row_entropy", offsetof(gh_cross_entropy_options, row_entropy)},
        {"options.row_argmax", offsetof(gh_cross_entropy_options, row_argmax)},
        {"options.row_statistics", offsetof(gh_cross_entropy_options, row_statistics)},
        {"options.loss", offsetof(gh_cross_entropy_options, loss)},
        {"options.z_loss", offsetof(gh_cross_entropy_options, z_loss)},
        {"options.n_valid", offsetof(gh_cross_entropy_options, n_valid)},
        {"options.n_correct", offsetof(gh_cross_entropy_options, n_correct)},
        {"options.n_out_of_range", offsetof(gh_cross_entropy_options, n_out_of_range)},
        {"options.workspace", offsetof(gh_cross_entropy_options, workspace)},
    };
    const std::unique_ptr<Engine> host = make_host_engine();

    void expect_refused(gh_status status, const char *name, const void *pointer) {
        EXPECT_EQ(status, GH_ERROR_UNREACHABLE_POINTER) << name << ": " << gh_last_error();
        char named[64];
        std::snprintf(named, sizeof named, "%s = %p", name, pointer);
        EXPECT_NE(std::string(gh_last_error()).find(named), std::string::npos) << gh_last_error();
    }

    // Calls on `where` with one pointer in the memory of `elsewhere`.
    void expect_all_refused(Engine &where, Engine &elsewhere) {
        Placed right(problem, where), wrong(problem, elsewhere);
        const Arguments &a = right.arguments, &b = wrong.arguments;
        Guarded foreign(elsewhere, 4096);
        const auto call = [&](const void *logits, void *gradient, const void *labels,
                              gh_cross_entropy_options options) {
            options.loss = options.loss != nullptr ? options.loss : a.ce_sum;
            return gh_cross_entropy(logits, gradient, a.dtype, labels, a.batch, a.vocab, &options, a.stream);
        };
        const gh_cross_entropy_options none = GH_CROSS_ENTROPY_OPTIONS_INIT;
        expect_refused(call(b.logits, nullptr, a.labels, none), "logits", b.logits);
        expect_refused(call(a.logits, b.logits, a.labels, none), "dlogits", b.logits);
        expect_refused(call(a.logits, nullptr, b.labels, none), "labels", b.labels);
        for (const Field &field : fields) {
            gh_cross_entropy_options options = none;
            void *pointer = foreign.data();
            std::memcpy(reinterpret_cast<char *>(&options) + field.offset, &pointer, sizeof pointer);
            options.workspace_size = 4096;
            expect_refused(call(a.logits, a.logits, a.labels, options), field.name, pointer);
        }
        const auto backward = [&](const void *statistics, const void *lse) {
            return gh_cross_entropy_backward(a.logits, a.logits, a.dtype, a.labels, a.batch, a.vocab, statistics,
                                             static_cast<const float *>(lse), &none, a.stream);
        };
        expect_refused(backward(foreign.data(), nullptr), "row_statistics", foreign.data());
        expect_refused(backward(nullptr, foreign.data()), "row_lse", foreign.data());
        EXPECT_TRUE(right.unchanged());
        EXPECT_TRUE(wrong.unchanged());
    }
};

TEST_F(ReachableOptions, DeviceMemoryOnTheHostStream) {
    expect_all_refused(*host, engine());
}

TEST_F(ReachableOptions, HostMemoryOnACudaStream) {
    if (reads_pageable_memory(0)) GTEST_SKIP() << "this device can access any host memory";
    expect_all_refused(engine(), *host);
}

// Pinned and managed memory belong to both sides.
class SharedMemory : public ReachableMemory {
protected:
    void run_in(void *memory, gh_stream stream) {
        auto *bytes = static_cast<unsigned char *>(memory);
        std::memcpy(bytes, problem.logits.data(), problem.logits.size());
        unsigned char *labels = bytes + problem.logits.size(), *sums = labels + 8 * problem.labels.size();
        std::memcpy(labels, problem.labels.data(), 8 * problem.labels.size());
        std::memset(sums, 0, 3 * sizeof(float));
        auto *sum = reinterpret_cast<float *>(sums);
        ASSERT_EQ(gh_cross_entropy_fwd_bwd(bytes, problem.dtype, reinterpret_cast<const int64_t *>(labels),
                                           problem.batch, problem.vocab, 0, -100, sum, sum + 1, sum + 2, stream),
                  GH_SUCCESS)
            << gh_last_error();
        engine().finish();
        Outcome outcome;
        outcome.dlogits.assign(bytes, bytes + problem.logits.size());
        outcome.ce_sum = sum[0];
        outcome.z_sum = sum[1];
        outcome.n_valid = sum[2];
        check(problem, outcome);
    }
    size_t bytes_needed() const { return problem.logits.size() + 8 * problem.labels.size() + 3 * sizeof(float); }
};

TEST_F(SharedMemory, PinnedMemoryWorksOnBothEngines) {
    void *memory = nullptr;
    CUDA_CHECK(cudaMallocHost(&memory, bytes_needed()));
    run_in(memory, engine().stream());
    run_in(memory, GH_STREAM_HOST);
    CUDA_CHECK(cudaFreeHost(memory));
}

TEST_F(SharedMemory, RegisteredMemoryWorksOnBothEngines) {
    std::vector<double> memory(bytes_needed() / sizeof(double) + 1);
    CUDA_CHECK(cudaHostRegister(memory.data(), memory.size() * sizeof(double), cudaHostRegisterDefault));
    run_in(memory.data(), engine().stream());
    run_in(memory.data(), GH_STREAM_HOST);
    CUDA_CHECK(cudaHostUnregister(memory.data()));
}

TEST_F(SharedMemory, ManagedMemoryWorksOnBothEngines) {
    void *memory = nullptr;
    CUDA_CHECK(cudaMallocManaged(&memory, bytes_needed(), cudaMemAttachGlobal));
    run_in(memory, engine().stream());
    run_in(memory, GH_STREAM_HOST);
    CUDA_CHECK(cudaFree(memory));
}

// Memory from a stream-ordered pool is device memory like any other.
TEST_F(SharedMemory, StreamOrderedAllocations) {
    void *memory = nullptr;
    CUDA_CHECK(cudaMallocAsync(&memory, sizeof(float), engine().stream()));
    CUDA_CHECK(cudaMemsetAsync(memory, 0, sizeof(float), engine().stream()));
    Placed placed(problem);
    placed.arguments.ce_sum = static_cast<float *>(memory);
    ASSERT_EQ(call(placed.arguments), GH_SUCCESS) << gh_last_error();
    Outcome outcome = placed.fetch();
    engine().download(&outcome.ce_sum, memory, sizeof(float));
    check(problem, outcome);
    CUDA_CHECK(cudaFreeAsync(memory, engine().stream()));
    engine().finish();
}

TEST_F(ReachableMemory, AnotherDevicesMemoryNeedsPeerAccess) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    CudaEngine other(1);
    Placed here(problem), there(problem, other);
    void *there_pointers[] = {there.arguments.logits, const_cast<int64_t *>(there.arguments.labels),
                              there.arguments.ce_sum, there.arguments.z_sum, there.arguments.n_valid};
    for (const Argument &argument : pointers) expect_refused(here, argument, there_pointers[&argument - pointers]);
    EXPECT_TRUE(there.unchanged());
    if (!reads_peer(0, 1)) GTEST_SKIP() << "device 0 cannot be a peer of device 1";
    CUDA_CHECK(cudaDeviceEnablePeerAccess(1, 0));
    there.arguments.stream = engine().stream();
    EXPECT_EQ(call(there.arguments), GH_SUCCESS) << gh_last_error();
    engine().finish();
    check(problem, there.fetch());
    CUDA_CHECK(cudaDeviceDisablePeerAccess(1));
}

}  // namespace
}  // namespace test
