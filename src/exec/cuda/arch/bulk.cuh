// The bulk copy engine of sm_90 and later: one PTX instruction a function. On older architectures nothing here may be called.
//
// A copy from global memory completes a transaction barrier in shared memory; a copy to global memory belongs to a group of its thread.
// 1. Addresses and sizes are multiples of 16 bytes.
// 2. Such a barrier has phases: one ends when its arrivals, and the bytes that were announced, have come. What was done before an arrival
//    is visible to the block's threads that have seen the phase end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::exec::cuda::arch {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasBulk = true;
#else
inline constexpr bool kHasBulk = false;
#endif

__device__ __forceinline__ uint32_t sharedAddress(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void initBarrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arriveAt(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(sharedAddress(barrier)) : "memory");
}
/// An arrival that announces what bulkLoad() will bring.
__device__ __forceinline__ void expectBytes(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(bytes) : "memory");
}
/// Whether the latest phase of this parity has ended; the first phase has parity 0. May wait a little.
__device__ __forceinline__ bool hasCompleted(uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(sharedAddress(barrier)), "r"(parity)
               : "memory");
  return done != 0;
}
__device__ __forceinline__ void bulkLoad(void* shared, const std::byte* global, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sharedAddress(shared)),
               "l"(global), "r"(bytes), "r"(sharedAddress(barrier))
               : "memory");
}
__device__ __forceinline__ void bulkStore(std::byte* global, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(sharedAddress(shared)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commitStores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until all but the latest kGroups of this thread's groups have read their shared memory.
template <int kGroups>
__device__ __forceinline__ void awaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
/// Until all of this thread's stores have been made, and are visible to it.
__device__ __forceinline__ void awaitStores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/// Orders what was read and written by ordinary accesses before the engine's.
__device__ __forceinline__ void fenceProxyAsync() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace tutti::exec::cuda::arch
