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
// Without one of the two passes, no chunk is kept: the forward pass alone frees a slot as soon as it has read it, and
// the backward pass alone takes the row's sums from where an earlier call saved them.
//
// Barriers
//   full[slot]            The chunk has landed; the copy engine counts its bytes. Nothing says "empty": the warp that
//                         frees a slot is the one that refills it.
//   exchange[row % n]     All parts of the row's sums have arrived in this block. n is 4: a warp may send row i+1 while
//                         another has yet to read row i-1, but row i+3 only after everybody has read row i-1. Where
//                         the ring cannot hold two whole rows, row i+1 is sent after row i was read, and n is 2.
//                         The forward pass alone keeps no row in the ring; there n is always 4.
#pragma once

#include <climits>

#include "cuda/kernels/element.cuh"
#include "cuda/kernels/parameters.h"
#include "cuda/kernels/row_math.cuh"
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/sums.cuh"
#include "cuda/kernels/vectors.cuh"
#include "cuda/ptx.cuh"

namespace gh {

// What one warp does. `aligned`: every row starts and ends at a multiple of 128 bytes.
template <typename T, bool aligned, Terms terms>
class RingWarp {
    static constexpr bool extended = terms != Terms::plain;
    static constexpr int per_vector = Element<T>::per_vector;
    static constexpr int per_vector_shift = per_vector == 8 ? 3 : 2;
    static constexpr int vectors_per_lane = ring_vectors_per_lane;
    static constexpr int chunk_vectors = ring_chunk_vectors;
    // From here on it is faster to compute a chunk as if it were full, all vectors of a lane at once.
    static constexpr int worth_all_vectors = chunk_vectors / 2 + 1;
    static constexpr uint32_t minus_infinity = Element<T>::minus_infinity;
    static constexpr int planes = extended ? ring_extended_planes : ring_plain_planes;

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
        int head;             // elements before the row's first vector
        int skip;             // vectors between the start of the first line and the row's first vector
        int edge;             // this lane's column, or -1
        Partition partition;  // not used if aligned
    };

    // One row on its way through the two passes, as this warp sees it.
    struct Row {
        int64_t index;
        int label;  // -1 if out of range
        Place place;
        int chunks_summed;   // of this warp's, how many are in `sum`
        int target_chunk;    // the one that the label is in, or -1
        int target_element;  // in that chunk
        T edge;
        ExpSum sum;       // of this lane, then of this warp, then of the whole row
        float target;     // the label's value, if this lane owns it, then if this warp does, then for all
        uint32_t number;  // of rows that this team exchanged before
        // Extended terms only.
        Moments moments;
        float target_logit;  // before the soft cap

        __device__ bool edge_is_target() const { return place.edge >= 0 && place.edge == label; }
        __device__ RowSum summed() const { return {sum, target, label >= 0}; }
    };

    const RingParameters &p;
    const Scale<terms> scale;
    const int lane, rank, blocks, member, team_parts;
    const int64_t row_stride;
    const int64_t team;  // this warp's, among all
    uint4 *const ring;
    uint64_t *const full, *const exchange;
    float2 *const parts;    // [exchanges][planes][team_parts] of a row's sums
    float2 *const targets;  // [exchanges] the label's value and, for the extended terms, logit
    const Partition aligned_partition;

    // The producer's place: the next chunk to load.
    int64_t load_row;
    LabelBits load_label;  // of load_row, read one row ahead
    const uint4 *load_vectors = nullptr;
    Place load_place{};
    int load_number = 0, loads_of_row = 0, load_slot = 0, stores_pending = 0;
    const uint64_t load_policy = ptx::createpolicy_evict_last();
    const uint64_t store_policy = ptx::createpolicy_evict_first();

    // The consumer's places: the next chunk of the first and of the second pass, and the next row.
    int sum_slot = 0, gradient_slot = 0;
    uint32_t sum_parity = 0, exchanged = 0;
    int64_t next_row_index;
    LabelBits next_label;

    // Outputs are computed 32 rows at a time; until then, each lane keeps one row.
    FinishedRow kept_row;
    Moments kept_moments;  // extended terms only
    int kept = 0;
    CallFactors factors;
    RowSums sums;

