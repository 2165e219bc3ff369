// Cross-entropy with gradient, each logit read from memory once: rows stream through rings in shared memory.
//
// A row belongs to a team of warps: part of a block, a whole block, or all blocks of a cluster. Every warp owns a ring
// of chunks in shared memory. The copy engine fills it ahead of time, also with the warp's share of the team's next
// rows. The warp reads each chunk twice: once for the exp-sum of the row, and, when the team has put its sums together,
// once for the gradient, which it leaves in the chunk for the copy engine to store. Then the slot is free for the next
// load. So a row stays on the chip between its two passes, and the memory system always has something to do.
//
//   one warp's ring | row i, chunks 0..n-1 | row i+1, chunks 0..n-1 | being loaded | being stored |
//
// A row's sums take about a microsecond to go round the team. To use that time, a warp first does the exp-sums of its
// next row, as far as the ring holds it, and only then waits for the sums of the current one:
//
//   exp_sum(i+1), send | receive(i), gradient(i) | exp_sum(i+2), send | receive(i+1), gradient(i+1) | ...
//
// A row too long for the team's rings keeps its last chunks; the others are loaded a second time for the gradient.
//
// Barriers
//   full[slot]            The chunk has landed; the copy engine counts its bytes. Nothing says "empty": the warp that
//                         frees a slot is the one that refills it.
//   exchange[row % n]     All parts of the row's sums have arrived in this block. n is 4: a warp may send row i+1 while
//                         another has yet to read row i-1, but row i+3 only after everybody has read row i-1. Where
//                         the ring cannot hold two whole rows, row i+1 is sent after row i was read, and n is 2.
#pragma once

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/kernels/row_math.cuh"
#include "cuda/kernels/row_sums.cuh"
#include "cuda/ptx.cuh"

namespace gh {

// What one warp does. `aligned`: every row starts and ends at a multiple of 128 bytes.
template <typename T, bool aligned>
class RingWarp {
    static constexpr int per_vector = Element<T>::per_vector;
    static constexpr int per_vector_shift = per_vector == 8 ? 3 : 2;
    static constexpr int vectors_per_lane = ring_vectors_per_lane;
    static constexpr int chunk_vectors = ring_chunk_vectors;
    static constexpr uint32_t minus_infinity = Element<T>::minus_infinity;

    // How this warp's chunks lie in a row: the warps of a block take turns with full chunks, then divide what is left
    // of the block's part evenly. Offsets are in vectors of 16 bytes, from the first full chunk.
    struct Partition {
        int full_chunks;   // 1 << step_shift apart
        int last_vectors;  // in the last chunk; 0 if there is none
        int last_offset;
        int first_vector;  // of the row: where offsets count from
        __device__ int chunks() const { return full_chunks + (last_vectors > 0 ? 1 : 0); }
        __device__ int size(int chunk) const { return chunk < full_chunks ? chunk_vectors : last_vectors; }
    };

    // Where a row starts. Unless all rows are aligned, up to per_vector - 1 elements at either end ("edges") do not
    // fill a vector; the team's first warp takes them, one to a lane. And as the copy engine is slow where a chunk is
    // not made of whole 128-byte lines, chunks are cut at lines: the row is taken to start up to 7 vectors early, and
    // the first chunk skips these.
    struct Place {
        uint4 *vectors;       // this warp's first full chunk
        int head;             // elements before the row's first vector
        int skip;             // vectors between the start of the first line and the row's first vector
        T *edge;              // this lane's, or null
        Partition partition;  // not used if aligned
    };

    // One row on its way through the two passes, as this warp sees it.
    struct Row {
        Place place;
        int chunks_summed;   // of this warp's, how many are in `sum`
        int target_chunk;    // the one that the label is in, or -1
        int target_element;  // in that chunk
        bool edge_is_target;
        bool label_in_range;
        T edge;
        ExpSum sum;       // of this lane, then of this warp, then of the whole row
        float target;     // the label's logit, if this lane owns it, then if this warp does, then for all
        uint32_t number;  // of rows that this team exchanged before
    };

