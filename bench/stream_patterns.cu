// greyhound_stream_patterns: a matrix is read into rings in shared memory by the copy engine and written back in place,
// without arithmetic. Which tiles, which order, which kind of store and which L2 policies suit the memory? This is what
// the ring kernel could reach if its arithmetic cost nothing.
//
//   greyhound_stream_patterns --out FILE
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/ptx.cuh"
#include "cuda_support.h"
#include "kernels.h"
#include "sweep.h"

namespace bench {
namespace {

// 8192 rows of 128256 bf16 logits.
constexpr int64_t matrix_rows = 8192;
constexpr int64_t matrix_row_bytes = 128256 * 2;
constexpr int64_t matrix_bytes = matrix_rows * matrix_row_bytes;

constexpr int ring_bytes = 208 << 10;
constexpr int max_slots = 64;
constexpr int line_bytes = 128;
constexpr int warp_lanes = 32;

enum class Policy { none, evict_first, evict_last, evict_normal, half_evict_last };
constexpr const char *policy_names[] = {"none", "evict_first", "evict_last", "evict_normal", "half_evict_last"};

enum class Store { bulk, ordinary };
constexpr const char *store_names[] = {"bulk", "ordinary"};

enum class Order {
    parts,  // each block has a contiguous part of the row
    dealt,  // the row's blocks take tiles in turn
};
constexpr const char *order_names[] = {"parts", "dealt"};

struct Pattern {
    Store store = Store::bulk;
    Order order = Order::parts;
    int tile_bytes = 8 << 10;
    int blocks = 0;  // 0: as many as there are multiprocessors; in any case whole groups
    int row_blocks = 2;
    Policy load_policy = Policy::evict_last;
    Policy store_policy = Policy::evict_first;
    // Nothing of a row is stored before the block's part of it has been loaded, as cross-entropy needs it.
    bool whole_rows = true;
    bool one_row = false;  // take the whole matrix for one row

    int slots() const { return std::min(ring_bytes / tile_bytes, max_slots); }
    int64_t rows() const { return one_row ? 1 : matrix_rows; }
    int64_t row_bytes() const { return one_row ? matrix_bytes : matrix_row_bytes; }
};

// ---- Kernel ------------------------------------------------------------------------------------

struct Work {
    const char *source;
    char *target;  // the same, or for a check another matrix
    int64_t rows, row_bytes;
    int row_blocks, tile_bytes, slots;
    bool dealt, whole_rows;
    Policy load_policy, store_policy;
};

constexpr int stores_pending = 3;  // tiles that the copy engine may still be storing while the next is waited for
template <Store store>
constexpr int store_warps = store == Store::bulk ? 1 : 16;
template <Store store>
constexpr int threads_of = (store_warps<store> + 1) * warp_lanes;  // a further warp loads
constexpr int max_tile_bytes = 16 << 10;

// The tiles of a row that are this block's; the same in every row.
struct Tiles {
    int64_t first, stride, end;  // byte offsets in the row
    int count;

    __host__ __device__ Tiles(const Work &work, int rank) {
        const int64_t tile = work.tile_bytes;
        if (work.dealt) {
            first = rank * tile;
            stride = work.row_blocks * tile;
            end = work.row_bytes;
        } else {
            const int64_t lines = (work.row_bytes + line_bytes - 1) / line_bytes;
            const int64_t part = (lines + work.row_blocks - 1) / work.row_blocks * line_bytes;
            first = rank * part;
            stride = tile;
            end = first + part < work.row_bytes ? first + part : work.row_bytes;
        }
        count = first < end ? static_cast<int>((end - first + stride - 1) / stride) : 0;
    }
};

#if __CUDA_ARCH__ >= 900  // which has the bulk copy engine
constexpr int vectors_per_thread = max_tile_bytes / 16 / (store_warps<Store::ordinary> * warp_lanes);

__device__ uint64_t create_policy(Policy policy) {
    uint64_t result = 0;
    switch (policy) {
        case Policy::none: break;
        case Policy::evict_first: return gh::ptx::createpolicy_evict_first();
        case Policy::evict_last: return gh::ptx::createpolicy_evict_last();
        case Policy::evict_normal: asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(result)); break;
        case Policy::half_evict_last: asm("createpolicy.fractional.L2::evict_last.b64 %0, 0.5;" : "=l"(result)); break;
    }
    return result;
}

__device__ void bulk_load_without_policy(void *shared, const void *global, uint32_t bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     gh::ptx::shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(gh::ptx::shared_address(barrier))
                 : "memory");
}

