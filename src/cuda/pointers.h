// Can a device use the memory that a call names?
#pragma once

#include "arguments.h"
#include "cuda/device.h"
#include "cuda/driver.h"

namespace gh::cuda {

// The device's context must be current.
gh_status check_pointers(const Driver &driver, const Device &device, int ordinal, const Arguments &arguments);

}  // namespace gh::cuda