    const RingParameters &p;
    const int lane, rank, blocks, member, team_parts;
    const int64_t row_stride;
    uint4 *const ring;
    uint64_t *const full, *const exchange;
    float2 *const parts;    // [exchanges][team_parts] exp-sums
    float2 *const targets;  // [exchanges] the label's logit; the second float is unused
    const Partition aligned_partition;

    // The producer's place: the next chunk to load.
    T *load_pointer;
    int64_t load_row;
    int64_t load_label;  // of load_row, read one row ahead
    Place load_place{};
    int load_number = 0, loads_of_row = 0, load_slot = 0, stores_pending = 0;
    const uint64_t load_policy = ptx::createpolicy_evict_last();
    const uint64_t store_policy = ptx::createpolicy_evict_first();

    // The consumer's places: the next chunk of the first and of the second pass, and the next row.
    int sum_slot = 0, gradient_slot = 0;
    uint32_t sum_parity = 0, exchanged = 0;
    T *next_pointer;
    int64_t next_row_index, next_label;

    // Losses are computed 32 rows at a time; until then, each lane keeps one row's sums.
    ExpSum kept_sum;
    float kept_target = 0.0f, kept_lse = 0.0f;
    int kept = 0;
    RowSums sums;

    __device__ bool leads() const { return rank == 0 && member == 0; }
    __device__ void advance(int &slot) const { slot = slot + 1 == p.slots ? 0 : slot + 1; }
    __device__ uint4 *chunk_in_ring(int slot) const { return ring + slot * chunk_vectors; }
    __device__ int64_t label_of(int64_t row) const { return row < p.batch ? __ldg(p.labels + row) : 0; }
    __device__ const Partition &partition_of(const Place &place) const {
        return aligned ? aligned_partition : place.partition;
    }
    __device__ int offset(const Partition &partition, int chunk) const {
        return chunk < partition.full_chunks ? chunk << p.step_shift : partition.last_offset;
    }
    // The vectors at the start of a chunk that are not part of the row.
    __device__ int skip(const Place &place, int chunk) const {
        return !aligned && leads() && chunk == 0 ? place.skip : 0;
    }
    // How many of a row's chunks stay in the ring from the first pass to the second: the last ones.
    __device__ int resident(const Partition &partition) const {
        return min(partition.chunks(), p.slots - p.stores_pending);
    }

    __device__ Partition divide(int row_vectors) const {
        const int block_first = rank * p.vectors_per_block;
        const int count = min(p.vectors_per_block, max(row_vectors - block_first, 0));
        const int full_chunks = count >> p.step_shift;
        const int left = count & ((1 << p.step_shift) - 1);
        const int left_each =
            (((left + p.team_warps - 1) >> (p.step_shift - ring_chunk_shift)) + line_vectors - 1) & -line_vectors;
        return {full_chunks, min(left_each, max(left - member * left_each, 0)),
                (full_chunks << p.step_shift) + member * (left_each - chunk_vectors),
                block_first + member * chunk_vectors};
    }

    __device__ Place place_of(T *row) const {
        Place place;
        place.head = 0;
        place.skip = 0;
        place.edge = nullptr;
        if (!aligned) {
            const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
            const int vocab = static_cast<int>(p.vocab);
            place.head = min((per_vector - misaligned) % per_vector, vocab);
            const int row_vectors = (vocab - place.head) >> per_vector_shift;
            const int inside = row_vectors << per_vector_shift;
            if (leads() && lane < vocab - inside) place.edge = row + (lane < place.head ? lane : lane + inside);
            if (p.cut_at_lines)
                place.skip = static_cast<int>(reinterpret_cast<uintptr_t>(row + place.head) / 16 % line_vectors);
            place.partition = divide(row_vectors + place.skip);
        }
        place.vectors = reinterpret_cast<uint4 *>(row + place.head) - place.skip + partition_of(place).first_vector;
        return place;
    }

