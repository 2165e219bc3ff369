#include "cuda/pointers.h"

#include "status.h"

namespace gh::cuda {
namespace {

// Bits of CU_POINTER_ATTRIBUTE_ACCESS_FLAGS.
enum Access : unsigned long long { read = 1, read_write = 3 };

// May the device use this pointer as it is?
gh_status check_pointer(const Driver &driver, const Device &device, int ordinal, const Argument &argument) {
    const char *name = argument.name;
    const void *pointer = argument.pointer;
    const Access needed = argument.written() ? read_write : read;
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    unsigned long long access = 0;
    CUdeviceptr device_pointer = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *values[] = {&access, &device_pointer};
    const CUresult result = driver.pointer_get_attributes(2, attributes, values, address);
    if (result == CUDA_SUCCESS && device_pointer == address && (access & needed) == needed) return GH_SUCCESS;

    // Not so, or not certain. What kind of memory is it?
    unsigned int type = 0;
    int owner = -1;
    CUpointer_attribute kinds[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *kind_values[] = {&type, &owner};
    if (driver.pointer_get_attributes(2, kinds, kind_values, address) != CUDA_SUCCESS) type = 0;
    if (type == 0) {
        if (device.pageable_access) return GH_SUCCESS;
        return fail(GH_ERROR_UNREACHABLE_POINTER, "%s = %p: host memory that CUDA device %d cannot access", name,
                    pointer, ordinal);
    }
    if (type == CU_MEMORYTYPE_HOST)
        return fail(GH_ERROR_UNREACHABLE_POINTER,
                    "%s = %p: registered host memory that CUDA device %d can access only at another address", name,
                    pointer, ordinal);
    return fail(GH_ERROR_UNREACHABLE_POINTER, "%s = %p: memory of CUDA device %d that the stream's device %d cannot %s",
                name, pointer, owner, ordinal, needed == read ? "read" : "write");
}

}  // namespace

gh_status check_pointers(const Driver &driver, const Device &device, int ordinal, const Arguments &arguments) {
    const Argument *last = nullptr;
    for (const Argument &argument : arguments) {
        if (argument.bytes == 0) continue;
        // Each question costs time, and the summed outputs are mostly neighbours. Every allocation of CUDA's starts at
        // a multiple of 256 bytes, so that the same 256 bytes are the same memory.
        if (last != nullptr && last->begin() / 256 == argument.begin() / 256 &&
            (last->written() || !argument.written()))
            continue;
        if (gh_status status = check_pointer(driver, device, ordinal, argument)) return status;
        last = &argument;
    }
    return GH_SUCCESS;
}

}  // namespace gh::cuda