__device__ void bulk_store_without_policy(void *global, const void *shared, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                 "r"(gh::ptx::shared_address(shared)), "r"(bytes)
                 : "memory");
}

// A place in the ring, and the parity of its barriers' phase there.
struct Place {
    int slot = 0;
    uint32_t parity = 0;
    __device__ void advance(int slots) {
        if (++slot < slots) return;
        slot = 0;
        parity ^= 1;
    }
};

#endif

template <Store store>
__global__ void __launch_bounds__(threads_of<store>, 1) pattern_kernel(const __grid_constant__ Work work) {
#if __CUDA_ARCH__ >= 900
    namespace ptx = gh::ptx;
    extern __shared__ __align__(128) unsigned char ring[];  // [slots][tile_bytes]
    __shared__ uint64_t full[max_slots];                    // the tile has landed
    __shared__ uint64_t empty[max_slots];                   // the tile has been read
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_lanes, lane = thread % warp_lanes;
    if (thread == 0) {
        for (int i = 0; i < work.slots; i++) {
            ptx::mbarrier_init(full + i, 1);
            ptx::mbarrier_init(empty + i, store_warps<store>);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    const int blocks = work.row_blocks, group = static_cast<int>(blockIdx.x) / blocks;
    const int groups = static_cast<int>(gridDim.x) / blocks;
    const Tiles tiles(work, static_cast<int>(blockIdx.x) % blocks);
    // Such a block would wait for a last tile that never comes.
    if (tiles.count == 0) return;
    const auto bytes_of = [&](int64_t offset) {
        return static_cast<uint32_t>(min(static_cast<int64_t>(work.tile_bytes), tiles.end - offset));
    };

    if (warp == store_warps<store>) {
        if (lane != 0) return;
        const uint64_t policy = create_policy(work.load_policy);
        Place place;
        for (int64_t row = group; row < work.rows; row += groups)
            for (int tile = 0; tile < tiles.count; tile++) {
                const int64_t offset = tiles.first + tile * tiles.stride;
                const uint32_t bytes = bytes_of(offset);
                unsigned char *const slot = ring + place.slot * work.tile_bytes;
                const char *const source = work.source + row * work.row_bytes + offset;
                // The phase before the one that readers complete: at first the one before all, which counts as
                // complete.
                ptx::mbarrier_wait(empty + place.slot, place.parity ^ 1);
                ptx::mbarrier_arrive_expect_tx(full + place.slot, bytes);
                if (work.load_policy == Policy::none)
                    bulk_load_without_policy(slot, source, bytes, full + place.slot);
                else
                    ptx::cp_async_bulk_load(slot, source, bytes, full + place.slot, policy);
                place.advance(work.slots);
            }
        return;
    }

    if (store == Store::bulk && lane != 0) return;
    const uint64_t policy = create_policy(work.store_policy);
    Place landed, freed;  // the next tile to wait for; the next to give back to the loads
    int slot = 0, pending = 0;
    for (int64_t row = group; row < work.rows; row += groups) {
        char *const target = work.target + row * work.row_bytes;
        for (int tile = 0; tile < tiles.count; tile++) {
            const int waits = !work.whole_rows ? 1 : tile == 0 ? tiles.count : 0;
            for (int i = 0; i < waits; i++) {
                ptx::mbarrier_wait(full + landed.slot, landed.parity);
                landed.advance(work.slots);
            }
            const int64_t offset = tiles.first + tile * tiles.stride;
            const uint32_t bytes = bytes_of(offset);
            if constexpr (store == Store::bulk) {
                if (work.store_policy == Policy::none)
                    bulk_store_without_policy(target + offset, ring + slot * work.tile_bytes, bytes);
                else
                    ptx::cp_async_bulk_store(target + offset, ring + slot * work.tile_bytes, bytes, policy);
                ptx::cp_async_bulk_commit_group();
                if (pending < stores_pending) {
                    pending++;
                } else {
                    ptx::cp_async_bulk_wait_group_read<stores_pending>();
                    ptx::mbarrier_arrive(empty + freed.slot);
                    freed.advance(work.slots);
                }
            } else {
                const int vectors = static_cast<int>(bytes / sizeof(uint4));
                const uint4 *const in = reinterpret_cast<const uint4 *>(ring + slot * work.tile_bytes);
                uint4 *const out = reinterpret_cast<uint4 *>(target + offset);
                constexpr int stride = store_warps<store> * warp_lanes;
                uint4 held[vectors_per_thread];
#pragma unroll
                for (int i = 0; i < vectors_per_thread; i++)
                    if (thread + i * stride < vectors) held[i] = in[thread + i * stride];
                __syncwarp();
                if (lane == 0) ptx::mbarrier_arrive(empty + slot);
#pragma unroll
                for (int i = 0; i < vectors_per_thread; i++) {
                    uint4 *const vector = out + thread + i * stride;
                    if (thread + i * stride >= vectors) continue;
                    if (work.store_policy == Policy::none)
                        *vector = held[i];
                    else
                        ptx::st_global_hint(vector, held[i], policy);
                }
            }
            if (++slot == work.slots) slot = 0;
        }
    }
    // The copy engine must have read the last tiles before the block gives up its shared memory.
    if (store == Store::bulk) ptx::cp_async_bulk_wait_group_read<0>();
#endif
}

__global__ void count_differences_kernel(const uint4 *a, const uint4 *b, int64_t vectors, unsigned *count) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += stride)
        if (a[i].x != b[i].x || a[i].y != b[i].y || a[i].z != b[i].z || a[i].w != b[i].w) atomicAdd(count, 1u);
}