    // Starts this warp's next load, into the slot that was freed longest ago.
    __device__ void load_next() {
        while (load_number >= loads_of_row) {
            if (load_row >= p.batch) return;
            const bool ignored = load_label == p.ignore_index;
            load_place = place_of(load_pointer);
            load_row += row_stride;
            load_pointer += row_stride * p.vocab;
            load_label = label_of(load_row);
            if (ignored) continue;
            const Partition &partition = partition_of(load_place);
            load_number = 0;
            loads_of_row = 2 * partition.chunks() - resident(partition);
        }
        const Partition &partition = partition_of(load_place);
        const int chunk = load_number < partition.chunks() ? load_number : load_number - partition.chunks();
        if (lane == 0) {
            const int begin = skip(load_place, chunk);
            const uint32_t bytes = (partition.size(chunk) - begin) * 16;
            ptx::mbarrier_arrive_expect_tx(full + load_slot, bytes);
            ptx::cp_async_bulk_load(chunk_in_ring(load_slot) + begin,
                                    load_place.vectors + offset(partition, chunk) + begin, bytes, full + load_slot,
                                    load_policy);
        }
        advance(load_slot);
        load_number++;
    }

    __device__ void zero(const Place &place) const {
        const Partition &partition = partition_of(place);
#pragma unroll 1
        for (int chunk = 0; chunk < partition.chunks(); chunk++)
            for (int i = skip(place, chunk) + lane; i < partition.size(chunk); i += warp_lanes)
                ptx::st_global_cs(place.vectors + offset(partition, chunk) + i, make_uint4(0, 0, 0, 0));
        if (place.edge != nullptr) *place.edge = Element<T>::from_float(0.0f);
    }

    // Goes on to the team's next row that counts, zeroing the ignored ones on the way. False at the end.
    __device__ bool next_row(Row &row) {
        while (next_row_index < p.batch) {
            T *const pointer = next_pointer;
            const int64_t label = next_label;
            next_row_index += row_stride;
            next_pointer += row_stride * p.vocab;
            next_label = label_of(next_row_index);
            row.place = place_of(pointer);
            if (label == p.ignore_index) {
                zero(row.place);
                continue;
            }
            row.chunks_summed = 0;
            row.sum = ExpSum();
            row.target = 0.0f;
            row.number = exchanged++;
            row.label_in_range = static_cast<uint64_t>(label) < static_cast<uint64_t>(p.vocab);
            if (!aligned && row.place.edge != nullptr) row.edge = *row.place.edge;
            row.edge_is_target = row.label_in_range && row.place.edge == pointer + label;
            row.target_chunk = -1;
            row.target_element = 0;
            const int column = static_cast<int>(label) - row.place.head;  // negative in the head
            if (row.label_in_range && column >= 0) {
                const Partition &partition = partition_of(row.place);
                const int vector = (column >> per_vector_shift) + row.place.skip - partition.first_vector;
                const int chunk = vector >> p.step_shift, in_full = vector - (chunk << p.step_shift);
                const int in_last = vector - partition.last_offset;
                if (static_cast<unsigned>(chunk) < static_cast<unsigned>(partition.full_chunks)) {
                    if (in_full < chunk_vectors) row.target_chunk = chunk;
                    row.target_element = in_full * per_vector + (column & (per_vector - 1));
                }
                if (static_cast<unsigned>(in_last) < static_cast<unsigned>(partition.last_vectors)) {
                    row.target_chunk = partition.full_chunks;
                    row.target_element = in_last * per_vector + (column & (per_vector - 1));
                }
            }
            return true;
        }
        return false;
    }

    // Is the label's logit in one of the vectors that this lane reads?
    __device__ bool reads_target(const Row &row) const {
        return row.target_chunk >= 0 && (row.target_element >> per_vector_shift) % warp_lanes == lane;
    }

    template <int count>
    __device__ static void add_exp(ExpSum &sum, const uint4 (&x)[count]) {
        float max = sum.max;
#pragma unroll
        for (int i = 0; i < count; i++) max = fmaxf(max, Element<T>::max(x[i]));
        float even = sum.sum * exp_minus(sum.max, max), odd = 0.0f;
#pragma unroll
        for (int i = 0; i < count; i++) {
            float f[per_vector];
            Element<T>::unpack(x[i], f);
#pragma unroll
            for (int k = 0; k < per_vector; k += 2) {
                even += exp_minus(f[k], max);
                odd += exp_minus(f[k + 1], max);
            }
        }
        sum = {max, even + odd};
    }

