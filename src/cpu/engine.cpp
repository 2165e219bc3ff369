#include "cpu/engine.h"

#include <cmath>
#include <cstring>

namespace gh::cpu {
namespace {

float load_bf16(uint16_t bits) {
    uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

uint16_t store_bf16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float get(const void *p, gh_dtype dtype, int64_t i) {
    if (dtype == GH_DTYPE_F32) return static_cast<const float *>(p)[i];
    if (dtype == GH_DTYPE_BF16) return load_bf16(static_cast<const uint16_t *>(p)[i]);
    return static_cast<float>(static_cast<const _Float16 *>(p)[i]);
}

void put(void *p, gh_dtype dtype, int64_t i, double v) {
    if (dtype == GH_DTYPE_F32) static_cast<float *>(p)[i] = static_cast<float>(v);
    else if (dtype == GH_DTYPE_BF16) static_cast<uint16_t *>(p)[i] = store_bf16(static_cast<float>(v));
    else static_cast<_Float16 *>(p)[i] = static_cast<_Float16>(static_cast<float>(v));
}

}  // namespace

gh_status cross_entropy_fwd_bwd(const CrossEntropy &call) {
    double ce = 0, z = 0, n = 0;
    for (int64_t row = 0; row < call.batch; row++) {
        char *x = static_cast<char *>(call.logits) + row * call.vocab * static_cast<int64_t>(element_size(call.dtype));
        const int64_t y = call.labels[row];
        if (y == call.ignore_index) {
            std::memset(x, 0, static_cast<size_t>(call.vocab) * element_size(call.dtype));
            continue;
        }
        double m = -INFINITY, others = 0;
        bool nan = false;
        for (int64_t j = 0; j < call.vocab; j++) {
            const double v = get(x, call.dtype, j);
            nan |= std::isnan(v);
            m = std::fmax(m, v);
        }
        if (nan || std::isinf(m)) m = NAN;
        for (int64_t j = 0; j < call.vocab; j++)
            if (j != y) others += std::exp(get(x, call.dtype, j) - m);
        const double target = std::exp(get(x, call.dtype, y) - m), sum = others + target;
        const double lse = m + std::log(sum);
        ce += target > 0 ? std::log1p(others / target) : lse - get(x, call.dtype, y);
        z += lse * lse;
        n += 1;
        const double zl = 2.0 * call.z_loss_multiplier;
        const double scale = zl == 0 ? 1 : 1 + zl * lse;
        for (int64_t j = 0; j < call.vocab; j++)
            put(x, call.dtype, j, std::exp(get(x, call.dtype, j) - m) / sum * scale);
        put(x, call.dtype, y, -others / sum + target / sum * (scale - 1));
    }
    *call.ce_sum += static_cast<float>(ce);
    if (call.z_sum) *call.z_sum += static_cast<float>(z);
    if (call.n_valid) *call.n_valid += static_cast<float>(n);
    return GH_SUCCESS;
}

}  // namespace gh::cpu
