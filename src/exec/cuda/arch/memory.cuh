// Loads, stores and fences of sm_70 and later: one PTX instruction a function, named for what the memory model calls it.
//
// "relaxed" and "acquire/release" are strong accesses at system scope: they meet at the level-2 cache of the GPU that owns the
// memory, also over NVLink, but for the two that say so. "weak" accesses carry bulk data and are ordered only by the barriers and fences
// around them.
// 1. Two 64-bit halves of a 16-byte strong access are each single-copy atomic; the pair is not, by the model.
#pragma once

#include <cstdint>

namespace tutti::exec::cuda::arch {

/// Two 64-bit words that one 16-byte access moves.
struct alignas(16) Words2 {
  uint64_t word[2];
};

__device__ __forceinline__ uint64_t loadRelaxedSys(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t loadRelaxedSys(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ Words2 loadRelaxedSys(const Words2* p) {
  Words2 v;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(v.word[0]), "=l"(v.word[1]) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint64_t loadAcquireSys(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void storeRelaxedSys(uint64_t* p, uint64_t v) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ void storeRelaxedSys(uint32_t* p, uint32_t v) {
  asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ void storeRelaxedSys(Words2* p, Words2 v) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(v.word[0]), "l"(v.word[1]) : "memory");
}
__device__ __forceinline__ void fenceAcqRelSys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
/// Between threads of this device alone: it does not wait until other devices have what was stored for them.
__device__ __forceinline__ void fenceAcqRelGpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ __forceinline__ uint32_t swapRelaxedSys(uint32_t* p, uint32_t v) {
  uint32_t old;
  asm volatile("atom.relaxed.sys.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}
__device__ __forceinline__ uint32_t addRelaxedGpu(uint32_t* p, uint32_t v) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}
/// Puts `v` where `expected` was; false when something else was there.
__device__ __forceinline__ bool replaceRelaxedSys(uint64_t* p, uint64_t expected, uint64_t v) {
  uint64_t old;
  asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(p), "l"(expected), "l"(v) : "memory");
  return old == expected;
}

/// Bulk data that is read once: past the level-1 cache. No memory clobber, so that many loads are in flight at once;
/// volatile keeps them behind the barrier that makes the data visible.
__device__ __forceinline__ Words2 loadWeak(const Words2* p) {
  Words2 v;
  asm volatile("ld.global.L1::no_allocate.v2.b64 {%0, %1}, [%2];" : "=l"(v.word[0]), "=l"(v.word[1]) : "l"(p));
  return v;
}
__device__ __forceinline__ uint64_t loadWeak(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.global.L1::no_allocate.b64 %0, [%1];" : "=l"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t loadWeak(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.L1::no_allocate.b32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ void storeWeak(uint32_t* p, uint32_t v) { asm volatile("st.global.b32 [%0], %1;" ::"l"(p), "r"(v)); }
__device__ __forceinline__ void storeWeak(uint64_t* p, uint64_t v) { asm volatile("st.global.b64 [%0], %1;" ::"l"(p), "l"(v)); }
__device__ __forceinline__ void storeWeak(Words2* p, Words2 v) {
  asm volatile("st.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(v.word[0]), "l"(v.word[1]));
}

}  // namespace tutti::exec::cuda::arch
