#include "dtypes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace test {
namespace {

struct Format {
    const char *name;
    size_t bytes;
    int fraction_bits;
    int exponent_bits;
};

const Format &format(gh_dtype dtype) {
    static constexpr Format formats[] = {{"F32", 4, 23, 8}, {"F16", 2, 10, 5}, {"BF16", 2, 7, 8}};
    return formats[dtype];
}

int bias(const Format &f) {
    return (1 << (f.exponent_bits - 1)) - 1;
}

uint32_t infinity_bits(const Format &f) {
    return ((1u << f.exponent_bits) - 1) << f.fraction_bits;
}

}  // namespace

const char *dtype_name(gh_dtype dtype) {
    return format(dtype).name;
}

size_t element_size(gh_dtype dtype) {
    return format(dtype).bytes;
}

double largest(gh_dtype dtype) {
    return decode(dtype, infinity_bits(format(dtype)) - 1);
}

double decode(gh_dtype dtype, uint32_t bits) {
    const Format &f = format(dtype);
    const uint32_t sign = bits >> (f.exponent_bits + f.fraction_bits) & 1;
    const uint32_t exponent = bits >> f.fraction_bits & ((1u << f.exponent_bits) - 1);
    const uint32_t fraction = bits & ((1u << f.fraction_bits) - 1);
    double magnitude;
    if (exponent == (1u << f.exponent_bits) - 1) {
        magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    } else {
        const uint32_t significand = exponent ? fraction | 1u << f.fraction_bits : fraction;
        magnitude = std::ldexp(significand, std::max(static_cast<int>(exponent), 1) - bias(f) - f.fraction_bits);
    }
    return sign ? -magnitude : magnitude;
}

uint32_t encode(gh_dtype dtype, double value) {
    const Format &f = format(dtype);
    const uint32_t sign = std::signbit(value) ? 1u << (f.exponent_bits + f.fraction_bits) : 0;
    if (std::isnan(value)) return sign | infinity_bits(f) | 1u << (f.fraction_bits - 1);
    if (std::isinf(value)) return sign | infinity_bits(f);
    if (value == 0) return sign;
    // Subnormals share the spacing of the smallest normal binade.
    const int exponent = std::max(std::ilogb(value), 1 - bias(f));
    if (exponent > bias(f)) return sign | infinity_bits(f);
    const double steps = std::nearbyint(std::ldexp(std::fabs(value), f.fraction_bits - exponent));
    // The hidden bit adds one to the exponent field, and so does a carry out of the fraction.
    const uint32_t bits =
        (static_cast<uint32_t>(exponent + bias(f) - 1) << f.fraction_bits) + static_cast<uint32_t>(steps);
    return sign | std::min(bits, infinity_bits(f));
}

}  // namespace test