// ---- Measuring ---------------------------------------------------------------------------------

struct Kernel {
    void (*function)(Work);
    int threads;
};

Kernel kernel_of(Store store) {
    if (store == Store::bulk) return {pattern_kernel<Store::bulk>, threads_of<Store::bulk>};
    return {pattern_kernel<Store::ordinary>, threads_of<Store::ordinary>};
}

class Measurement {
public:
    Measurement() : matrix_(matrix_bytes), other_(matrix_bytes), differences_(sizeof(unsigned)) {
        int device = 0, major = 0, shared = 0;
        check(cudaGetDevice(&device), "cudaGetDevice");
        check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
        check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device),
              "cudaDeviceGetAttribute");
        check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
              "cudaDeviceGetAttribute");
        const int needed = ring_bytes + 2 * max_slots * static_cast<int>(sizeof(uint64_t));
        if (major < 9 || shared < needed)
            throw std::runtime_error("needs compute capability 9.0 and " + std::to_string(needed) +
                                     " bytes of shared memory for a block");
        for (Store store : {Store::bulk, Store::ordinary})
            check(cudaFuncSetAttribute(kernel_of(store).function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       ring_bytes),
                  "cudaFuncSetAttribute");
        fill_normal_on_device(matrix_.data(), GH_DTYPE_BF16, matrix_bytes / 2, 1, stream_);
    }

    int multiprocessors() const { return multiprocessors_; }
    const std::vector<Record> &results() const { return results_; }

    // What patterns are compared with; first of all.
    void measure_references() {
        copy_seconds_ = median_seconds(stream_, [this] {
            check(cudaMemcpyAsync(other_.data(), matrix_.data(), matrix_bytes, cudaMemcpyDeviceToDevice, stream_),
                  "cudaMemcpyAsync");
        });
        std::printf("%-62s %.4f ms\n", "cudaMemcpyAsync", 1e3 * copy_seconds_);
        add(Record().text("group", "reference").text("name", "cudaMemcpyAsync"), copy_seconds_);
        const double in_place =
            median_seconds(stream_, [this] { stream_in_place(matrix_.data(), matrix_bytes, stream_); });
        std::printf("%-62s %.4f ms  %.3f\n", "in place, one block for 32 KiB, through registers", 1e3 * in_place,
                    copy_seconds_ / in_place);
        add(Record().text("group", "reference").text("name", "stream_in_place"), in_place);
    }

    void measure(const char *group, Pattern pattern) {
        if (pattern.blocks == 0) pattern.blocks = multiprocessors_;
        pattern.blocks = pattern.blocks / pattern.row_blocks * pattern.row_blocks;
        if (pattern.blocks == 0) return;
        verify(pattern);
        const double seconds = median_seconds(stream_, [&] { launch(pattern, matrix_.data()); });
        print(group, pattern, seconds);
        add(Record()
                .text("group", group)
                .text("store", store_names[static_cast<int>(pattern.store)])
                .text("order", order_names[static_cast<int>(pattern.order)])
                .integer("tile_bytes", pattern.tile_bytes)
                .integer("slots", pattern.slots())
                .integer("blocks", pattern.blocks)
                .integer("row_blocks", pattern.row_blocks)
                .text("load_policy", policy_names[static_cast<int>(pattern.load_policy)])
                .text("store_policy", policy_names[static_cast<int>(pattern.store_policy)])
                .flag("whole_rows", pattern.whole_rows)
                .flag("one_row", pattern.one_row),
            seconds);
    }