    // First pass, over the row's chunks up to `end`: this lane's exp-sum over the classes other than the label.
    __device__ void exp_sum(Row &row, int end) {
        const Partition &partition = partition_of(row.place);
        const int reloaded = partition.chunks() - resident(partition);
#pragma unroll 1
        for (; row.chunks_summed < end; row.chunks_summed++) {
            ptx::mbarrier_wait(full + sum_slot, sum_parity);
            uint4 *const vectors = chunk_in_ring(sum_slot);
            if (lane < skip(row.place, row.chunks_summed))
                vectors[lane] = make_uint4(minus_infinity, minus_infinity, minus_infinity, minus_infinity);
            if (row.chunks_summed == row.target_chunk && reads_target(row)) {
                // The lane that reads the label's logit takes it out of the ring.
                T *const element = reinterpret_cast<T *>(vectors) + row.target_element;
                row.target = Element<T>::to_float(*element);
                *element = Element<T>::from_float(-INFINITY);
            }
            const int n = partition.size(row.chunks_summed);
            if (n == chunk_vectors) {
                uint4 x[vectors_per_lane];
#pragma unroll
                for (int i = 0; i < vectors_per_lane; i++) x[i] = vectors[i * warp_lanes + lane];
                add_exp(row.sum, x);
            } else {
#pragma unroll 1
                for (int i = 0; i < n; i += warp_lanes) {
                    uint4 x[1] = {make_uint4(minus_infinity, minus_infinity, minus_infinity, minus_infinity)};
                    if (i + lane < n) x[0] = vectors[i + lane];
                    add_exp(row.sum, x);
                }
            }
            advance(sum_slot);
            if (sum_slot == 0) sum_parity ^= 1;
            // Slots are freed in the order in which they were filled, also when some rows are reloaded and others just
            // fit: then stores_pending is 0, so no slot of an earlier row is still waiting for its store.
            if (row.chunks_summed < reloaded) {
                ptx::fence_proxy_async();  // the label's logit may have been replaced
                __syncwarp();
                load_next();
            }
        }
    }

    // Sends this warp's part of the row's sums to every block of the team, and the label's logit if it is here.
    __device__ void send(Row &row) const {
        bool owner = reads_target(row);
        if (!aligned && row.place.edge != nullptr) {
            const float logit = Element<T>::to_float(row.edge);
            if (row.edge_is_target) {
                owner = true;
                row.target = logit;
            } else {
                const float max = fmaxf(logit, -FLT_MAX);
                row.sum = combine(row.sum, {max, exp_minus(logit, max)});
            }
        }
        row.sum = combine_warp(row.sum);
        const unsigned owners = __ballot_sync(~0u, owner);
        if (owners != 0) row.target = __shfl_sync(~0u, row.target, __ffs(owners) - 1);
        if (team_parts == 1) return;
        const int slot = row.number & (p.exchanges - 1);
        float2 *const part = parts + slot * team_parts + rank * p.team_warps + member;
        if (blocks == 1) {
            if (lane == 0) {
                *part = make_float2(row.sum.max, row.sum.sum);
                if (owners != 0) targets[slot] = make_float2(row.target, 0.0f);
                ptx::mbarrier_arrive(exchange + slot);
            }
            return;
        }
        if (member == 0 && lane == 0)
            ptx::mbarrier_arrive_expect_tx(exchange + slot, (team_parts + (row.label_in_range ? 1 : 0)) * 8);
        if (lane < blocks) {
            const uint32_t barrier = ptx::mapa(exchange + slot, lane);
            ptx::st_async(ptx::mapa(part, lane), make_float2(row.sum.max, row.sum.sum), barrier);
            if (owners != 0) ptx::st_async(ptx::mapa(targets + slot, lane), make_float2(row.target, 0.0f), barrier);
        }
    }

