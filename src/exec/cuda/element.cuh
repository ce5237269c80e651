// Elements as the kernels see them: 64-bit words of them, widened to the accumulation type, combined, and rounded back.
//
// The meaning is core/element.h's, bit for bit, for every type and operation; here are only the faster ways to it that this hardware has.
// 1. Values stay in the accumulation type while contributions are added; `word()` rounds once.
// 2. Conversions to fp16, bf16 and (from sm_89 on) fp8 are the hardware's: to nearest even, saturating for fp8, and a NaN becomes what
//    narrow() has. The hardware's float max and min pass over a NaN and order -0 before +0, as reduce() has it.
// 3. fp32 results of two or more values need no canonical(): every NaN that the hardware makes is kNanF32.
// 4. Integers are computed as unsigned ones, and min as max of flipped values (Numbers::flip).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "core/element.h"
#include "exec/cuda/loops.h"

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

/// The elements of one type in a 64-bit word, low bytes first.
template <DataType kType>
struct WordOf {
  using Element = ElementOf<kType>;
  using Accumulator = AccumulatorOf<kType>;
  using Storage = typename BitsOfSize<sizeof(Element)>::Type;
  static constexpr int kPerWord = sizeof(uint64_t) / sizeof(Element);
  static constexpr bool kIsFp8 = kType == DataType::F8E4M3 || kType == DataType::F8E5M2;

  static __device__ __forceinline__ void widenAll(uint64_t word, Accumulator (&to)[kPerWord]) {
    if constexpr (kIsFp8) {
      constexpr auto kFormat = kType == DataType::F8E4M3 ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
      for (int i = 0; i < kPerWord; i += 2) {
        const __half2 pair = __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word >> (8 * i)), kFormat));
        to[i] = __low2float(pair);
        to[i + 1] = __high2float(pair);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) {
        const auto bits = static_cast<Storage>(word >> (8 * static_cast<int>(sizeof(Element)) * i));
        if constexpr (kType == DataType::F16) {
          to[i] = __half2float(__ushort_as_half(bits));
        } else {
          to[i] = widen<kType>(__builtin_bit_cast(Element, bits));
        }
      }
    }
  }

  /// `kCanonical`: no value is a NaN but the hardware's own.
  template <bool kCanonical>
  static __device__ __forceinline__ uint64_t roundAll(const Accumulator (&from)[kPerWord]) {
    uint64_t word = 0;
    if constexpr (kType == DataType::F16 || kType == DataType::BF16) {
      return static_cast<uint64_t>(roundPair(from[2], from[3])) << 32 | roundPair(from[0], from[1]);
    } else if constexpr (kIsFp8 && kHasFp8) {
      constexpr auto kFormat = kType == DataType::F8E4M3 ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
      for (int i = 0; i < kPerWord; i += 2)
        word |= static_cast<uint64_t>(__nv_cvt_float2_to_fp8x2({from[i], from[i + 1]}, __NV_SATFINITE, kFormat)) << (8 * i);
    } else {
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) {
        Storage bits;
        if constexpr (kCanonical && kType == DataType::F32) {
          bits = __builtin_bit_cast(Storage, from[i]);
        } else {
          bits = __builtin_bit_cast(Storage, narrow<kType>(from[i]));
        }
        word |= static_cast<uint64_t>(bits) << (8 * static_cast<int>(sizeof(Element)) * i);
      }
    }
    return word;
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  static constexpr bool kHasFp8 = true;
#else
  static constexpr bool kHasFp8 = false;
#endif
  static __device__ __forceinline__ uint32_t roundPair(float low, float high) {
    if constexpr (kType == DataType::F16) {
      const __half2 both = __floats2half2_rn(low, high);
      return static_cast<uint32_t>(__half_as_ushort(both.y)) << 16 | __half_as_ushort(both.x);
    } else {
      const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
      return static_cast<uint32_t>(__bfloat16_as_ushort(both.y)) << 16 | __bfloat16_as_ushort(both.x);
    }
  }
};

