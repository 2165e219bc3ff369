// Host time of one call: from entering the library until the work is on the stream. Nothing waits for the GPU.
//
// The yardstick is a launch of an empty kernel as the library launches its own: the same grid, block, shared memory
// and attributes, read from a graph that captured the call.
#include <benchmark/benchmark.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>

#include "cases.h"
#include "cuda_support.h"
#include "kernels.h"
#include "random_data.h"
#include "suites.h"

namespace bench {
namespace {

// Far fewer than a stream's queue holds: a full one would make the host wait for the GPU.
constexpr int launches_in_flight = 16;

template <class Function>
Function *driver_function(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name);
    if (found != cudaDriverEntryPointSuccess) throw std::runtime_error(std::string(name) + ": not in this driver");
    return reinterpret_cast<Function *>(function);
}

class IssueCase {
public:
    explicit IssueCase(const Case &shape)
        : shape_(shape),
          logits_(shape.bytes()),
          labels_(sizeof(int64_t) * static_cast<size_t>(shape.batch)),
          sums_(3 * sizeof(float)) {
        fill_normal_on_device(logits_.data(), shape.dtype, shape.elements(), 1, stream_);
        const std::vector<int64_t> labels = random_labels(shape, shape.batch, 2);
        check(cudaMemcpyAsync(labels_.data(), labels.data(), labels.size() * sizeof(int64_t), cudaMemcpyHostToDevice,
                              stream_),
              "cudaMemcpyAsync");
        check(cudaMemsetAsync(sums_.data(), 0, 3 * sizeof(float), stream_), "cudaMemsetAsync");
        call();
        stream_.synchronize();
        read_launch();
        launch_empty(config_);
        stream_.synchronize();
    }

    // Host seconds for one call and for one bare launch.
    double time_calls() {
        return time([this] { call(); });
    }
    double time_bare_launches() {
        return time([this] { launch_empty(config_); });
    }

    const Case &shape() const { return shape_; }
    int kernels() const { return kernels_; }

private:
    void call() {
        auto *const sums = reinterpret_cast<float *>(sums_.data());
        const gh_status status = gh_cross_entropy_fwd_bwd(
            logits_.data(), shape_.dtype, reinterpret_cast<const int64_t *>(labels_.data()), shape_.batch, shape_.vocab,
            shape_.z_loss_multiplier, ignore_index, sums, sums + 1, sums + 2, stream_);
        if (status) throw std::runtime_error(gh_last_error());
    }

    template <class Issue>
    double time(Issue issue) {
        using Clock = std::chrono::steady_clock;
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < launches_in_flight; i++) issue();
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        stream_.synchronize();
        return seconds / launches_in_flight;
    }

    // Of several kernels the first one's launch is taken. Through the driver, because the kernel belongs to the
    // library's copy of the CUDA runtime, which this program's copy knows nothing of.
    void read_launch() {
        Graph graph;
        graph.capture(stream_, [this] { call(); });
        size_t count = 0;
        check(cudaGraphGetNodes(graph.get(), nullptr, &count), "cudaGraphGetNodes");
        std::vector<cudaGraphNode_t> nodes(count);
        check(cudaGraphGetNodes(graph.get(), nodes.data(), &count), "cudaGraphGetNodes");
        for (cudaGraphNode_t node : nodes) {
            cudaGraphNodeType type;
            check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
            if (type != cudaGraphNodeTypeKernel) continue;
            if (kernels_++ == 0) read_kernel_node(node);
        }
        if (kernels_ == 0) throw std::runtime_error("the call launched no kernel");
    }

