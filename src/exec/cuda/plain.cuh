// Words of 8 bytes in plain memory: a caller's, of any alignment and length, or that of pipes and windows.
//
// Pure functions of the calling thread. A caller's buffer is aligned to its element and never touched beyond its end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cuda/arch/memory.cuh"

namespace tutti::exec::cuda {

/// Loads `bytes` <= 8 from plain memory of any alignment; what lies beyond is zero.
__device__ __forceinline__ uint64_t loadPlainSlowly(const std::byte* p, uint32_t bytes, uint32_t elementBytes) {
  uint64_t word = 0;
  if (elementBytes == 8) return *reinterpret_cast<const uint64_t*>(p);
  if (elementBytes == 4) {
#pragma unroll 1
    for (uint32_t i = 0; i < bytes; i += 4) word |= static_cast<uint64_t>(*reinterpret_cast<const uint32_t*>(p + i)) << (8 * i);
  } else if (elementBytes == 2) {
#pragma unroll 1
    for (uint32_t i = 0; i < bytes; i += 2) word |= static_cast<uint64_t>(*reinterpret_cast<const uint16_t*>(p + i)) << (8 * i);
  } else {
#pragma unroll 1
    for (uint32_t i = 0; i < bytes; ++i) word |= static_cast<uint64_t>(*reinterpret_cast<const uint8_t*>(p + i)) << (8 * i);
  }
  return word;
}
__device__ __forceinline__ void storePlainSlowly(std::byte* p, uint64_t word, uint32_t bytes, uint32_t elementBytes) {
  if (elementBytes == 8) {
    *reinterpret_cast<uint64_t*>(p) = word;
  } else if (elementBytes == 4) {
#pragma unroll 1
    for (uint32_t i = 0; i < bytes; i += 4) *reinterpret_cast<uint32_t*>(p + i) = static_cast<uint32_t>(word >> (8 * i));
  } else if (elementBytes == 2) {
#pragma unroll 1
    for (uint32_t i = 0; i < bytes; i += 2) *reinterpret_cast<uint16_t*>(p + i) = static_cast<uint16_t>(word >> (8 * i));
  } else {
#pragma unroll 1
    for (uint32_t i = 0; i < bytes; ++i) *reinterpret_cast<uint8_t*>(p + i) = static_cast<uint8_t>(word >> (8 * i));
  }
}

/// The word at byte `at` of a job's plain memory, `at` a multiple of 8. Memory that is not the caller's is always aligned and whole.
__device__ __forceinline__ uint64_t loadPlain(const std::byte* base, uint64_t at, uint64_t bytes, uint32_t elementBytes) {
  const std::byte* p = base + at;
  if (at >= bytes) return 0;
  if (at + 8 <= bytes && reinterpret_cast<uintptr_t>(p) % 8 == 0) return arch::loadWeak(reinterpret_cast<const uint64_t*>(p));
  return loadPlainSlowly(p, static_cast<uint32_t>(min(bytes - at, uint64_t{8})), elementBytes);
}
__device__ __forceinline__ void storePlain(std::byte* base, uint64_t at, uint64_t word, uint64_t bytes, uint32_t elementBytes) {
  std::byte* p = base + at;
  if (at >= bytes) return;
  if (at + 8 <= bytes && reinterpret_cast<uintptr_t>(p) % 8 == 0) {
    arch::storeWeak(reinterpret_cast<uint64_t*>(p), word);
  } else {
    storePlainSlowly(p, word, static_cast<uint32_t>(min(bytes - at, uint64_t{8})), elementBytes);
  }
}

}  // namespace tutti::exec::cuda
