// The CUDA driver, as far as the CUDA runtime does not cover it.
#pragma once

#include <cuda.h>

#include "greyhound/greyhound.h"

namespace gh::cuda {

// The few driver calls that the runtime does not offer, or does not allow during stream capture. Taken from the driver
// that is there when they are first needed, so that the library loads on a machine without one.
struct Driver {
    CUresult (*stream_get_context)(CUstream, CUcontext *);
    CUresult (*context_get_current)(CUcontext *);
    CUresult (*context_push)(CUcontext);
    CUresult (*context_pop)(CUcontext *);
    CUresult (*context_get_device)(CUdevice *);
    CUresult (*pointer_get_attributes)(unsigned int, CUpointer_attribute *, void **, CUdeviceptr);
};

// Fails if this machine has no driver or no device.
gh_status find_driver(const Driver *&driver);

}  // namespace gh::cuda
