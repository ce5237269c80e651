// Elements as they lie in buffers, and the numerics contract in scalar form: the one truth that every executor equals bit for
// bit. Header-only and stateless; any thread, host or device. Expects round-to-nearest-even with subnormals kept.
//
// 1. Elements are accumulated in AccumulatorOf<type>: float for every 16- and 8-bit float, the element itself otherwise.
// 2. A step folds its sources in the order given with reduce() and rounds once, with narrow(), when the result is stored.
//    A scaled source is rounded to its element type before it is folded. A lone, unscaled source is moved: every bit stays.
// 3. Sum and product are rounded separately, never fused. Integers wrap; divide() truncates the wrapped sum, once.
// 4. max and min pass over a NaN beside a number; -0 is less than +0.
// 5. What narrow() returns holds one NaN only, whatever came in: kNanF64, kNanF32, 0x7fff (fp16, bf16), 0x7f (both fp8).
//    These are what CUDA's instructions and conversions produce, so that a GPU has most of it for nothing.
// 6. Both fp8 types saturate: infinity and whatever rounds beyond the largest finite value become that value.
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/types.h"

namespace tutti {

struct Half { uint16_t bits; };
struct Bfloat16 { uint16_t bits; };
struct Fp8E4M3 { uint8_t bits; };
struct Fp8E5M2 { uint8_t bits; };

/// The canonical NaNs of results. A GPU's float sums and products make kNanF32 by themselves. In double it keeps payloads and
/// makes a negative NaN of inf - inf (seen on sm_90), so kNanF64, without sign or payload, is set explicitly everywhere.
inline constexpr uint32_t kNanF32 = 0x7fffffffu;
inline constexpr uint64_t kNanF64 = 0x7ff8000000000000ull;

// ---- element type and accumulator of each DataType -----------------------------------------------------------------------

template <DataType type> struct ElementTraits;
template <> struct ElementTraits<DataType::I8> { using Element = int8_t; using Accumulator = int8_t; };
template <> struct ElementTraits<DataType::U8> { using Element = uint8_t; using Accumulator = uint8_t; };
template <> struct ElementTraits<DataType::I32> { using Element = int32_t; using Accumulator = int32_t; };
template <> struct ElementTraits<DataType::U32> { using Element = uint32_t; using Accumulator = uint32_t; };
template <> struct ElementTraits<DataType::I64> { using Element = int64_t; using Accumulator = int64_t; };
template <> struct ElementTraits<DataType::U64> { using Element = uint64_t; using Accumulator = uint64_t; };
template <> struct ElementTraits<DataType::F16> { using Element = Half; using Accumulator = float; };
template <> struct ElementTraits<DataType::F32> { using Element = float; using Accumulator = float; };
template <> struct ElementTraits<DataType::F64> { using Element = double; using Accumulator = double; };
template <> struct ElementTraits<DataType::BF16> { using Element = Bfloat16; using Accumulator = float; };
template <> struct ElementTraits<DataType::F8E4M3> { using Element = Fp8E4M3; using Accumulator = float; };
template <> struct ElementTraits<DataType::F8E5M2> { using Element = Fp8E5M2; using Accumulator = float; };

template <DataType type> using ElementOf = ElementTraits<type>::Element;
template <DataType type> using AccumulatorOf = ElementTraits<type>::Accumulator;

namespace element {

// <type_traits> is not needed for what little is asked here, and this header goes through nvcc in every kernel file.
template <class T> struct UnsignedOf { using Type = void; static constexpr bool kInteger = false; };
template <> struct UnsignedOf<int8_t> { using Type = uint8_t; static constexpr bool kInteger = true; };
template <> struct UnsignedOf<uint8_t> { using Type = uint8_t; static constexpr bool kInteger = true; };
template <> struct UnsignedOf<int32_t> { using Type = uint32_t; static constexpr bool kInteger = true; };
template <> struct UnsignedOf<uint32_t> { using Type = uint32_t; static constexpr bool kInteger = true; };
template <> struct UnsignedOf<int64_t> { using Type = uint64_t; static constexpr bool kInteger = true; };
template <> struct UnsignedOf<uint64_t> { using Type = uint64_t; static constexpr bool kInteger = true; };

TUTTI_HD uint32_t bitsOf(float x) { return __builtin_bit_cast(uint32_t, x); }
TUTTI_HD uint64_t bitsOf(double x) { return __builtin_bit_cast(uint64_t, x); }
TUTTI_HD float floatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }
TUTTI_HD double doubleOf(uint64_t bits) { return __builtin_bit_cast(double, bits); }
TUTTI_HD bool isNan(float x) { return (bitsOf(x) & 0x7fffffffu) > 0x7f800000u; }
TUTTI_HD bool isNan(double x) { return (bitsOf(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }
TUTTI_HD float canonical(float x) { return isNan(x) ? floatOf(kNanF32) : x; }
TUTTI_HD double canonical(double x) { return isNan(x) ? doubleOf(kNanF64) : x; }

// nvcc contracts a*b+c by default; its rounding intrinsics are the documented way to forbid that for one operation.
#if defined(__CUDA_ARCH__)
TUTTI_HD float add(float a, float b) { return __fadd_rn(a, b); }
TUTTI_HD double add(double a, double b) { return __dadd_rn(a, b); }
TUTTI_HD float multiply(float a, float b) { return __fmul_rn(a, b); }
TUTTI_HD double multiply(double a, double b) { return __dmul_rn(a, b); }
#else
TUTTI_HD float add(float a, float b) { return a + b; }
TUTTI_HD double add(double a, double b) { return a + b; }
TUTTI_HD float multiply(float a, float b) { return a * b; }
TUTTI_HD double multiply(double a, double b) { return a * b; }
#endif

/// Whether `a` comes before `b` when -0 < +0 counts. Neither may be a NaN.
template <class T>
TUTTI_HD bool isBefore(T a, T b) {
  if constexpr (UnsignedOf<T>::kInteger) {
    return a < b;
  } else {
    return a < b || (a == b && bitsOf(a) > bitsOf(b));
  }
}

/// Encodes the magnitude bits `x` (sign cleared, no NaN) of a float with kExponent and kMantissa bits, to nearest even.
/// What is too large comes out as a code above the largest finite one, growing with x: the caller caps it.
template <int kExponent, int kMantissa>
TUTTI_HD uint32_t encodeMagnitude(uint32_t x) {
  constexpr uint32_t kRebias = 127 - ((1u << (kExponent - 1)) - 1);
  constexpr int kShift = 23 - kMantissa;
  if (x < ((kRebias + 1) << 23)) {
    // The sum's unit in the last place is the target's smallest subnormal, so that the addition itself does the rounding.
    constexpr uint32_t kMagic = (kRebias + 1 + kShift) << 23;
    return bitsOf(add(floatOf(x), floatOf(kMagic))) - kMagic;
  }
  const uint32_t roundUp = (1u << (kShift - 1)) - 1 + ((x >> kShift) & 1u);
  return (x + roundUp - (kRebias << 23)) >> kShift;
}

/// Decodes magnitude `code` with kExponent and kMantissa bits, without regard to codes for infinity and NaN. Exact.
template <int kExponent, int kMantissa>
TUTTI_HD uint32_t decodeMagnitude(uint32_t code) {
  constexpr uint32_t kRebias = 127 - ((1u << (kExponent - 1)) - 1);
  const uint32_t bits = (code << (23 - kMantissa)) + (kRebias << 23);
  if (code >> kMantissa) return bits;
  constexpr uint32_t kOne = (kRebias + 1) << 23;  // the smallest normal number: 1.m less 1 leaves the subnormal 0.m
  return bitsOf(add(floatOf(bits + (1u << 23)), -floatOf(kOne)));
}

}  // namespace element

// ---- conversions ---------------------------------------------------------------------------------------------------------

/// Exact. A NaN stays some NaN.
TUTTI_HD float toFloat(Half h) {
  const uint32_t sign = (h.bits & 0x8000u) << 16;
  const uint32_t code = h.bits & 0x7fffu;
  if (code >= 0x7c00u) return element::floatOf(sign | 0x7f800000u | (code & 0x3ffu) << 13);
  return element::floatOf(sign | element::decodeMagnitude<5, 10>(code));
}
TUTTI_HD float toFloat(Bfloat16 b) { return element::floatOf(static_cast<uint32_t>(b.bits) << 16); }
TUTTI_HD float toFloat(Fp8E4M3 f) {
  const uint32_t sign = (f.bits & 0x80u) << 24;
  const uint32_t code = f.bits & 0x7fu;
  if (code == 0x7fu) return element::floatOf(kNanF32);
  return element::floatOf(sign | element::decodeMagnitude<4, 3>(code));
}
TUTTI_HD float toFloat(Fp8E5M2 f) { return toFloat(Half{static_cast<uint16_t>(f.bits << 8)}); }

/// To nearest even; overflow becomes infinity, a NaN becomes 0x7fff.
TUTTI_HD Half toHalf(float value) {
  if (element::isNan(value)) return {0x7fff};
  const uint32_t bits = element::bitsOf(value);
  const uint32_t code = element::encodeMagnitude<5, 10>(bits & 0x7fffffffu);
  return {static_cast<uint16_t>((bits >> 16 & 0x8000u) | (code < 0x7c00u ? code : 0x7c00u))};
}
TUTTI_HD Bfloat16 toBfloat16(float value) {
  if (element::isNan(value)) return {0x7fff};
  const uint32_t bits = element::bitsOf(value);
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
/// To nearest even, saturating; a NaN becomes 0x7f.
TUTTI_HD Fp8E4M3 toFp8E4M3(float value) {
  if (element::isNan(value)) return {0x7f};
  const uint32_t bits = element::bitsOf(value);
  const uint32_t code = element::encodeMagnitude<4, 3>(bits & 0x7fffffffu);
  return {static_cast<uint8_t>((bits >> 24 & 0x80u) | (code < 0x7eu ? code : 0x7eu))};
}
TUTTI_HD Fp8E5M2 toFp8E5M2(float value) {
  if (element::isNan(value)) return {0x7f};
  const uint32_t bits = element::bitsOf(value);
  const uint32_t code = element::encodeMagnitude<5, 2>(bits & 0x7fffffffu);
  return {static_cast<uint8_t>((bits >> 24 & 0x80u) | (code < 0x7bu ? code : 0x7bu))};
}

/// From the buffer into the accumulation type. Exact.
template <DataType type>
TUTTI_HD AccumulatorOf<type> widen(ElementOf<type> x) {
  if constexpr (isInteger(type) || type == DataType::F32 || type == DataType::F64) {
    return x;
  } else {
    return toFloat(x);
  }
}

/// From the accumulation type into the buffer: rounds, saturates fp8, makes NaN canonical.
template <DataType type>
TUTTI_HD ElementOf<type> narrow(AccumulatorOf<type> x) {
  if constexpr (isInteger(type)) {
    return x;
  } else if constexpr (type == DataType::F16) {
    return toHalf(x);
  } else if constexpr (type == DataType::BF16) {
    return toBfloat16(x);
  } else if constexpr (type == DataType::F8E4M3) {
    return toFp8E4M3(x);
  } else if constexpr (type == DataType::F8E5M2) {
    return toFp8E5M2(x);
  } else {
    return element::canonical(x);
  }
}

// ---- the operations ------------------------------------------------------------------------------------------------------

/// `acc (op) x` in the accumulation type. Which NaN comes out of a float operation is left open until narrow().
template <ReduceOp op, class T>
TUTTI_HD T reduce(T acc, T x) {
  using Unsigned = element::UnsignedOf<T>::Type;
  constexpr bool kInteger = element::UnsignedOf<T>::kInteger;
  if constexpr (op == ReduceOp::Sum) {
    if constexpr (kInteger) {
      return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(acc) + static_cast<Unsigned>(x)));
    } else {
      return element::add(acc, x);
    }
  } else if constexpr (op == ReduceOp::Prod) {
    if constexpr (kInteger) {
      return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(acc) * static_cast<Unsigned>(x)));
    } else {
      return element::multiply(acc, x);
    }
  } else {
    if constexpr (!kInteger) {
      if (element::isNan(x)) return acc;
      if (element::isNan(acc)) return x;
    }
    const bool isAccBefore = element::isBefore(acc, x);
    return isAccBefore == (op == ReduceOp::Max) ? x : acc;
  }
}

