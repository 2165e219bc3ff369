// The sweeps that read the logits: the sum of exponentials, and what some calls want besides.
#pragma once

#include "cpu/elements.h"
#include "cpu/vector_math.h"

namespace gh::cpu {
namespace {

// ---- The sum of exponentials ----

// Per pair of vectors, added: exp(-d) * 2^bias, and d times that.
template <class S>
struct ExpPair {
    typename S::Vector exps, distances;

    ExpPair operator+(const ExpPair &other) const { return {exps + other.exps, distances + other.distances}; }
};

template <class S, class T, class Difference, bool with_distance>
[[gnu::always_inline]] inline ExpPair<S> exp_pair(const typename T::Element *x, const Difference &difference,
                                                  const Exponent<S> &exponent) {
    const auto v = S::load(T{}, x);
    auto a = difference(v.a), b = difference(v.b);
    if constexpr (with_distance) {
        // So that 0 times the distance is not NaN.
        a = S::max(exponent.lowest, a);
        b = S::max(exponent.lowest, b);
    }
    const auto exp_a = exp_biased<S, true>(a, exponent), exp_b = exp_biased<S, true>(b, exponent);
    if constexpr (with_distance) return {exp_a + exp_b, S::broadcast(0) - (exp_a * a + exp_b * b)};
    return {exp_a + exp_b, S::broadcast(0)};
}

// Lets `sum` be relative to a larger maximum.
template <class Difference>
inline void raise(ExpSum &sum, const LogitMap *map, float max) {
    const double x = Difference::x(map, max);
    if (sum.scale != 0) {
        const double factor = exp(sum.x - x);
        sum.distance = factor * (sum.distance + (x - sum.x) * sum.scale);
        sum.scale *= factor;
    }
    sum.max = max;
    sum.x = x;
}

// Adds the exponentials of at most `block_pairs` pairs to `sum`, of which `at` gives the addresses. The block is read
// twice, the second time from the nearest cache. Only eight numbers at a time are added in fp32: a lane that holds the
// row's largest exponential would lose a bit with every few small ones that are added to it.
constexpr int64_t block_pairs = 64;

template <class S, class T, class Difference, bool with_distance, class At>
inline void add_block(ExpSum &sum, const LogitMap *map, int64_t pairs, const At &at) {
    auto max_a = S::broadcast(-FLT_MAX), max_b = max_a;
    for (int64_t i = 0; i < pairs; i++) {
        const auto v = S::load(T{}, at(i));
        max_a = S::max(v.a, max_a);
        max_b = S::max(v.b, max_b);
    }
    const float block_max = S::reduce_max(S::max(max_a, max_b));
    if (block_max > sum.max) raise<Difference>(sum, map, block_max);

    const Difference difference(map, Difference::anchor_at(map, sum.max));
    const Exponent<S> exponent(usual_bias);
    const auto pair = [&](int64_t i) __attribute__((always_inline)) {
        return exp_pair<S, T, Difference, with_distance>(at(i), difference, exponent);
    };
    typename S::Sum exps, distances;
    const auto add = [&](const ExpPair<S> &terms) {
        exps.add(terms.exps);
        if constexpr (with_distance) distances.add(terms.distances);
    };
    int64_t i = 0;
    for (; pairs - i >= 4; i += 4) add((pair(i) + pair(i + 1)) + (pair(i + 2) + pair(i + 3)));
    for (; i < pairs; i++) add(pair(i));
    sum.scale += exps.total();
    if constexpr (with_distance) sum.distance += distances.total();
}

// The label's logit is left out by taking the pair that it is in from a copy, where it is -inf. So the other logits are
// added in the same order wherever it is.
template <class S, class T, class Difference, bool with_distance>
ExpSum exp_sum_by(const void *data, int64_t count, int64_t label, const LogitMap *map) {
    using Element = typename T::Element;
    constexpr int64_t block_size = block_pairs * pair_size<S>;
    const auto *x = static_cast<const Element *>(data);
    ExpSum sum{-FLT_MAX, Difference::x(map, -FLT_MAX), 0, 0};
    const int64_t rest = count % pair_size<S>, whole = count - rest;
    for (int64_t begin = 0; begin < whole; begin += block_size) {
        const int64_t pairs = (whole - begin < block_size ? whole - begin : block_size) / pair_size<S>;
        const auto at = [&](int64_t i) { return x + begin + i * pair_size<S>; };
        if (label < begin || label >= begin + pairs * pair_size<S>) {
            add_block<S, T, Difference, with_distance>(sum, map, pairs, at);
            continue;
        }
        const int64_t label_pair = (label - begin) / pair_size<S>;
        Tail<S, T> copy(at(label_pair), pair_size<S>);
        copy.elements[(label - begin) % pair_size<S>] = T::minus_infinity;
        add_block<S, T, Difference, with_distance>(sum, map, pairs,
                                                   [&](int64_t i) { return i == label_pair ? copy.elements : at(i); });
    }
    if (rest != 0) {
        Tail<S, T> tail(x + whole, rest);
        if (label >= whole && label < count) tail.elements[label - whole] = T::minus_infinity;
        add_block<S, T, Difference, with_distance>(sum, map, 1, [&](int64_t) { return tail.elements; });
    }
    constexpr double unbias = static_cast<double>(usual_unbias);
    sum.scale *= unbias;
    sum.distance = with_distance ? sum.distance * unbias : static_cast<double>(NAN);
    return sum;
}

template <class S, class T, class Difference>
ExpSum exp_sum_with(const void *x, int64_t count, int64_t label, const LogitMap *map, bool with_distance) {
    return with_distance ? exp_sum_by<S, T, Difference, true>(x, count, label, map)
                         : exp_sum_by<S, T, Difference, false>(x, count, label, map);
}

template <class S, class T>
ExpSum exp_sum(const void *x, int64_t count, int64_t label, const LogitMap *map, bool with_distance) {
    if (map == nullptr) return exp_sum_with<S, T, Plain<S>>(x, count, label, map, with_distance);
    if (map->softcap == 0) return exp_sum_with<S, T, Scaled<S>>(x, count, label, map, with_distance);
    return exp_sum_with<S, T, Softcapped<S>>(x, count, label, map, with_distance);
}

// ---- The distance from the maximum, for label smoothing ----

template <class S>
struct WeightedSum {
    typename S::Sum weights, distances;

