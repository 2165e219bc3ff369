// Rows in blocks, for the sweeps that go through their logits more than once: all but the first time from the nearest
// cache.
#pragma once

#include "cpu/elements.h"
#include "cpu/vector_math.h"

namespace gh::cpu {
namespace {

constexpr int64_t block_pairs = 64;

template <class S>
inline constexpr int64_t block_size = block_pairs *pair_size<S>;

// The elements of one block as whole pairs: where they are, or if the last pair is incomplete or an element is to be
// replaced, in a copy.
template <class S, class T>
struct Block {
    const typename T::Element *elements;
    int64_t pairs;

    Block(const typename T::Element *x, int64_t size, typename T::Element filling, int64_t replaced = -1)
        : elements(x), pairs((size + pair_size<S> - 1) / pair_size<S>) {
        const bool replaces = replaced >= 0 && replaced < size;
        if (!replaces && size % pair_size<S> == 0) return;
        memcpy(copy, x, static_cast<size_t>(size) * sizeof(copy[0]));
        for (int64_t i = size; i < pairs * pair_size<S>; i++) copy[i] = filling;
        if (replaces) copy[replaced] = filling;
        elements = copy;
    }
    Block(const Block &) = delete;

    typename S::Pair operator[](int64_t pair) const { return S::load(T{}, elements + pair * pair_size<S>); }

private:
    alignas(64) typename T::Element copy[block_size<S>];
};

// What a softcap makes of a block. Its constants and those of an exponential together would not fit into registers.
template <class S, bool with_slope>
struct CappedBlock {
    int64_t pairs;

    template <class T>
    CappedBlock(const Block<S, T> &block, const Softcap<S> &cap) : pairs(block.pairs) {
        for (int64_t i = 0; i < pairs; i++) {
            const auto capped = cap(block[i]);
            S::store(F32{}, values + i * pair_size<S>, {capped.a.x, capped.b.x});
            if constexpr (with_slope) S::store(F32{}, slopes + i * pair_size<S>, {capped.a.slope, capped.b.slope});
        }
    }

    typename S::Pair operator[](int64_t pair) const { return S::load(F32{}, values + pair * pair_size<S>); }
    typename S::Pair slope(int64_t pair) const { return S::load(F32{}, slopes + pair * pair_size<S>); }

private:
    alignas(64) float values[block_size<S>];
    alignas(64) float slopes[with_slope ? block_size<S> : 1];
};

}  // namespace
}  // namespace gh::cpu
