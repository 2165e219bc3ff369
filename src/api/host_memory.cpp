#include "api/host_memory.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>

#include "status.h"

namespace gh {
namespace {

// From the driver's stable ABI, declared here so that a build without the CUDA toolkit makes the same check.
using PointerGetAttribute = int (*)(void *data, int attribute, unsigned long long pointer);
constexpr int attribute_memory_type = 2;   // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int attribute_host_pointer = 4;  // CU_POINTER_ATTRIBUTE_HOST_POINTER
constexpr int success = 0;                 // CUDA_SUCCESS

// How many objects this process has loaded since it began. Costs a lock and nothing else.
unsigned long long objects_loaded() {
    unsigned long long count = 0;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *out) {
            *static_cast<unsigned long long *>(out) = info->dlpi_adds;
            return 1;  // the first object tells it
        },
        &count);
    return count;
}

// The driver's query, or null while no driver is in this process: then no device memory is either.
PointerGetAttribute driver_query() {
    static std::atomic<PointerGetAttribute> found{nullptr};
    static std::atomic<unsigned long long> absent_at{0};
    PointerGetAttribute query = found.load(std::memory_order_acquire);
    if (query != nullptr) return query;
    // A search that fails walks the whole library path, so search again only when something was loaded.
    const unsigned long long count = objects_loaded();
    if (count == absent_at.load(std::memory_order_relaxed)) return nullptr;
    // The handle is kept open for good: it pins the library that the function lives in.
    if (void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
        query = reinterpret_cast<PointerGetAttribute>(dlsym(driver, "cuPointerGetAttribute"));
        found.store(query, std::memory_order_release);
    } else {
        absent_at.store(count, std::memory_order_relaxed);
    }
    return query;
}

gh_status check(PointerGetAttribute query, const char *name, const void *pointer) {
    const auto address = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(pointer));
    unsigned int memory_type = 0;
    // Memory that CUDA did not allocate or register is unknown to it, and the host's.
    if (query(&memory_type, attribute_memory_type, address) != success) return GH_SUCCESS;
    // Pinned and managed memory have a host address; device memory has none.
    void *host_pointer = nullptr;
    if (query(&host_pointer, attribute_host_pointer, address) == success && host_pointer != nullptr) return GH_SUCCESS;
    return fail(GH_ERROR_UNREACHABLE_POINTER, "%s = %p: device memory, but stream is GH_STREAM_HOST", name, pointer);
}

}  // namespace

gh_status validate_host_memory(const Arguments &arguments) {
    PointerGetAttribute query = driver_query();
    if (query == nullptr) return GH_SUCCESS;
    for (const Argument &argument : arguments)
        if (argument.bytes > 0)
            if (gh_status status = check(query, argument.name, argument.pointer)) return status;
    return GH_SUCCESS;
}

}  // namespace gh
