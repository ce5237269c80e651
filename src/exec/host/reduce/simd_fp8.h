// fp8 in vector registers: by way of the processor's fp16 conversions where it has them. As simd_codec.h, which see: only for
// the files compiled once per level, everything in an unnamed namespace. Any thread.
#pragma once

#include "exec/host/reduce/simd_codec.h"

namespace tutti::exec::host {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
HWY_INLINE VecOf<int16_t> packWords(WordVec low, WordVec high) {
  const Tag<int32_t> d;
  return hn::ReorderDemote2To(Tag<int16_t>(), hn::BitCast(d, low), hn::BitCast(d, high));
}
/// Four vectors of words to bytes with signed saturation: each 128-bit part of the result holds four bytes of each vector.
HWY_INLINE VecOf<uint8_t> packBytes(WordVec a, WordVec b, WordVec c, WordVec e) {
  const auto low = packWords(a, b), high = packWords(c, e);
#if HWY_TARGET == HWY_AVX2
  return VecOf<uint8_t>{_mm256_packs_epi16(low.raw, high.raw)};
#else
  return VecOf<uint8_t>{_mm512_packs_epi16(low.raw, high.raw)};
#endif
}

/// Where each 32-bit word of the elements' order lies after packBytes, given how Fp8Codec::decode deals elements to parts.
struct PackedOrder {
  static constexpr size_t kWords = HWY_LANES(uint32_t), kLanes = kWords / 4;
  alignas(64) int32_t from[kWords];
  constexpr PackedOrder() : from() {
    for (size_t w = 0; w < kWords; ++w) {
      const size_t lane = w / 4, part = (w % 4 / 2) * 2 + lane / (kLanes / 2), wordOfPart = lane % (kLanes / 2) * 2 + w % 2;
      from[w] = static_cast<int32_t>(4 * wordOfPart + part);
    }
  }
};
constexpr PackedOrder kPackedOrder;

/// fp8 by way of fp16: e5m2 is the upper half of an fp16, e4m3 fits into one with its exponent 8 too small.
template <bool kE4M3>
struct Fp8Codec {
  using Lane = float;
  using Watch = NoWatch;
  static constexpr size_t kElemBytes = 1;
  static constexpr size_t kElems = 4 * HWY_LANES(float);
  using Halves = VecOf<uint16_t>;

  static HWY_INLINE Halves halvesOf(VecOf<uint8_t> inHighBytes) {
    const auto halves = hn::BitCast(Tag<uint16_t>(), inHighBytes);
    if constexpr (!kE4M3) return halves;
    const auto shifted = hn::ShiftRight<1>(hn::BitCast(Tag<int16_t>(), halves));
    return hn::And(hn::BitCast(Tag<uint16_t>(), shifted), hn::Set(Tag<uint16_t>(), 0xbf80));
  }
  template <class HalfVector>
  static HWY_INLINE FloatVec promote(HalfVector halves) {
    const FloatVec value = hn::PromoteTo(Tag<float>(), hn::BitCast(Fp16Codec::HalfTag(), halves));
    return kE4M3 ? hn::Mul(value, hn::Set(Tag<float>(), 256.0f)) : value;
  }
  static HWY_INLINE Block<float> decode(VecOf<uint8_t> bytes) {
    const Tag<uint8_t> d;
    const Fp16Codec::HalfBitsTag half;
    const Halves low = halvesOf(hn::InterleaveLower(d, hn::Zero(d), bytes));
    const Halves high = halvesOf(hn::InterleaveUpper(d, hn::Zero(d), bytes));
    Block<float> b = {{promote(hn::LowerHalf(half, low)), promote(hn::UpperHalf(half, low)),
                       promote(hn::LowerHalf(half, high)), promote(hn::UpperHalf(half, high))}};
    if constexpr (kE4M3) {
      // In fp16 the code of NaN is just the number 480.
      const auto isNan = hn::Eq(hn::And(bytes, hn::Set(d, 0x7f)), hn::Set(d, 0x7f));
      if (HWY_UNLIKELY(!hn::AllFalse(d, isNan))) {
        const auto nan = floatsOf(word(0x7fffffffu)), codeOfNan = hn::Set(Tag<float>(), 480.0f);
        for (auto& part : b.part) part = hn::IfThenElse(hn::Eq(hn::Abs(part), codeOfNan), nan, part);
      }
    }
    return b;
  }
  static HWY_INLINE Block<float> load(const uint8_t* from) { return decode(loadBytes<uint8_t>(from)); }

  static HWY_INLINE WordVec encode(FloatVec v) {
    if constexpr (kE4M3) {
      return MagicRounding<4, 3, 0x7e>(v).code();
    } else {
      return MagicRounding<5, 2, 0x7b>(v).code();
    }
  }
  static HWY_INLINE void store(Block<float> b, uint8_t* to) {
    const Tag<uint8_t> d;
    WordVec codes[4];
    for (size_t j = 0; j < 4; ++j) codes[j] = encode(b.part[j]);
    if (HWY_UNLIKELY(mayHoldNan(b))) {
      for (size_t j = 0; j < 4; ++j) {
        const auto isNan = hn::RebindMask(Tag<uint32_t>(), hn::IsNaN(b.part[j]));
        codes[j] = hn::IfThenElse(isNan, word(0x7fu), codes[j]);
      }
      replaceNans(b, uint32_t{0x7fffffffu});  // without a sign
    }
    const auto magnitudes = packBytes(codes[0], codes[1], codes[2], codes[3]);
    const auto signs = packBytes(wordsOf(b.part[0]), wordsOf(b.part[1]), wordsOf(b.part[2]), wordsOf(b.part[3]));
    const auto packed = hn::BitCast(Tag<uint32_t>(), hn::Or(magnitudes, hn::And(signs, hn::Set(d, 0x80))));
    const auto order = hn::SetTableIndices(Tag<uint32_t>(), kPackedOrder.from);
    storeBytes<uint32_t>(hn::TableLookupLanes(packed, order), to);
  }
  static HWY_INLINE void round(Block<float>& b) {
    kE4M3 ? roundBlock<4, 3, 0x7e>(b) : roundBlock<5, 2, 0x7b>(b);
  }
  static HWY_INLINE FloatVec factor(uint64_t bits) {
    return decode(hn::Set(Tag<uint8_t>(), static_cast<uint8_t>(bits))).part[0];
  }
};
using Fp8E4M3Codec = Fp8Codec<true>;
using Fp8E5M2Codec = Fp8Codec<false>;
#else
using Fp8E4M3Codec = SmallFloatCodec<4, 3, 0x7e, 0x7f, 0x7f>;
using Fp8E5M2Codec = SmallFloatCodec<5, 2, 0x7b, 0x7c, 0x7f>;
#endif

}  // namespace
}  // namespace tutti::exec::host
