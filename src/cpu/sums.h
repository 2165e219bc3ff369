// The sweeps that read the logits: the sum of exponentials, and what some calls want besides.
#pragma once

#include "cpu/blocks.h"
#include "cpu/elements.h"
#include "cpu/vector_math.h"

namespace gh::cpu {
namespace {

// The weights of two vectors' elements, added, and the weights times the elements' distances.
template <class S>
struct Weighted {
    typename S::Vector weights, distances;

    Weighted operator+(const Weighted &other) const { return {weights + other.weights, distances + other.distances}; }
};

// Adds up what `terms(i)` makes of each of `pairs` pairs. Only eight numbers at a time are added in fp32: a lane that
// holds the largest number would lose a bit with every few small ones that are added to it.
template <class S, bool with_weights, bool with_distances>
struct WeightedSum {
    typename S::Sum weights, distances;

    template <class Terms>
    void add_all(int64_t pairs, const Terms &terms) {
        int64_t i = 0;
        for (; pairs - i >= 4; i += 4) add((terms(i) + terms(i + 1)) + (terms(i + 2) + terms(i + 3)));
        for (; i < pairs; i++) add(terms(i));
    }

private:
    void add(const Weighted<S> &terms) {
        if constexpr (with_weights) weights.add(terms.weights);
        if constexpr (with_distances) distances.add(terms.distances);
    }
};

// ---- The sum of exponentials ----

// Lets `sum` be relative to a maximum that is not smaller.
template <class Map>
inline void raise(ExpSum &sum, const LogitMap *map, float max) {
    if (!(max > sum.max)) return;
    const double x = Map::x(map, max), rise = fmax(x - sum.x, 0);  // see Softcapped
    if (sum.scale != 0) {
        const double factor = exp(-rise);
        sum.distance = factor * (sum.distance + rise * sum.scale);
        sum.scale *= factor;
    }
    sum.max = max;
    sum.x = x;
}

template <class S, class T>
inline float max_of(const Block<S, T> &block) {
    auto max_a = S::broadcast(-FLT_MAX), max_b = max_a;
    for (int64_t i = 0; i < block.pairs; i++) {
        const auto v = block[i];
        max_a = S::max(v.a, max_a);
        max_b = S::max(v.b, max_b);
    }
    return S::reduce_max(S::max(max_a, max_b));
}

// Adds exp(x - x of the maximum), and the distances times that.
template <class S, bool with_distance, class Values, class Difference>
inline void add_exps(ExpSum &sum, const Values &values, const Difference &difference) {
    const Exponent<S> exponent(usual_bias);
    WeightedSum<S, true, with_distance> block;
    block.add_all(
        values.pairs, [&](int64_t i) __attribute__((always_inline)) {
            auto d = difference(values[i]);
            if constexpr (with_distance) {
                // So that 0 times the distance is not NaN.
                d.a = S::max(exponent.lowest, d.a);
                d.b = S::max(exponent.lowest, d.b);
            }
            const auto a = exp_biased<S, true>(d.a, exponent), b = exp_biased<S, true>(d.b, exponent);
            return Weighted<S>{a + b, with_distance ? S::fma(a, d.a, b * d.b) : S::broadcast(0)};
        });
    sum.scale += block.weights.total();
    if constexpr (with_distance) sum.distance -= block.distances.total();
}

// The label's logit is left out by being -inf in a copy. So the other logits are added in the same order wherever it
// is.
template <class S, class T, class Map, bool with_distance>
ExpSum exp_sum_by(const void *data, int64_t count, int64_t label, const LogitMap *map) {
    const auto *x = static_cast<const typename T::Element *>(data);
    ExpSum sum{-FLT_MAX, Map::x(map, -FLT_MAX), 0, 0};
    for (int64_t begin = 0; begin < count; begin += block_size<S>) {
        const int64_t size = count - begin < block_size<S> ? count - begin : block_size<S>;
        const Block<S, T> block(x + begin, size, T::minus_infinity, label - begin);
        raise<Map>(sum, map, max_of(block));
        if constexpr (Map::caps)
            add_exps<S, with_distance>(sum, CappedBlock<S, false>(block, Softcap<S>(map)),
                                       Softcapped<S>(static_cast<float>(sum.x)));
        else
            add_exps<S, with_distance>(sum, block, Map(map, sum.max));
    }
    constexpr double unbias = static_cast<double>(usual_unbias);
    sum.scale *= unbias;
    sum.distance = with_distance ? sum.distance * unbias : static_cast<double>(NAN);
    return sum;
}

template <class S, class T, class Map>
ExpSum exp_sum_with(const void *x, int64_t count, int64_t label, const LogitMap *map, bool with_distance) {
    return with_distance ? exp_sum_by<S, T, Map, true>(x, count, label, map)
                         : exp_sum_by<S, T, Map, false>(x, count, label, map);
}

template <class S, class T>
ExpSum exp_sum(const void *x, int64_t count, int64_t label, const LogitMap *map, bool with_distance) {
    if (map == nullptr) return exp_sum_with<S, T, Plain<S>>(x, count, label, map, with_distance);
    if (map->softcap == 0) return exp_sum_with<S, T, Scaled<S>>(x, count, label, map, with_distance);
    return exp_sum_with<S, T, Softcapped<S>>(x, count, label, map, with_distance);
}

// ---- The distance from the maximum, for label smoothing ----

// A sixteenth of each distance is added, so that the sum of eight is finite where they are.
constexpr float distance_part = 0x1p-4f;

// How far the values are below the anchor. Weights are in the order of T's elements.
template <class S, class T, bool with_weights, class Values>
inline void add_distances(WeightedSum<S, with_weights, true> &sum, const Values &values, float anchor,
                          const Block<S, F32> *weights) {
    const auto zero = S::broadcast(0), one = S::broadcast(1);
    const auto minus_part = S::broadcast(-distance_part), part_of_anchor = S::broadcast(anchor * distance_part);
    const auto weighted = [&](typename S::Vector weight, typename S::Vector value) __attribute__((always_inline)) {
        const auto distance = S::fma(minus_part, value, part_of_anchor);
        if constexpr (!with_weights) return distance;
        // A distance of infinity comes to nothing if its weight is 0.
        const auto product = weight * distance;
        return S::max(product, zero) - S::max(zero - product, zero);
    };
    sum.add_all(
        values.pairs, [&](int64_t i) __attribute__((always_inline)) {
            const auto v = values[i];
            auto w = typename S::Pair{one, one};
            if constexpr (with_weights) w = S::load_floats(T{}, weights->elements + i * pair_size<S>);
            return Weighted<S>{w.a + w.b, weighted(w.a, v.a) + weighted(w.b, v.b)};
        });
}

template <class S, class T, bool with_weights>
WeightedDistance weighted_distance_by(const void *data, int64_t count, float max, const LogitMap &map,
                                      const float *weights) {
    const auto *x = static_cast<const typename T::Element *>(data);
    typename T::Element padding;
    store_one<S, T>(&padding, max);
    WeightedSum<S, with_weights, true> sum;
    for (int64_t begin = 0; begin < count; begin += block_size<S>) {
        const int64_t size = count - begin < block_size<S> ? count - begin : block_size<S>;
        const Block<S, T> block(x + begin, size, padding);
        const auto add = [&](const Block<S, F32> *block_weights) {
            if (map.softcap == 0) {
                add_distances<S, T>(sum, block, max, block_weights);
            } else {
                const float anchor = static_cast<float>(Softcapped<S>::x(&map, max));
                add_distances<S, T>(sum, CappedBlock<S, false>(block, Softcap<S>(&map)), anchor, block_weights);
            }
        };
        if constexpr (with_weights) {
            const Block<S, F32> block_weights(weights + begin, size, 0);
            add(&block_weights);
        } else {
            add(nullptr);
        }
    }
    const double scale = (map.softcap == 0 ? static_cast<double>(map.scale) : 1) / static_cast<double>(distance_part);
    return {with_weights ? sum.weights.total() : static_cast<double>(count), scale * sum.distances.total()};
}

template <class S, class T>
WeightedDistance weighted_distance(const void *x, int64_t count, float max, const LogitMap &map, const float *weights) {
    return weights == nullptr ? weighted_distance_by<S, T, false>(x, count, max, map, nullptr)
                              : weighted_distance_by<S, T, true>(x, count, max, map, weights);
}

// ---- The index of the maximum ----

template <class S, class T>
int64_t find(const void *data, int64_t count, float value) {
    using Element = typename T::Element;
    const auto *x = static_cast<const Element *>(data);
    const auto largest = [&](int64_t i) {
        const auto v = S::load(T{}, x + i);
        return S::max(v.a, v.b);
    };
    constexpr int64_t step = 4 * pair_size<S>;
    int64_t i = 0;
    // `value` is the largest element up to where it stands.
    while (count - i >= step &&
           S::reduce_max(S::max(S::max(largest(i), largest(i + pair_size<S>)),
                                S::max(largest(i + 2 * pair_size<S>), largest(i + 3 * pair_size<S>)))) < value)
        i += step;
    while (count - i >= pair_size<S> && S::reduce_max(largest(i)) < value) i += pair_size<S>;
    // As elements, of which only the zeros are equal without being the same.
    Element wanted[2];
    store_one<S, T>(&wanted[0], value);
    store_one<S, T>(&wanted[1], value == 0 ? -value : value);
    while (i < count && x[i] != wanted[0] && x[i] != wanted[1]) i++;
    return i;
}

}  // namespace
}  // namespace gh::cpu