private:
    void add(Record record, double seconds) {
        results_.push_back(
            record.integer("bytes", matrix_bytes).real("ms", 1e3 * seconds).real("of_memcpy", copy_seconds_ / seconds));
    }

    void launch(const Pattern &pattern, char *target) {
        const Work work{matrix_.data(),      target,
                        pattern.rows(),      pattern.row_bytes(),
                        pattern.row_blocks,  pattern.tile_bytes,
                        pattern.slots(),     pattern.order == Order::dealt,
                        pattern.whole_rows,  pattern.load_policy,
                        pattern.store_policy};
        // What a wrong pattern would do is wait for ever. A row is stored when all of it is in the ring, where up to
        // stores_pending tiles of the row before are still being stored; rank 0 has the most tiles.
        const int room = pattern.slots() - stores_pending;
        if (pattern.tile_bytes > max_tile_bytes || room < 1 || (pattern.whole_rows && Tiles(work, 0).count > room))
            throw std::logic_error("a block's part of a row does not fit into its ring");
        const Kernel kernel = kernel_of(pattern.store);
        const auto shared = static_cast<size_t>(pattern.slots() * pattern.tile_bytes);
        kernel.function<<<static_cast<unsigned>(pattern.blocks), static_cast<unsigned>(kernel.threads), shared,
                          stream_>>>(work);
        check(cudaGetLastError(), "launch of a pattern");
    }

    // Keeps a pattern that leaves something out from being measured.
    void verify(const Pattern &pattern) {
        check(cudaMemsetAsync(other_.data(), 0, matrix_bytes, stream_), "cudaMemsetAsync");
        check(cudaMemsetAsync(differences_.data(), 0, sizeof(unsigned), stream_), "cudaMemsetAsync");
        launch(pattern, other_.data());
        count_differences_kernel<<<2048, 256, 0, stream_>>>(
            reinterpret_cast<const uint4 *>(matrix_.data()), reinterpret_cast<const uint4 *>(other_.data()),
            matrix_bytes / static_cast<int64_t>(sizeof(uint4)), reinterpret_cast<unsigned *>(differences_.data()));
        check(cudaGetLastError(), "count_differences");
        unsigned differences = 0;
        check(cudaMemcpyAsync(&differences, differences_.data(), sizeof(differences), cudaMemcpyDeviceToHost, stream_),
              "cudaMemcpyAsync");
        stream_.synchronize();
        if (differences != 0)
            throw std::runtime_error(std::to_string(differences) + " vectors of 16 bytes did not arrive");
    }

    void print(const char *group, const Pattern &p, double seconds) const {
        std::printf("%-8s %-8s %-5s %2d KiB  %3d blocks, %3d a row  %-15s %-15s%s%s  %.4f ms  %.3f\n", group,
                    store_names[static_cast<int>(p.store)], order_names[static_cast<int>(p.order)], p.tile_bytes >> 10,
                    p.blocks, p.row_blocks, policy_names[static_cast<int>(p.load_policy)],
                    policy_names[static_cast<int>(p.store_policy)], p.whole_rows ? "" : "  at once",
                    p.one_row ? "  one row" : "", 1e3 * seconds, copy_seconds_ / seconds);
    }

    Stream stream_;
    DeviceBuffer matrix_, other_, differences_;
    int multiprocessors_ = 0;
    double copy_seconds_ = 0;
    std::vector<Record> results_;
};