/// A contribution times the factor of a Scaling (both widened), rounded to the element type as the contract demands.
template <DataType type>
TUTTI_HD AccumulatorOf<type> scale(AccumulatorOf<type> x, AccumulatorOf<type> factor) {
  return widen<type>(narrow<type>(reduce<ReduceOp::Prod>(x, factor)));
}

/// The element that a Scaling's factor holds, low bytes first.
template <DataType type>
TUTTI_HD ElementOf<type> factorOf(const Scaling& scaling) {
  using Element = ElementOf<type>;
  if constexpr (sizeof(Element) == 8) {
    return __builtin_bit_cast(Element, scaling.factor);
  } else if constexpr (sizeof(Element) == 4) {
    return __builtin_bit_cast(Element, static_cast<uint32_t>(scaling.factor));
  } else if constexpr (sizeof(Element) == 2) {
    return __builtin_bit_cast(Element, static_cast<uint16_t>(scaling.factor));
  } else {
    return __builtin_bit_cast(Element, static_cast<uint8_t>(scaling.factor));
  }
}

/// The finished integer over `divisor` >= 1, truncating towards zero. Floats have no divisor and pass unchanged.
template <DataType type>
TUTTI_HD ElementOf<type> divide(ElementOf<type> x, int32_t divisor) {
  if constexpr (!isInteger(type)) {
    return x;
  } else if constexpr (type == DataType::I8 || type == DataType::I32) {
    return static_cast<ElementOf<type>>(x / divisor);
  } else if constexpr (type == DataType::I64) {
    return x / static_cast<int64_t>(divisor);
  } else {
    return static_cast<ElementOf<type>>(x / static_cast<uint64_t>(divisor));
  }
}

}  // namespace tutti
