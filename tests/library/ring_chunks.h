// How many chunks of a row each warp of the ring kernel has, worked out from the rule alone: the warps of a block take
// turns with full chunks as long as there is one for each, then divide what is left of the block's part evenly, but
// in whole lines of 128 bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace test {

inline int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// The numbers of vectors that a row of this shape may be divided as: one if rows are aligned, else one for each number
// of elements that may come before the first vector and, with chunks cut at lines, of vectors that may come before it
// in its line.
inline std::vector<int64_t> possible_row_vectors(const gh::Shape &shape, bool cut_at_lines) {
    const int64_t per_vector = 16 / shape.element_bytes;
    std::vector<int64_t> counts;
    for (int64_t head = 0; head < (shape.row_alignment >= 16 ? 1 : per_vector); head++)
        for (int64_t skip = 0; skip < (cut_at_lines ? gh::line_vectors : 1); skip++)
            counts.push_back((shape.vocab - std::min(head, shape.vocab)) / per_vector + skip);
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
}

// One block's part of a row.
inline int64_t block_vectors(int64_t row_vectors, int64_t vectors_per_block, int rank) {
    return std::clamp<int64_t>(row_vectors - rank * vectors_per_block, 0, vectors_per_block);
}

// How one warp's share of its block's part is cut.
struct Share {
    int64_t full_chunks, last_vectors;
    int64_t chunks() const { return full_chunks + (last_vectors > 0 ? 1 : 0); }
    int64_t vectors() const { return full_chunks * gh::ring_chunk_vectors + last_vectors; }
};

inline Share warp_share(int64_t part, int team_warps, int warp) {
    const int64_t step = int64_t{team_warps} * gh::ring_chunk_vectors;
    const int64_t left = part % step,
                  each = divide_up(divide_up(left, team_warps), gh::line_vectors) * gh::line_vectors;
    return {part / step, std::clamp<int64_t>(left - warp * each, 0, each)};
}

// The chunks of one warp in a row of this shape, over all alignments that the row may have.
struct Chunks {
    int64_t least, most;
};

// Every warp of the team, block by block.
inline std::vector<Chunks> team_chunks(const gh::Shape &shape, int cluster_blocks, const gh::RingShape &ring) {
    const int team_warps = ring.team_warps;
    std::vector<Chunks> team(static_cast<size_t>(cluster_blocks * team_warps), Chunks{INT64_MAX, 0});
    for (int64_t row_vectors : possible_row_vectors(shape, ring.cut_at_lines))
        for (int rank = 0; rank < cluster_blocks; rank++)
            for (int warp = 0; warp < team_warps; warp++) {
                const int64_t part = block_vectors(row_vectors, ring.vectors_per_block, rank);
                const int64_t chunks = warp_share(part, team_warps, warp).chunks();
                Chunks &range = team[static_cast<size_t>(rank * team_warps + warp)];
                range.least = std::min(range.least, chunks);
                range.most = std::max(range.most, chunks);
            }
    return team;
}

// May a row's sums be sent before the previous row's have been read, by some warp? It may if two whole rows fit into
// the part of its ring that no store still reads. Then four rows' sums may be under way, else two.
inline bool sends_ahead(const std::vector<Chunks> &team, const gh::RingShape &ring) {
    return std::any_of(team.begin(), team.end(),
                       [&](const Chunks &warp) { return 2 * warp.least <= ring.slots - ring.stores_pending; });
}

// A row that is loaded twice frees slots in its first pass. That is wrong while the row before it still has chunks in
// the ring, so no such row may follow one that leaves room for its first chunk.
inline bool loads_in_order(const std::vector<Chunks> &team, const gh::RingShape &ring) {
    const int64_t room = ring.slots - ring.stores_pending;
    return std::none_of(team.begin(), team.end(),
                        [&](const Chunks &warp) { return warp.most > room && warp.least < room; });
}

inline int64_t most_chunks(const std::vector<Chunks> &team) {
    int64_t most = 0;
    for (const Chunks &warp : team) most = std::max(most, warp.most);
    return most;
}

}  // namespace test
