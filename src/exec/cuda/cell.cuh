// A cell: 16 bytes that hold 8 of data, each half beside a flag of 4, so that whoever sees the flags has the data ("LL").
//
// Pure functions. The flag is the low 32 bits of a piece's number or a round's epoch; window.h and pipe.h say why it may wrap.
#pragma once

#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/plain.cuh"

namespace tutti::exec::cuda {

__device__ __forceinline__ arch::Words2 sealCell(uint64_t word, uint64_t epoch) {
  const uint64_t flag = epoch << 32;
  return {{(word & 0xffffffffu) | flag, word >> 32 | flag}};
}
__device__ __forceinline__ bool isSealed(const arch::Words2& cell, uint64_t epoch) {
  const auto flag = static_cast<uint32_t>(epoch);
  return static_cast<uint32_t>(cell.word[0] >> 32) == flag && static_cast<uint32_t>(cell.word[1] >> 32) == flag;
}
__device__ __forceinline__ uint64_t dataOf(const arch::Words2& cell) { return (cell.word[0] & 0xffffffffu) | cell.word[1] << 32; }

}  // namespace tutti::exec::cuda
