// What every parallel region of the CPU engine needs.
#pragma once

#include <cfenv>
#include <cstdint>

namespace gh::cpu {

// Below so many elements, waking other threads takes longer than the work.
constexpr int64_t min_parallel_elements = 1 << 16;

// A thread may arrive with another rounding mode, or with denormals flushed to zero (as libraries built with
// -ffast-math set it for their whole process), and other threads without: then results would depend on their number.
class DefaultFloatingPoint {
public:
    DefaultFloatingPoint() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
    DefaultFloatingPoint(const DefaultFloatingPoint &) = delete;
    DefaultFloatingPoint &operator=(const DefaultFloatingPoint &) = delete;

private:
    std::fenv_t saved_;
};

}  // namespace gh::cpu
