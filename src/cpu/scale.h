// Scaling a gradient on the calling process's cores, done on return.
#pragma once

#include "cpu/kernels.h"
#include "scale_dlogits.h"

namespace gh::cpu {

// With the best instruction set that this processor has.
void scale_dlogits(const ScaleDlogits &call);

// The same with a given instruction set, which must be available(): for tests.
void scale_dlogits(const ScaleDlogits &call, Isa isa);

}  // namespace gh::cpu