    // A difference of infinity comes to nothing if its weight is 0.
    void add(typename S::Vector weight, typename S::Vector difference) {
        const auto zero = S::broadcast(0), product = weight * difference;
        weights.add(weight);
        distances.add(S::max(zero - product, zero) - S::max(product, zero));
    }
};

template <class S, class T, class Difference>
WeightedDistance weighted_distance_by(const void *data, int64_t count, float max, const LogitMap &map,
                                      const float *weights) {
    const auto *x = static_cast<const typename T::Element *>(data);
    const Difference difference(&map, Difference::anchor_at(&map, max));
    const auto one = S::broadcast(1);
    WeightedSum<S> sum;
    const auto add = [&](const typename T::Element *elements, const float *weight) {
        const auto v = S::load(T{}, elements);
        auto w = typename S::Pair{one, one};
        if (weight != nullptr) w = S::load_floats(T{}, weight);
        sum.add(w.a, difference.half(v.a));
        sum.add(w.b, difference.half(v.b));
    };
    const int64_t rest = count % pair_size<S>, whole = count - rest;
    for (int64_t i = 0; i < whole; i += pair_size<S>) add(x + i, weights == nullptr ? nullptr : weights + i);
    double padding = 0;
    if (rest != 0) {
        const Tail<S, T> tail(x + whole, rest, max);
        if (weights == nullptr) {
            add(tail.elements, nullptr);
            padding = static_cast<double>(pair_size<S> - rest);
        } else {
            add(tail.elements, Tail<S, F32>(weights + whole, rest, 0).elements);
        }
    }
    return {sum.weights.total() - padding, 2 * sum.distances.total()};
}

template <class S, class T>
WeightedDistance weighted_distance(const void *x, int64_t count, float max, const LogitMap &map, const float *weights) {
    return map.softcap == 0 ? weighted_distance_by<S, T, Scaled<S>>(x, count, max, map, weights)
                            : weighted_distance_by<S, T, Softcapped<S>>(x, count, max, map, weights);
}

// ---- The index of the maximum ----

template <class S, class T>
int64_t find(const void *data, int64_t count, float value) {
    const auto *x = static_cast<const typename T::Element *>(data);
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
    while (i < count && load_one<S, T>(x + i) != value) i++;
    return i;
}

}  // namespace
}  // namespace gh::cpu
