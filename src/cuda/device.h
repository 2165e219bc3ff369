// What the engine knows of a CUDA device.
#pragma once

#include "greyhound/greyhound.h"
#include "plan/plan.h"

namespace gh::cuda {

struct Device {
    DeviceProperties properties;
    bool pageable_access;  // kernels may use any host memory
};

// The device with this ordinal, which must be current; its kernels are then ready to be launched.
gh_status find_device(int ordinal, const Device *&found);

}  // namespace gh::cuda
