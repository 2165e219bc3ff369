#include "cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gh::cpu {

#if defined(__x86_64__)

namespace {

// Not every compiler's __builtin_cpu_supports() knows this one.
bool has_f16c() {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

}  // namespace

bool available(Isa isa) {
    switch (isa) {
        case Isa::portable: return true;
        case Isa::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
        case Isa::avx512:
            return available(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    }
    return false;
}

const Kernels &kernels(Isa isa, gh_dtype dtype) {
    switch (isa) {
        case Isa::avx2: return avx2_kernels(dtype);
        case Isa::avx512: return avx512_kernels(dtype);
        case Isa::portable: break;
    }
    return portable_kernels(dtype);
}

#else

bool available(Isa isa) {
    return isa == Isa::portable;
}

const Kernels &kernels(Isa, gh_dtype dtype) {
    return portable_kernels(dtype);
}

#endif

Isa best_isa() {
    if (available(Isa::avx512)) return Isa::avx512;
    if (available(Isa::avx2)) return Isa::avx2;
    return Isa::portable;
}

}  // namespace gh::cpu