    // Waits for the parts of the whole team and puts them together.
    __device__ void receive(Row &row) const {
        if (team_parts == 1) return;
        const int slot = row.number & (p.exchanges - 1);
        ptx::mbarrier_wait_cluster(exchange + slot, row.number / p.exchanges & 1);
        row.sum = ExpSum();
#pragma unroll 1
        for (int i = lane; i < team_parts; i += warp_lanes) {
            const float2 part = parts[slot * team_parts + i];
            row.sum = combine(row.sum, {part.x, part.y});
        }
        row.sum = combine_warp(row.sum);
        row.target = targets[slot].x;
    }

    template <bool scaled, int count>
    __device__ static void replace_by_gradient(uint4 (&x)[count], const RowResult &result) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            float f[per_vector];
            Element<T>::unpack(x[i], f);
#pragma unroll
            for (int k = 0; k < per_vector; k++) {
                f[k] = softmax(f[k], result);
                if (scaled) f[k] *= result.softmax_scale;
            }
            x[i] = Element<T>::pack(f);
        }
    }

    // Second pass: the gradient replaces the logits, in the ring and then in memory.
    template <bool scaled>
    __device__ void gradient(const Row &row, const RowResult &result) {
        const Partition &partition = partition_of(row.place);
        const int chunks = partition.chunks(), reloaded = chunks - resident(partition);
        if (reloaded > 0) gradient_slot = (gradient_slot + reloaded) % p.slots;
#pragma unroll 1
        for (int i = 0; i < chunks; i++) {
            int chunk = i + reloaded;
            if (chunk >= chunks) {
                chunk -= chunks;
                ptx::mbarrier_wait(full + sum_slot, sum_parity);
                advance(sum_slot);
                if (sum_slot == 0) sum_parity ^= 1;
            }
            uint4 *const vectors = chunk_in_ring(gradient_slot);
            const int n = partition.size(chunk);
            if (n == chunk_vectors) {
                uint4 x[vectors_per_lane];
#pragma unroll
                for (int k = 0; k < vectors_per_lane; k++) x[k] = vectors[k * warp_lanes + lane];
                replace_by_gradient<scaled>(x, result);
#pragma unroll
                for (int k = 0; k < vectors_per_lane; k++) vectors[k * warp_lanes + lane] = x[k];
            } else {
#pragma unroll 1
                for (int k = lane; k < n; k += warp_lanes) {
                    uint4 x[1] = {vectors[k]};
                    replace_by_gradient<scaled>(x, result);
                    vectors[k] = x[0];
                }
            }
            if (chunk == row.target_chunk && reads_target(row))
                reinterpret_cast<T *>(vectors)[row.target_element] = Element<T>::from_float(target_gradient(result));
            ptx::fence_proxy_async();
            __syncwarp();
            if (lane == 0) {
                const int begin = skip(row.place, chunk);
                ptx::cp_async_bulk_store(row.place.vectors + offset(partition, chunk) + begin, vectors + begin,
                                         (n - begin) * 16, store_policy);
                ptx::cp_async_bulk_commit_group();
                if (p.stores_pending == 0)
                    ptx::cp_async_bulk_wait_group_read<0>();
                else
                    ptx::cp_async_bulk_wait_group_read<1>();
            }
            if (stores_pending < p.stores_pending)
                stores_pending++;
            else
                load_next();
            advance(gradient_slot);
        }
        if (!aligned && row.place.edge != nullptr)
            *row.place.edge = Element<T>::from_float(
                row.edge_is_target ? target_gradient(result)
                                   : softmax(Element<T>::to_float(row.edge), result) * result.softmax_scale);
    }

    __device__ void keep(const Row &row, const RowResult &result) {
        if (!leads()) return;
        if (lane == kept) {
            kept_sum = row.sum;
            kept_target = row.target;
            kept_lse = result.lse;
        }
        if (++kept == warp_lanes) add_kept();
    }

    __device__ void add_kept() {
        if (lane < kept) sums.add_row(kept_sum, kept_target, kept_lse);
        kept = 0;
    }