// Each group varies one or two things of the default pattern.
void measure_all(Measurement &measurement) {
    for (Store store : {Store::bulk, Store::ordinary})
        for (Order order : {Order::parts, Order::dealt})
            for (int kib : {4, 8, 16}) {
                Pattern pattern;
                pattern.store = store;
                pattern.order = order;
                pattern.tile_bytes = kib << 10;
                measurement.measure("tiles", pattern);
            }

    constexpr Policy policies[] = {Policy::none, Policy::evict_first, Policy::evict_last, Policy::evict_normal};
    for (Store store : {Store::bulk, Store::ordinary})
        for (Policy load : policies)
            for (Policy store_policy : policies) {
                Pattern pattern;
                pattern.store = store;
                pattern.load_policy = load;
                pattern.store_policy = store_policy;
                measurement.measure("policy", pattern);
            }
    for (Policy store_policy : {Policy::none, Policy::evict_first}) {
        Pattern pattern;
        pattern.load_policy = Policy::half_evict_last;
        pattern.store_policy = store_policy;
        measurement.measure("policy", pattern);
    }

    for (int idle : {0, 2, 4, 6, 8, 12, 16, 22, 44, 68}) {
        Pattern pattern;
        pattern.blocks = std::max(measurement.multiprocessors() - idle, 1);
        measurement.measure("blocks", pattern);
    }

    for (Order order : {Order::parts, Order::dealt})
        for (int row_blocks : {2, 3, 4, 6, 12}) {
            Pattern pattern;
            pattern.order = order;
            pattern.row_blocks = row_blocks;
            measurement.measure("row", pattern);
        }

    for (int row_blocks : {1, 2}) {
        Pattern pattern;
        pattern.row_blocks = row_blocks;
        pattern.whole_rows = false;
        measurement.measure("at_once", pattern);
    }

    // All blocks share a row, which leaves some with nothing to do, or the whole matrix.
    Pattern all;
    all.row_blocks = measurement.multiprocessors();
    all.whole_rows = false;
    all.order = Order::dealt;
    all.tile_bytes = 4 << 10;
    measurement.measure("all", all);
    all.one_row = true;
    for (Order order : {Order::parts, Order::dealt})
        for (int kib : {4, 8, 16}) {
            all.order = order;
            all.tile_bytes = kib << 10;
            measurement.measure("all", all);
        }
}

}  // namespace
}  // namespace bench

int main(int argc, char **argv) {
    try {
        const std::string file = bench::output_file(argc, argv);
        bench::Measurement measurement;
        measurement.measure_references();
        bench::measure_all(measurement);
        bench::write_results(
            file,
            "medians of " + std::to_string(bench::sweep_launches) +
                " launches on the same data; of_memcpy: time of cudaMemcpyAsync of the same bytes / time",
            measurement.results());
    } catch (const std::exception &error) {
        std::fprintf(stderr, "greyhound_stream_patterns: %s\n", error.what());
        return 1;
    }
    return 0;
}