/// Contributions of one word of elements, combined in the order given.
template <DataType kElementType, ReduceOp kOp>
class WordReduction {
 public:
  static constexpr DataType kType = kElementType;
  using Word = WordOf<kType>;
  using Accumulator = typename Word::Accumulator;
  static constexpr int kPerWord = Word::kPerWord;
  static constexpr uint32_t kElementBytes = sizeof(typename Word::Element);

  __device__ __forceinline__ void begin(uint64_t word, const Numbers& numbers) {
    Word::widenAll(word, sum_);
    if constexpr (kFlips) {
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) sum_[i] = flipped(sum_[i], numbers);
    }
  }
  __device__ __forceinline__ void add(uint64_t word, const Numbers& numbers) {
    Accumulator value[kPerWord];
    Word::widenAll(word, value);
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      if constexpr (kFlips) value[i] = flipped(value[i], numbers);
      if constexpr (kFlips && __is_same(Accumulator, float)) {
        sum_[i] = fmaxf(sum_[i], value[i]);
      } else {
        sum_[i] = reduce<kOp>(sum_[i], value[i]);
      }
    }
  }
  /// Of at least two values.
  __device__ __forceinline__ uint64_t word(const Numbers& numbers) const {
    if constexpr (kFlips) {
      Accumulator value[kPerWord];
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) value[i] = flipped(sum_[i], numbers);
      return Word::template roundAll<false>(value);
    } else {
      return Word::template roundAll<true>(sum_);
    }
  }

 private:
  static constexpr bool kFlips = kOp == ReduceOp::Max;
  static __device__ __forceinline__ Accumulator flipped(Accumulator value, const Numbers& numbers) {
    using Bits = typename BitsOfSize<sizeof(Accumulator)>::Type;
    return __builtin_bit_cast(Accumulator, static_cast<Bits>(__builtin_bit_cast(Bits, value) ^ static_cast<Bits>(numbers.flip)));
  }
  Accumulator sum_[kPerWord];
};

/// Every element times the factor, rounded to its type.
template <DataType kType>
__device__ __forceinline__ uint64_t scaleWord(uint64_t word, const Numbers& numbers) {
  using Word = WordOf<kType>;
  typename Word::Accumulator value[Word::kPerWord];
  Word::widenAll(word, value);
  Scaling scaling;
  scaling.factor = numbers.factor;
  const auto factor = widen<kType>(factorOf<kType>(scaling));
#pragma unroll
  for (int i = 0; i < Word::kPerWord; ++i) value[i] = reduce<ReduceOp::Prod>(value[i], factor);
  return Word::template roundAll<true>(value);
}

/// Every (unsigned type standing for an) integer over the divisor; floats pass unchanged.
template <DataType kType>
__device__ __forceinline__ uint64_t divideWord(uint64_t word, const Numbers& numbers) {
  if constexpr (!isInteger(kType)) {
    return word;
  } else {
    using Word = WordOf<kType>;
    constexpr auto kSigned = kType == DataType::U8 ? DataType::I8 : kType == DataType::U32 ? DataType::I32 : DataType::I64;
    uint64_t result = 0;
#pragma unroll 1  // rare, and eight divisions side by side would take the registers of everything else
    for (int i = 0; i < Word::kPerWord; ++i) {
      const int shift = 8 * static_cast<int>(sizeof(typename Word::Element)) * i;
      const auto x = static_cast<typename Word::Storage>(word >> shift);
      const auto quotient = numbers.isSigned
                                ? static_cast<typename Word::Storage>(divide<kSigned>(static_cast<ElementOf<kSigned>>(x), numbers.divisor))
                                : static_cast<typename Word::Storage>(divide<kType>(x, numbers.divisor));
      result |= static_cast<uint64_t>(quotient) << shift;
    }
    return result;
  }
}

}  // namespace tutti::exec::cuda