public:
    __device__ RingWarp(const RingParameters &parameters, unsigned char *shared, int warp, int lane_, int rank_,
                        int blocks_)
        : p(parameters),
          lane(lane_),
          rank(rank_),
          blocks(blocks_),
          member(warp & (p.team_warps - 1)),
          team_parts(blocks_ * p.team_warps),
          row_stride(static_cast<int64_t>(gridDim.x / blocks_) * (ring_warps / p.team_warps)),
          ring(reinterpret_cast<uint4 *>(shared) + warp * p.slots * chunk_vectors),
          full(reinterpret_cast<uint64_t *>(shared + p.layout.full) + warp * p.slots),
          exchange(reinterpret_cast<uint64_t *>(shared + p.layout.exchange) + warp / p.team_warps * p.exchanges),
          parts(reinterpret_cast<float2 *>(shared + p.layout.parts) + warp / p.team_warps * p.exchanges * team_parts),
          targets(reinterpret_cast<float2 *>(shared + p.layout.targets) + warp / p.team_warps * p.exchanges),
          aligned_partition(divide(p.row_vectors)) {
        next_row_index = static_cast<int64_t>(blockIdx.x / blocks) * (ring_warps / p.team_warps) + warp / p.team_warps;
        next_pointer = static_cast<T *>(p.logits) + next_row_index * p.vocab;
        next_label = label_of(next_row_index);
        load_row = next_row_index;
        load_pointer = next_pointer;
        load_label = next_label;
    }

    __device__ void init_barriers() {
        if (lane == 0) {
            for (int i = 0; i < p.slots; i++) ptx::mbarrier_init(full + i, 1);
            if (member == 0)
                for (int i = 0; i < p.exchanges; i++)
                    // Within a block, each warp arrives; in a cluster, one does, and the rest is counted in bytes.
                    ptx::mbarrier_init(exchange + i, blocks == 1 ? p.team_warps : 1);
            ptx::fence_mbarrier_init();
        }
        __syncwarp();
    }

    __device__ void fill() {
#pragma unroll 1
        for (int i = 0; i < p.slots; i++) load_next();
    }

    __device__ void run() {
        sums.clear();
        Row row, next;
        bool have_row = false, more = true;
        while (more || have_row) {
            more = more && next_row(next);
            // The next row's first pass: as far as the ring can hold that row while it still holds this one, and, when
            // this one is done, the rest.
            const int next_chunks = more ? partition_of(next.place).chunks() : 0;
            int end = next_chunks;
            if (have_row) end = min(end, p.slots - p.stores_pending - partition_of(row.place).chunks());
            bool sent = !more;
#pragma unroll 1
            for (int part = 0; part < 2; part++) {
                if (!sent) {
                    exp_sum(next, end);
                    if (next.chunks_summed == next_chunks) {
                        send(next);
                        sent = true;
                    }
                }
                end = next_chunks;
                if (have_row) {
                    receive(row);
                    const RowResult result = finish_row(row.sum, row.target, row.label_in_range, p.z_loss_multiplier);
                    if (result.softmax_scale == 1.0f)
                        gradient<false>(row, result);
                    else
                        gradient<true>(row, result);
                    keep(row, result);
                    have_row = false;
                }
            }
            row = next;
            have_row = more;
        }
        // The copy engine must have read the last chunks before the block gives up its shared memory.
        if (lane == 0) ptx::cp_async_bulk_wait_group_read<0>();
        if (!leads()) return;
        add_kept();
        sums.combine_lanes();
        if (lane == 0) sums.add_to(p.ce_sum, p.z_sum, p.n_valid);
    }
};

template <typename T, bool aligned>
__global__ void __launch_bounds__(ring_warps *warp_lanes, 1) ring_kernel(const __grid_constant__ RingParameters p) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char shared[];
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warp_lanes, 0);  // uniform to the compiler too
    RingWarp<T, aligned> ring_warp(p, shared, warp, static_cast<int>(threadIdx.x) % warp_lanes,
                                   static_cast<int>(ptx::cluster_ctarank()), static_cast<int>(ptx::cluster_nctarank()));
    ring_warp.init_barriers();
    // Loads touch this block only and start at once; sums may be sent when every block's barriers are ready.
    ptx::barrier_cluster_arrive();
    ring_warp.fill();
    __syncwarp();
    ptx::barrier_cluster_wait();
    // A block that has received the last row's parts gets no more of them, so it may leave before the others.
    ring_warp.run();
#endif
}

}  // namespace gh