    void read_kernel_node(CUgraphNode node) {
        using GetParams = CUresult(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *);
        using GetAttribute = CUresult(CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue *);
        CUDA_KERNEL_NODE_PARAMS params{};
        if (driver_function<GetParams>("cuGraphKernelNodeGetParams")(node, &params) != CUDA_SUCCESS)
            throw std::runtime_error("cuGraphKernelNodeGetParams failed");
        config_.gridDim = {params.gridDimX, params.gridDimY, params.gridDimZ};
        config_.blockDim = {params.blockDimX, params.blockDimY, params.blockDimZ};
        config_.dynamicSmemBytes = params.sharedMemBytes;
        config_.stream = stream_;

        GetAttribute *const get_attribute = driver_function<GetAttribute>("cuGraphKernelNodeGetAttribute");
        CUkernelNodeAttrValue value{};
        if (get_attribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) == CUDA_SUCCESS &&
            value.clusterDim.x > 0) {
            cudaLaunchAttribute cluster{};
            cluster.id = cudaLaunchAttributeClusterDimension;
            cluster.val.clusterDim.x = value.clusterDim.x;
            cluster.val.clusterDim.y = value.clusterDim.y;
            cluster.val.clusterDim.z = value.clusterDim.z;
            attributes_.push_back(cluster);
        }
        if (get_attribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS && value.cooperative) {
            cudaLaunchAttribute cooperative{};
            cooperative.id = cudaLaunchAttributeCooperative;
            cooperative.val.cooperative = value.cooperative;
            attributes_.push_back(cooperative);
        }
        config_.attrs = attributes_.data();
        config_.numAttrs = static_cast<unsigned>(attributes_.size());
    }

    Case shape_;
    Stream stream_;
    DeviceBuffer logits_, labels_, sums_;
    cudaLaunchConfig_t config_{};
    std::vector<cudaLaunchAttribute> attributes_;
    int kernels_ = 0;
};

void issue_call(benchmark::State &state, const Case &shape) {
    static std::unique_ptr<IssueCase> current;
    try {
        if (!current || current->shape().name() != shape.name()) {
            current.reset();
            current = std::make_unique<IssueCase>(shape);
        }
        double call = 0, bare = 0;
        for (auto _ : state) {
            call = current->time_calls();
            bare = current->time_bare_launches();
            state.SetIterationTime(call);
        }
        state.counters["bare_us"] = 1e6 * bare;
        state.counters["of_bare"] = call / bare;
        state.counters["kernels"] = current->kernels();
    } catch (const std::exception &e) {
        current.reset();
        cudaGetLastError();
        state.SkipWithError(e.what());
    }
}

// Calls that end before any work: what they cost is checks (and, where they fail, the message).
enum class Ends { batch_is_0, negative_batch, unreachable_n_valid };

void checks_alone(benchmark::State &state, Ends ends) {
    try {
        const Stream stream;
        const DeviceBuffer logits(4096), labels(64), sums(64);
        auto *const device_sums = reinterpret_cast<float *>(sums.data());
        float on_host = 0;
        const int64_t batch = ends == Ends::batch_is_0 ? 0 : ends == Ends::negative_batch ? -1 : 2;
        float *const n_valid = ends == Ends::unreachable_n_valid ? &on_host : device_sums + 2;
        const gh_status expected = ends == Ends::batch_is_0       ? GH_SUCCESS
                                   : ends == Ends::negative_batch ? GH_ERROR_INVALID_SIZE
                                                                  : GH_ERROR_UNREACHABLE_POINTER;
        gh_status status = expected;
        for (auto _ : state) {
            status =
                gh_cross_entropy_fwd_bwd(logits.data(), GH_DTYPE_BF16, reinterpret_cast<const int64_t *>(labels.data()),
                                         batch, 16, 0, ignore_index, device_sums, device_sums + 1, n_valid, stream);
            if (status != expected) break;
        }
        stream.synchronize();
        if (status != expected)
            state.SkipWithError(status == GH_SUCCESS ? "this GPU can reach plain host memory" : gh_last_error());
    } catch (const std::exception &e) {
        state.SkipWithError(e.what());
    }
}

}  // namespace

void register_issue_suite(const Settings &settings) {
    int device = 0, shared_memory = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cudaDeviceGetAttribute");
    prepare_empty(shared_memory);

    for (const Case &shape : parse_cases("issue bf16 1,64,8192 128256\n"
                                         "issue bf16 8192      50257\n"
                                         "issue bf16 65536     4096\n"
                                         "issue f32  8192      128256\n"))
        benchmark::RegisterBenchmark(shape.name().c_str(), issue_call, shape)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(1)
            ->Repetitions(settings.repetitions(51))
            ->ReportAggregatesOnly();

    const std::pair<const char *, Ends> checks[] = {{"issue_checks/batch_is_0", Ends::batch_is_0},
                                                    {"issue_checks/negative_batch", Ends::negative_batch},
                                                    {"issue_checks/unreachable_n_valid", Ends::unreachable_n_valid}};
    for (const auto &[name, ends] : checks)
        benchmark::RegisterBenchmark(name, checks_alone, ends)
            ->Unit(benchmark::kMicrosecond)
            ->MinTime(0.02)
            ->Repetitions(settings.repetitions(11))
            ->ReportAggregatesOnly();
}

}  // namespace bench
