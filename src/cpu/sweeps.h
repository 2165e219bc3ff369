// The table of an instruction set's sweeps. For the layer `S` of SIMD operations see elements.h.
#pragma once

#include "cpu/gradients.h"
#include "cpu/sums.h"

namespace gh::cpu {
namespace {

template <class S>
double map_one(const LogitMap &map, float logit) {
    return map.softcap == 0 ? Scaled<S>::x(&map, logit) : Softcapped<S>::x(&map, logit);
}

template <class S, class T>
constexpr Kernels make_kernels() {
    return {exp_sum<S, T>, weighted_distance<S, T>, find<S, T>,     exp_scale<S, T>, gradient<S, T>, scale<S, T>,
            map_one<S>,    load_one<S, T>,          store_one<S, T>};
}

template <class S>
const Kernels &kernels_of(gh_dtype dtype) {
    static constexpr Kernels f32 = make_kernels<S, F32>(), f16 = make_kernels<S, F16>(), bf16 = make_kernels<S, BF16>();
    return dtype == GH_DTYPE_F32 ? f32 : dtype == GH_DTYPE_F16 ? f16 : bf16;
}

}  // namespace
}  // namespace gh::cpu
