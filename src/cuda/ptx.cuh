// Inline PTX, one wrapper per instruction, named after it. No algorithm lives here.
// Reference: the PTX ISA manual, chapters "mbarrier", "cp.async.bulk", "st.async".
#pragma once

#include <cstdint>

namespace gh::ptx {

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 2^x, about 2 ulp; results below the normal range become 0.
__device__ __forceinline__ float ex2_approx_ftz(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x, about 1 ulp.
__device__ __forceinline__ float rcp_approx_ftz(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Memory that was written as one type is read again as another, and not taken from a register.
__device__ __forceinline__ void reload_memory() {
    asm volatile("" ::: "memory");
}

// True in one lane of the warp, always the same; all 32 must call. Unlike `lane == 0` it tells the compiler that it is
// one, so that an instruction with uniform operands needs no loop over lanes.
__device__ __forceinline__ bool elect_sync() {
    uint32_t elected;
    asm volatile(
        "{\n"
        ".reg .pred one;\n"
        "elect.sync _|one, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, one;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
}

// ---- mbarrier ----------------------------------------------------------------------------------

__device__ __forceinline__ void mbarrier_init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives once and announces `bytes` that asynchronous operations will write.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of the given parity has completed, acquiring what this block's copy engine wrote.
__device__ __forceinline__ void mbarrier_wait(uint64_t *barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// As mbarrier_wait, acquiring what other blocks of the cluster wrote.
__device__ __forceinline__ void mbarrier_wait_cluster(uint64_t *barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// ---- Bulk copies -------------------------------------------------------------------------------

__device__ __forceinline__ uint64_t createpolicy_evict_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t createpolicy_evict_last() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// What createpolicy makes of fractions of 1, on every architecture that has it. As a constant it stays in uniform
// registers, where accesses to memory want it; a result of the instruction is often moved there for each of them.
constexpr uint64_t evict_first_policy = 0x12f0000000000000, evict_last_policy = 0x14f0000000000000;

// Global to shared memory; completes `bytes` on the barrier. Both addresses and the size are multiples of 16.
__device__ __forceinline__ void cp_async_bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *barrier,
                                                   uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
}

// Shared to global memory, as part of the thread's current bulk group.
__device__ __forceinline__ void cp_async_bulk_store(void *global, const void *shared, uint32_t bytes, uint64_t policy) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(global),
                 "r"(shared_address(shared)), "r"(bytes), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void cp_async_bulk_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most `pending` of this thread's bulk groups still read shared memory.
template <int pending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Orders this thread's ordinary shared-memory accesses before later accesses by the copy engine.
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Copies by a thread ------------------------------------------------------------------------

// Global to shared memory, around L1; done when the same thread has waited. Both are aligned to 16 bytes. Predicated,
// as with branches between them, several of these take several times as long to issue.
__device__ __forceinline__ void cp_async_16_if(bool condition, void *shared, const void *global, uint64_t policy) {
    asm volatile(
        "{\n"
        ".reg .pred condition;\n"
        "setp.ne.s32 condition, %0, 0;\n"
        "@condition cp.async.cg.shared.global.L2::cache_hint [%1], [%2], 16, %3;\n"
        "}" ::"r"(static_cast<int>(condition)),
        "r"(shared_address(shared)), "l"(global), "l"(policy)
        : "memory");
}

// Waits for all that this thread has copied.
__device__ __forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// ---- Ordinary global accesses with a cache hint ----------------------------------------------------

// The same with an L2 policy.
__device__ __forceinline__ uint4 ld_global_hint(const uint4 *pointer, uint64_t policy) {
    uint4 value;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(pointer), "l"(policy)
                 : "memory");
    return value;
}

__device__ __forceinline__ void st_global_hint(uint4 *pointer, uint4 value, uint64_t policy) {
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(pointer), "r"(value.x),
                 "r"(value.y), "r"(value.z), "r"(value.w), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void st_global(void *pointer, uint16_t bits) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(pointer), "h"(bits) : "memory");
}

__device__ __forceinline__ void st_global(void *pointer, uint32_t bits) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(pointer), "r"(bits) : "memory");
}

// Predicated, as cp_async_16_if().
__device__ __forceinline__ void st_global_hint_if(bool condition, uint4 *pointer, uint4 value, uint64_t policy) {
    asm volatile(
        "{\n"
        ".reg .pred condition;\n"
        "setp.ne.s32 condition, %0, 0;\n"
        "@condition st.global.L2::cache_hint.v4.u32 [%1], {%2, %3, %4, %5}, %6;\n"
        "}" ::"r"(static_cast<int>(condition)),
        "l"(pointer), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "l"(policy)
        : "memory");
}

// Writes data that will not be read soon.
__device__ __forceinline__ void st_global_cs(uint4 *pointer, uint4 value) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(value.x), "r"(value.y), "r"(value.z),
                 "r"(value.w)
                 : "memory");
}

// Reads around L1: for data that no other access to this multiprocessor will want.
__device__ __forceinline__ uint4 ld_global_no_allocate(const uint4 *pointer) {
    uint4 value;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(pointer)
                 : "memory");
    return value;
}

// ---- Dependent launches ---------------------------------------------------------------------------

// Lets a dependent kernel start when all blocks have called this.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel that this one depends on has completed, and what it wrote can be seen.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- Clusters ----------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t cluster_ctarank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ uint32_t cluster_nctarank() {
    uint32_t count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
}

__device__ __forceinline__ void barrier_cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void barrier_cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address, in block `rank` of the cluster, of what lies at `shared` in this block.
__device__ __forceinline__ uint32_t mapa(const void *shared, uint32_t rank) {
    uint32_t remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(shared)), "r"(rank));
    return remote;
}

// Stores 8 bytes in another block's shared memory and completes 8 bytes on that block's barrier.
__device__ __forceinline__ void st_async(uint32_t remote, float2 value, uint32_t remote_barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(remote),
                 "f"(value.x), "f"(value.y), "r"(remote_barrier)
                 : "memory");
}

}  // namespace gh::ptx