    // Does every class have a weight of its own in the label smoothing?
    __device__ bool weighs_classes() const {
        return extended && p.label_smoothing != 0.0f && p.class_weights != nullptr;
    }
    __device__ bool leads() const { return rank == 0 && member == 0; }
    __device__ void advance(int &slot) const { slot = slot + 1 == p.slots ? 0 : slot + 1; }
    __device__ uint4 *chunk_in_ring(int slot) const { return ring + slot * chunk_vectors; }
    __device__ LabelBits label_of(int64_t row) const { return row < p.batch ? read_label_bits(p, row) : 0; }
    __device__ const T *logits_row(int64_t row) const {
        return static_cast<const T *>(p.logits) + row * p.logits_row_stride;
    }
    __device__ T *dlogits_row(int64_t row) const { return static_cast<T *>(p.dlogits) + row * p.dlogits_row_stride; }
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
    // This warp's first full chunk of a row.
    __device__ uint4 *first_chunk(T *row, const Place &place) const {
        return reinterpret_cast<uint4 *>(row + place.head) - place.skip + partition_of(place).first_vector;
    }
    __device__ const uint4 *first_chunk(const T *row, const Place &place) const {
        return first_chunk(const_cast<T *>(row), place);
    }
    // How many of a row's chunks stay in the ring from the first pass to the second: the last ones.
    __device__ int resident(const Partition &partition) const {
        return p.computes_outputs && p.computes_gradient ? min(partition.chunks(), p.slots - p.stores_pending) : 0;
    }

    __device__ Partition divide(int row_vectors) const {
        const int block_first = rank * p.vectors_per_block;
        const int count = min(p.vectors_per_block, max(row_vectors - block_first, 0));
        const int full_chunks = count >> p.step_shift;
        const int left = count & ((1 << p.step_shift) - 1);
        const int left_each =
            (((left + p.team_warps - 1) >> (p.step_shift - ring_chunk_shift)) + line_vectors - 1) & -line_vectors;
        // The first warp, which has more to do for a row, gets the least.
        const int left_before = (p.team_warps - 1 - member) * left_each;
        return {full_chunks, min(left_each, max(left - left_before, 0)),
                (full_chunks << p.step_shift) + left_before - member * chunk_vectors,
                block_first + member * chunk_vectors};
    }

    __device__ Place place_of(const T *row) const {
        Place place;
        place.head = 0;
        place.skip = 0;
        place.edge = -1;
        if (!aligned) {
            const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
            const int vocab = static_cast<int>(p.vocab);
            place.head = min((per_vector - misaligned) % per_vector, vocab);
            const int row_vectors = (vocab - place.head) >> per_vector_shift;
            const int inside = row_vectors << per_vector_shift;
            if (leads() && lane < vocab - inside) place.edge = lane < place.head ? lane : lane + inside;
            if (p.cut_at_lines)
                place.skip = static_cast<int>(reinterpret_cast<uintptr_t>(row + place.head) / 16 % line_vectors);
            place.partition = divide(row_vectors + place.skip);
        }
        return place;
    }

    // Starts this warp's next load, into the slot that was freed longest ago.
    __device__ void load_next() {
        while (load_number >= loads_of_row) {
            if (load_row >= p.batch) return;
            const bool ignored = to_label(p, load_label) == p.ignore_index;
            const T *const row = logits_row(load_row);
            load_place = place_of(row);
            load_vectors = first_chunk(row, load_place);
            load_row += row_stride;
            load_label = label_of(load_row);
            if (ignored) continue;
            const Partition &partition = partition_of(load_place);
            load_number = 0;
            loads_of_row = partition.chunks();
            if (p.computes_outputs && p.computes_gradient) loads_of_row += partition.chunks() - resident(partition);
        }
        const Partition &partition = partition_of(load_place);
        const int chunk = load_number < partition.chunks() ? load_number : load_number - partition.chunks();
        if (ptx::elect_sync()) {
            const int begin = skip(load_place, chunk);
            const uint32_t bytes = (partition.size(chunk) - begin) * 16;
            ptx::mbarrier_arrive_expect_tx(full + load_slot, bytes);
            ptx::cp_async_bulk_load(chunk_in_ring(load_slot) + begin, load_vectors + offset(partition, chunk) + begin,
                                    bytes, full + load_slot, load_policy);
        }
        advance(load_slot);
        load_number++;
    }

