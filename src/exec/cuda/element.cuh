// Elements as the kernels see them: 64-bit words of them, widened to the accumulation type, combined, and rounded back.
//
// The meaning is core/element.h's, bit for bit, for every type and operation; here are only the faster ways to it that this hardware has.
// 1. Values stay in the accumulation type while contributions are added; `word()` rounds once.
// 2. Conversions to fp16 and bf16 are the hardware's: to nearest even, a NaN becomes 0x7fff, as narrow() has it.
// 3. fp32 sums and products need no canonical(): every NaN that the hardware makes is kNanF32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/element.h"

namespace tutti::exec::cuda {

template <int kBytes>
struct BitsOfSize;
template <>
struct BitsOfSize<1> {
  using Type = uint8_t;
};
template <>
struct BitsOfSize<2> {
  using Type = uint16_t;
};
template <>
struct BitsOfSize<4> {
  using Type = uint32_t;
};
template <>
struct BitsOfSize<8> {
  using Type = uint64_t;
};

/// Contributions of one word of elements, combined in the order given.
template <DataType kType, ReduceOp kOp>
class WordReduction {
 public:
  using Element = ElementOf<kType>;
  using Accumulator = AccumulatorOf<kType>;
  using Storage = typename BitsOfSize<sizeof(Element)>::Type;
  static constexpr int kPerWord = sizeof(uint64_t) / sizeof(Element);

  __device__ __forceinline__ void begin(uint64_t word) {
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) sum_[i] = at(word, i);
  }
  __device__ __forceinline__ void add(uint64_t word) {
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) sum_[i] = reduce<kOp>(sum_[i], at(word, i));
  }
  __device__ __forceinline__ uint64_t word() const {
    if constexpr (kType == DataType::F16 || kType == DataType::BF16) {
      return static_cast<uint64_t>(roundPair(sum_[2], sum_[3])) << 32 | roundPair(sum_[0], sum_[1]);
    } else {
      uint64_t word = 0;
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) word |= static_cast<uint64_t>(round(sum_[i])) << (8 * static_cast<int>(sizeof(Element)) * i);
      return word;
    }
  }

 private:
  static __device__ __forceinline__ Accumulator at(uint64_t word, int i) {
    const auto bits = static_cast<Storage>(word >> (8 * static_cast<int>(sizeof(Element)) * i));
    if constexpr (kType == DataType::F16) {
      return __half2float(__ushort_as_half(bits));
    } else {
      return widen<kType>(__builtin_bit_cast(Element, bits));
    }
  }
  static __device__ __forceinline__ Storage round(Accumulator value) {
    constexpr bool kIsCanonical = kType == DataType::F32 && (kOp == ReduceOp::Sum || kOp == ReduceOp::Prod);
    if constexpr (kIsCanonical) {
      return __builtin_bit_cast(Storage, value);
    } else {
      return __builtin_bit_cast(Storage, narrow<kType>(value));
    }
  }
  static __device__ __forceinline__ uint32_t roundPair(float low, float high) {
    if constexpr (kType == DataType::F16) {
      const __half2 both = __floats2half2_rn(low, high);
      return static_cast<uint32_t>(__half_as_ushort(both.y)) << 16 | __half_as_ushort(both.x);
    } else {
      const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
      return static_cast<uint32_t>(__bfloat16_as_ushort(both.y)) << 16 | __bfloat16_as_ushort(both.x);
    }
  }

  Accumulator sum_[kPerWord];
};

}  // namespace tutti::exec::cuda