    __device__ void ignore(int64_t row, const Place &place) const {
        if (p.computes_outputs && leads() && lane == 0) store_ignored(p, row);
        if (!p.computes_gradient) return;
        T *const dlogits = dlogits_row(row);
        uint4 *const vectors = first_chunk(dlogits, place);
        const Partition &partition = partition_of(place);
#pragma unroll 1
        for (int chunk = 0; chunk < partition.chunks(); chunk++)
            for (int i = skip(place, chunk) + lane; i < partition.size(chunk); i += warp_lanes)
                ptx::st_global_cs(vectors + offset(partition, chunk) + i, make_uint4(0, 0, 0, 0));
        if (place.edge >= 0) dlogits[place.edge] = Element<T>::from_float(0.0f);
    }

    // Goes on to the team's next row that counts, zeroing the ignored ones on the way. False at the end.
    __device__ bool next_row(Row &row) {
        while (next_row_index < p.batch) {
            const int64_t label = to_label(p, next_label);
            row.index = next_row_index;
            next_row_index += row_stride;
            next_label = label_of(next_row_index);
            const T *const logits = logits_row(row.index);
            row.place = place_of(logits);
            if (label == p.ignore_index) {
                ignore(row.index, row.place);
                continue;
            }
            row.label = in_range(p, label) ? static_cast<int>(label) : -1;
            row.chunks_summed = 0;
            row.sum = ExpSum();
            row.target = 0.0f;
            if (extended) {
                row.moments = Moments();
                row.target_logit = 0.0f;
            }
            if (!p.computes_outputs) {
                const SavedRow saved = load_saved(p, row.index);
                row.sum = saved.others;
                row.target = saved.target;
                if (extended) row.moments.entropy = saved.entropy;
            }
            row.number = exchanged++;
            if (!aligned && row.place.edge >= 0) row.edge = logits[row.place.edge];
            row.target_chunk = -1;
            row.target_element = 0;
            const int column = row.label - row.place.head;  // negative in the head
            if (row.label >= 0 && column >= 0) {
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
    __device__ void add_exp(ExpSum &sum, const uint4 (&x)[count]) const {
        const float max = fmaxf(sum.max, max_element<T>(x));
        sum = {max, fmaf(sum.sum, scale.exp_minus(sum.max, max), sum_exp<T>(scale, x, max))};
    }

    // How many of its vectors in a chunk this lane has, where `begin` are not of the row.
    __device__ int count_vectors(int begin, int size) const {
        return (size - lane + warp_lanes - 1) / warp_lanes - (lane < begin ? 1 : 0);
    }

    // This lane's vectors of a chunk; what it has not is -inf.
    __device__ void load_vectors_of(const uint4 *chunk, int size, uint4 (&x)[vectors_per_lane]) const {
#pragma unroll
        for (int i = 0; i < vectors_per_lane; i++) {
            x[i] = make_uint4(minus_infinity, minus_infinity, minus_infinity, minus_infinity);
            if (i * warp_lanes + lane < size) x[i] = chunk[i * warp_lanes + lane];
        }
    }

    // Sums over this lane's elements of a chunk, relative to `max`; x has them if that is worth it. What is not of the
    // row is -inf.
    template <bool with_below, bool with_entropy>
    __device__ ClassSums sum_classes(const uint4 *chunk, const uint4 (&x)[vectors_per_lane], int begin, int size,
                                     float max) const {
        ClassSums sums;
        const FusedPowers powers(scale, max);
        const auto of_row = [&](int vector) { return vector < size && (aligned || vector >= begin); };
        if (size < worth_all_vectors || (fuses_powers<T> && !powers.hold())) {
            const auto power = [&](float logit) { return scale.power(scale.value(logit), max); };
#pragma unroll 1
            for (int vector = lane; vector < size; vector += warp_lanes)
                add_classes<T, with_below, with_entropy>(sums, {chunk[vector]}, power,
                                                         [&](int) { return of_row(vector); });
            return sums;
        }
        const auto power_of = [&](float value) {
            return fuses_powers<T> ? fmaf(value, scale.bits, -powers.product) : scale.power(value, max);
        };
        const auto counts = [&](int i) { return of_row(i * warp_lanes + lane); };
        bool near = false;
        if constexpr (terms == Terms::capped) {
            near = scale.is_near(max_magnitude<T>(x));
            if (near)
                add_classes<T, with_below, with_entropy>(
                    sums, x, [&](float logit) { return power_of(scale.near_value(logit)); }, counts);
        }
        if (!near)
            add_classes<T, with_below, with_entropy>(
                sums, x, [&](float logit) { return power_of(scale.value(logit)); }, counts);
        if (fuses_powers<T>) {
            // From powers that are `excess` too large.
            const float shrink = ptx::ex2_approx_ftz(-powers.excess);
            if (with_entropy) sums.entropy = fmaf(-powers.excess, sums.exp, sums.entropy) * shrink;
            if (with_below)
                sums.below =
                    fmaf(static_cast<float>(-per_vector * count_vectors(begin, size)), powers.excess, sums.below);
            sums.exp *= shrink;
        }
        return sums;
    }

    __device__ ClassSums sum_classes(const uint4 *chunk, const uint4 (&x)[vectors_per_lane], int begin, int size,
                                     float max) const {
        const bool with_below = p.label_smoothing != 0.0f && !weighs_classes();
        if (p.needs_entropy)
            return with_below ? sum_classes<true, true>(chunk, x, begin, size, max)
                              : sum_classes<false, true>(chunk, x, begin, size, max);
        return with_below ? sum_classes<true, false>(chunk, x, begin, size, max)
                          : sum_classes<false, false>(chunk, x, begin, size, max);
    }

    // The columns of the vectors that a chunk has, counted from the one that is its first.
    __device__ int first_column(const Row &row, int chunk) const {
        const Partition &partition = partition_of(row.place);
        const int vector = partition.first_vector + offset(partition, chunk) - row.place.skip;
        return row.place.head + vector * per_vector;
    }

    // The moments' weighted sums where every class has a weight of its own.
    __device__ void add_weights(Row &row, const uint4 *vectors, int begin, int size) const {
        const int column = first_column(row, row.chunks_summed);
#pragma unroll 1
        for (int i = lane; i < size; i += warp_lanes) {
            if (i < begin) continue;
            float f[per_vector];
            Element<T>::unpack(vectors[i], f);
            const int first = column + i * per_vector;
            float weights[per_vector];
            load_class_weights<T>(p, first, weights);
#pragma unroll
            for (int k = 0; k < per_vector; k++) {
                const float weight = first + k == row.label ? 0.0f : weights[k];
                row.moments.below += weighted(weight, scale.power(scale.value(f[k]), row.sum.max));
                row.moments.weight += weight;
            }
        }
    }

    // From the chunk that each lane's largest logit is first in, to the column that the warp's is first in. The chunk
    // is read from the ring if it is still there, else from memory.
    __device__ void find_best_column(Row &row) const {
        const float best = max_warp(row.moments.best);
        const bool has_best = row.moments.best == best && row.moments.best_column != INT_MAX;
        int first = INT_MAX;
        // Each of the lanes that have it in turn, with one of its elements to every lane; seldom more than one.
        for (unsigned owners = __ballot_sync(~0u, has_best); owners != 0; owners &= owners - 1) {
            const int owner = __ffs(owners) - 1;
            const int chunk = __shfl_sync(~0u, row.moments.best_column, owner);
            const Partition &partition = partition_of(row.place);
            const int behind = partition.chunks() - chunk;  // chunks of the row from this one on
            const uint4 *vectors = first_chunk(logits_row(row.index), row.place) + offset(partition, chunk);
            if (behind <= resident(partition))
                vectors = chunk_in_ring(sum_slot >= behind ? sum_slot - behind : sum_slot - behind + p.slots);
            const int vector = lane / per_vector * warp_lanes + owner;
            bool found = false;
            const int column = first_column(row, chunk) + vector * per_vector + lane % per_vector;
            if (vector < partition.size(chunk) && vector >= skip(row.place, chunk) && column != row.label)
                found = Element<T>::to_float(reinterpret_cast<const T *>(vectors + vector)[lane % per_vector]) == best;
            const unsigned lanes = __ballot_sync(~0u, found);
            if (lanes != 0) first = min(first, __shfl_sync(~0u, column, __ffs(lanes) - 1));
        }
        row.moments.best = best;
        row.moments.best_column = first;
    }

    __device__ void sum_chunk_extended(Row &row, uint4 *vectors) const {
        const int n = partition_of(row.place).size(row.chunks_summed), begin = skip(row.place, row.chunks_summed);
        clear_skipped(row, vectors);
        const bool with_label = row.chunks_summed == row.target_chunk && reads_target(row);
        T *const label = with_label ? reinterpret_cast<T *>(vectors) + row.target_element : nullptr;
        if (with_label) {
            row.target_logit = Element<T>::to_float(*label);
            row.target = scale.value(row.target_logit);
            *label = Element<T>::from_float(-INFINITY);
            ptx::reload_memory();
        }
        uint4 x[vectors_per_lane];
        load_vectors_of(vectors, n, x);
        const float largest = max_element<T>(x);
        if (with_label) {
            // In the label's place stands another logit, whose terms are taken out again: then all sums are finite, and
            // no more is taken from them than half of what is there.
            *label = Element<T>::from_float(largest);
            ptx::reload_memory();
            load_vectors_of(vectors, n, x);
        }
        const float largest_value = scale.value(largest), max = fmaxf(row.sum.max, largest_value);
        ClassSums sums = sum_classes(vectors, x, begin, n, max);
        int classes = per_vector * count_vectors(begin, n);
        if (with_label) {
            *label = Element<T>::from_float(row.target_logit);
            classes--;
            const float power = scale.power(largest_value, max);
            if (power > -INFINITY) {  // else all that there is is -inf
                const float e = ptx::ex2_approx_ftz(power);
                sums.exp -= e;
                sums.below -= power;
                sums.entropy = fmaf(-e, power, sums.entropy);
            }
        }
        Moments &moments = row.moments;
        moments.move(scale, row.sum.sum, row.sum.max, max);
        row.sum = {max, fmaf(row.sum.sum, scale.exp_minus(row.sum.max, max), sums.exp)};
        moments.entropy += sums.entropy;
        if (weighs_classes()) {
            add_weights(row, vectors, begin, n);
        } else {
            moments.below += sums.below;
            moments.weight += static_cast<float>(classes);
        }
        if (largest > moments.best) {
            moments.best = largest;
            moments.best_column = row.chunks_summed;  // until find_best_column()
        }
        __syncwarp();
    }

    // What is not of the row at the start of a chunk becomes -inf. Each lane writes where it will read.
    __device__ void clear_skipped(const Row &row, uint4 *vectors) const {
        if (!aligned && lane < skip(row.place, row.chunks_summed))
            vectors[lane] = make_uint4(minus_infinity, minus_infinity, minus_infinity, minus_infinity);
    }

    __device__ void sum_chunk(Row &row, uint4 *vectors) const {
        const int n = partition_of(row.place).size(row.chunks_summed);
        clear_skipped(row, vectors);
        if (row.chunks_summed == row.target_chunk && reads_target(row)) {
            // The lane that reads the label's logit takes it out of the ring.
            T *const element = reinterpret_cast<T *>(vectors) + row.target_element;
            row.target = Element<T>::to_float(*element);
            *element = Element<T>::from_float(-INFINITY);
            ptx::reload_memory();
        }
        if (n == chunk_vectors) {
            uint4 x[vectors_per_lane];
#pragma unroll
            for (int i = 0; i < vectors_per_lane; i++) x[i] = vectors[i * warp_lanes + lane];
            add_exp(row.sum, x);
        } else if (n >= worth_all_vectors) {
            uint4 x[vectors_per_lane];
            load_vectors_of(vectors, n, x);
            add_exp(row.sum, x);
        } else {
#pragma unroll 1
            for (int i = 0; i < n; i += warp_lanes) {
                uint4 x[1] = {make_uint4(minus_infinity, minus_infinity, minus_infinity, minus_infinity)};
                if (i + lane < n) x[0] = vectors[i + lane];
                add_exp(row.sum, x);
            }
        }
    }

    // First pass, over the row's chunks up to `end`: this lane's sums over the classes other than the label.
    __device__ void sum_chunks(Row &row, int end) {
        const Partition &partition = partition_of(row.place);
        const int reloaded = partition.chunks() - resident(partition);
#pragma unroll 1
        for (; row.chunks_summed < end; row.chunks_summed++) {
            ptx::mbarrier_wait(full + sum_slot, sum_parity);
            if constexpr (extended)
                sum_chunk_extended(row, chunk_in_ring(sum_slot));
            else
                sum_chunk(row, chunk_in_ring(sum_slot));
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

    // A warp that has a row of its own need not send its sums. With the moments they are so many that it does, to have
    // its registers free.
    __device__ bool keeps_sums() const {
        return !extended && team_parts == 1;
    }

    // Sends this warp's part of the row's sums to every block of the team, and the label's logit if it is here.
    __device__ void send(Row &row) const {
        if (extended && p.needs_argmax) find_best_column(row);
        bool owner = reads_target(row);
        if (!aligned && row.place.edge >= 0) {
            const float logit = Element<T>::to_float(row.edge);
            if (row.edge_is_target()) {
                owner = true;
                row.target = scale.value(logit);
                row.target_logit = logit;
            }
            if constexpr (extended) {
                if (!row.edge_is_target()) {
                    row.moments.add_best(logit, row.place.edge);
                    add_class(scale, row.sum, row.moments, logit,
                              weighs_classes() ? __ldg(p.class_weights + row.place.edge) : 1.0f);
                }
            } else if (!row.edge_is_target()) {
                const float max = fmaxf(logit, -FLT_MAX);
                row.sum = combine(scale, row.sum, {max, scale.exp_minus(logit, max)});
            }
        }
        if constexpr (extended) combine_warp(p, scale, row.sum, row.moments);
        row.sum = combine_warp(scale, row.sum);
        const unsigned owners = __ballot_sync(~0u, owner);
        if (owners != 0) {
            row.target = __shfl_sync(~0u, row.target, __ffs(owners) - 1);
            if (extended) row.target_logit = __shfl_sync(~0u, row.target_logit, __ffs(owners) - 1);
        }
        if (keeps_sums()) return;
        const int slot = row.number & (p.exchanges - 1);
        float2 *const part = parts + slot * planes * team_parts + rank * p.team_warps + member;
        const float2 target = make_float2(row.target, extended ? row.target_logit : 0.0f);
        if (blocks == 1) {
            if (lane == 0) {
#pragma unroll
                for (int plane = 0; plane < planes; plane++) part[plane * team_parts] = part_of(row, plane);
                if (owners != 0) targets[slot] = target;
                ptx::mbarrier_arrive(exchange + slot);
            }
            return;
        }
        if (member == 0 && lane == 0)
            ptx::mbarrier_arrive_expect_tx(exchange + slot, (planes * team_parts + (row.label >= 0 ? 1 : 0)) * 8);
        if (lane < blocks) {
            const uint32_t barrier = ptx::mapa(exchange + slot, lane);
#pragma unroll
            for (int plane = 0; plane < planes; plane++)
                ptx::st_async(ptx::mapa(part + plane * team_parts, lane), part_of(row, plane), barrier);
            if (owners != 0) ptx::st_async(ptx::mapa(targets + slot, lane), target, barrier);
        }
    }

    // This warp's part of a row's sums, as it is sent.
    __device__ static float2 part_of(const Row &row, int plane) {
        if (plane == 0) return make_float2(row.sum.max, row.sum.sum);
        if (plane == 1) return make_float2(row.moments.best, __int_as_float(row.moments.best_column));
        if (plane == 2) return make_float2(row.moments.below, row.moments.weight);
        return make_float2(row.moments.entropy, 0.0f);
    }

    // Of all warps, the first computes the outputs; the gradient needs no moment but the entropy, if that.
    __device__ bool wants_moments() const {
        return extended && (leads() || p.row_dentropy != nullptr);
    }

    // Waits for the parts of the whole team and puts them together.
    __device__ void receive(Row &row) const {
        if (keeps_sums()) return;
        const int slot = row.number & (p.exchanges - 1);
        ptx::mbarrier_wait_cluster(exchange + slot, (row.number & p.exchanges) != 0);
        const float2 *const part = parts + slot * planes * team_parts;
        row.sum = ExpSum();
        row.moments = Moments();
#pragma unroll 1
        for (int i = lane; i < team_parts; i += warp_lanes) {
            const ExpSum sum{part[i].x, part[i].y}, both = combine(scale, row.sum, sum);
            if (wants_moments()) {
                const float2 best = part[team_parts + i], below = part[2 * team_parts + i];
                Moments other{part[3 * team_parts + i].x, below.x, below.y, best.x, __float_as_int(best.y)};
                other.move(scale, sum.sum, sum.max, both.max);
                row.moments.move(scale, row.sum.sum, row.sum.max, both.max);
                row.moments.add(other);
            }
            row.sum = both;
        }
        if (wants_moments()) combine_warp(p, scale, row.sum, row.moments);
        row.sum = combine_warp(scale, row.sum);
        if (row.label >= 0) {
            row.target = targets[slot].x;
            if (extended) row.target_logit = targets[slot].y;
        }
    }

    template <Form form, bool near, int count>
    __device__ void replace_by_gradient(uint4 (&x)[count], const RowResult &result) const {
#pragma unroll
        for (int i = 0; i < count; i++) {
            float f[per_vector];
            Element<T>::unpack(x[i], f);
#pragma unroll
            for (int k = 0; k < per_vector; k++) f[k] = class_gradient<terms, form, near>(scale, result, f[k]);
            x[i] = Element<T>::pack(f);
        }
    }

    template <Form form, int count>
    __device__ void replace_by_gradient(uint4 (&x)[count], const RowResult &result) const {
        if constexpr (terms == Terms::capped && count > 1) {
            if (scale.is_near(max_magnitude<T>(x))) {
                replace_by_gradient<form, true>(x, result);
                return;
            }
        }
        replace_by_gradient<form, false>(x, result);
    }

    // The same where every class has its own weight in the label smoothing.
    __device__ void replace_by_weighted_gradient(uint4 *vectors, int begin, int size, int column,
                                                 const RowResult &result) const {
#pragma unroll 1
        for (int i = lane; i < size; i += warp_lanes) {
            if (i < begin) continue;  // not of this row, so neither are the columns
            float f[per_vector];
            Element<T>::unpack(vectors[i], f);
            float weights[per_vector];
            load_class_weights<T>(p, column + i * per_vector, weights);
#pragma unroll
            for (int k = 0; k < per_vector; k++)
                f[k] = class_gradient<terms, Form::any>(scale, result, f[k], weights[k]);
            vectors[i] = Element<T>::pack(f);
        }
    }

    // Second pass: the gradient replaces the logits, in the ring and then in memory.
    template <Form form>
    __device__ void gradient(const Row &row, const RowResult &result, const RowFactors &row_factors, float entropy) {
        const Partition &partition = partition_of(row.place);
        T *const dlogits = dlogits_row(row.index);
        uint4 *const stored_vectors = first_chunk(dlogits, row.place);
        const int chunks = partition.chunks(), reloaded = chunks - resident(partition);
        const bool weighted = weighs_classes();
        // The first pass has freed these slots.
        if (reloaded > 0 && p.computes_outputs) gradient_slot = (gradient_slot + reloaded) % p.slots;
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
            const int n = partition.size(chunk), begin = skip(row.place, chunk);
            const bool with_label = chunk == row.target_chunk && reads_target(row);
            T *const label_element = reinterpret_cast<T *>(vectors) + row.target_element;
            const float label_logit = with_label ? Element<T>::to_float(*label_element) : 0.0f;
            if (weighted) {
                replace_by_weighted_gradient(vectors, begin, n, first_column(row, chunk), result);
            } else if (n >= worth_all_vectors) {
                uint4 x[vectors_per_lane];
#pragma unroll
                for (int k = 0; k < vectors_per_lane; k++) x[k] = vectors[k * warp_lanes + lane];
                replace_by_gradient<form>(x, result);
#pragma unroll
                for (int k = 0; k < vectors_per_lane; k++) vectors[k * warp_lanes + lane] = x[k];
            } else {
#pragma unroll 1
                for (int k = lane; k < n; k += warp_lanes) {
                    uint4 x[1] = {vectors[k]};
                    replace_by_gradient<form>(x, result);
                    vectors[k] = x[0];
                }
            }
            if (with_label)
                *label_element = Element<T>::from_float(
                    label_gradient(p, factors, scale, row.summed(), row_factors, entropy, result, label_logit));
            ptx::fence_proxy_async();
            __syncwarp();
            if (ptx::elect_sync()) {
                ptx::cp_async_bulk_store(stored_vectors + offset(partition, chunk) + begin, vectors + begin,
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
        if (!aligned && row.place.edge >= 0) {
            const float logit = Element<T>::to_float(row.edge);
            const float weight = weighted ? __ldg(p.class_weights + row.place.edge) : 1.0f;
            dlogits[row.place.edge] = Element<T>::from_float(
                row.edge_is_target()
                    ? label_gradient(p, factors, scale, row.summed(), row_factors, entropy, result, logit)
                    : class_gradient<terms, Form::any>(scale, result, logit, weight));
        }
    }

    __device__ void gradient(const Row &row, const RowFactors &row_factors) {
        const float entropy = entropy_of(row);
        const RowResult result = p.saved_lse != nullptr
                                     ? finish_row_of_lse<T>(p, factors, scale, row.sum.max, row.label >= 0, row_factors)
                                     : finish_row<T>(p, factors, scale, row.summed(), row_factors, entropy);
        constexpr bool fuses = fuses_powers<T>;
        if ((extended && p.row_dentropy != nullptr) || (fuses && result.subtracted != 0.0f))
            gradient<Form::any>(row, result, row_factors, entropy);
        else if (!fuses && !extended && result.scale == 1.0f)
            gradient<Form::softmax>(row, result, row_factors, entropy);
        else
            gradient<fuses ? Form::fused : Form::without_entropy>(row, result, row_factors, entropy);
    }

    __device__ void keep(const Row &row, const RowFactors &row_factors) {
        if (!leads()) return;
        if (lane == kept) {
            kept_row = {row.summed(), row.index, row_factors.weight, 0};
            if constexpr (extended) {
                kept_row.argmax = argmax(row.moments, row.target_logit, row.label);
                kept_moments = row.moments;
            }
        }
        if (++kept == warp_lanes) add_kept();
    }

    __device__ void add_kept() {
        if (lane < kept) sums.add(p, factors, scale, kept_row, kept_moments);
        kept = 0;
    }

    __device__ float entropy_of(const Row &row) const {
        if constexpr (extended) {
            if (!p.computes_outputs) return row.moments.entropy;  // as it was saved
            if (p.row_dentropy != nullptr) return row_entropy(scale, row.summed(), row.moments);
        }
        return 0.0f;
    }

    __device__ void run_rows() {
        Row row, next;
        bool have_row = false, more = true;
        while (more || have_row) {
            more = more && next_row(next);
            // The next row's first pass: as far as the ring can hold that row while it still holds this one, and, when
            // this one is done, the rest.
            const int next_chunks = more ? partition_of(next.place).chunks() : 0;
            int end = next_chunks;
            if (have_row && p.computes_gradient)
                end = min(end, p.slots - p.stores_pending - partition_of(row.place).chunks());
            bool sent = !more || !p.computes_outputs;
#pragma unroll 1
            for (int part = 0; part < 2; part++) {
                if (!sent) {
                    sum_chunks(next, end);
                    if (next.chunks_summed == next_chunks) {
                        send(next);
                        sent = true;
                    }
                }
                end = next_chunks;
                if (have_row) {
                    // Before the wait for the sums, not earlier: they would take registers from the first pass.
                    const RowFactors row_factors = load_factors(p, row.index, row.label);
                    if (p.computes_outputs) receive(row);
                    if (p.computes_gradient) gradient(row, row_factors);
                    if (p.computes_outputs) keep(row, row_factors);
                    have_row = false;
                }
            }
            row = next;
            have_row = more;
        }
    }

public:
    __device__ RingWarp(const RingParameters &parameters, unsigned char *shared, int warp, int lane_, int rank_,
                        int blocks_)
        : p(parameters),
          scale(parameters),
          lane(lane_),
          rank(rank_),
          blocks(blocks_),
          member(warp & (p.team_warps - 1)),
          team_parts(blocks_ * p.team_warps),
          row_stride(static_cast<int64_t>(gridDim.x / blocks_) * (ring_warps / p.team_warps)),
          team(static_cast<int64_t>(blockIdx.x / blocks_) * (ring_warps / p.team_warps) + warp / p.team_warps),
          ring(reinterpret_cast<uint4 *>(shared) + warp * p.slots * chunk_vectors),
          full(reinterpret_cast<uint64_t *>(shared + p.layout.full) + warp * p.slots),
          exchange(reinterpret_cast<uint64_t *>(shared + p.layout.exchange) + warp / p.team_warps * p.exchanges),
          parts(reinterpret_cast<float2 *>(shared + p.layout.parts) +
                warp / p.team_warps * p.exchanges * planes * team_parts),
          targets(reinterpret_cast<float2 *>(shared + p.layout.targets) + warp / p.team_warps * p.exchanges),
          aligned_partition(divide(p.row_vectors)) {
        next_row_index = team;
        next_label = label_of(next_row_index);
        load_row = next_row_index;
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
        ptx::griddepcontrol_wait();
        factors = load_factors(p, lane);
        run_rows();
        // The copy engine must have read the last chunks before the block gives up its shared memory.
        if (ptx::elect_sync()) ptx::cp_async_bulk_wait_group_read<0>();
        if (!leads()) return;
        add_kept();
        sums.combine_lanes();
        if (lane == 0) store_sums(p, sums, team);
    }
};

template <typename T, bool aligned, Terms terms>
__global__ void __launch_bounds__(ring_warps *warp_lanes, 1) ring_kernel(const __grid_constant__ RingParameters p) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char shared[];
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warp_lanes, 0);  // uniform to the compiler too
    RingWarp<T, aligned, terms> ring_warp(p, shared, warp, static_cast<int>(threadIdx.x) % warp_lanes,
                                          static_cast<int>(ptx::cluster_ctarank()),
                                          static_cast<int>(ptx::cluster_nctarank()));
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
