// How elements of each type become accumulators in vector registers and back. Only for the files compiled once per level:
// everything is in an unnamed namespace, so that no symbol of one level can stand in for another's. Any thread.
//
// 1. A Block is four vectors of accumulators; a codec's load and store move exactly kElems elements.
// 2. Where in a Block an element lies is the codec's affair (even and odd elements apart, say); operations are element-wise.
// 3. Loads and stores take any address. Bits are those of core/element.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <hwy/highway.h>

namespace tutti::exec::host {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T> using Tag = hn::ScalableTag<T>;
template <class T> using VecOf = hn::Vec<Tag<T>>;
using FloatVec = VecOf<float>;
using WordVec = VecOf<uint32_t>;

constexpr size_t kVectorBytes = HWY_LANES(uint8_t);

template <class T>
struct Block {
  VecOf<T> part[4];
};

template <class T>
HWY_INLINE VecOf<T> loadBytes(const uint8_t* from) {
  return hn::BitCast(Tag<T>(), hn::LoadU(Tag<uint8_t>(), from));
}
template <class T>
HWY_INLINE void storeBytes(VecOf<T> v, uint8_t* to) {
  hn::StoreU(hn::BitCast(Tag<uint8_t>(), v), Tag<uint8_t>(), to);
}
HWY_INLINE WordVec word(uint32_t value) { return hn::Set(Tag<uint32_t>(), value); }
HWY_INLINE WordVec wordsOf(FloatVec v) { return hn::BitCast(Tag<uint32_t>(), v); }
HWY_INLINE FloatVec floatsOf(WordVec v) { return hn::BitCast(Tag<float>(), v); }
HWY_INLINE WordVec selectWords(WordVec a, WordVec b, WordVec ifLess, WordVec otherwise) {
  const Tag<int32_t> d;  // values below 2^31 only: signed compares are native at every level
  return hn::IfThenElse(hn::RebindMask(Tag<uint32_t>(), hn::Lt(hn::BitCast(d, a), hn::BitCast(d, b))), ifLess, otherwise);
}

/// Whether an accumulator may be a NaN: true if one is, and for some blocks that hold opposite infinities or overflow.
/// One test a block keeps the canonicalisation, which hardly any block needs, out of the way of all the others.
template <class T>
HWY_INLINE bool mayHoldNan(const Block<T>& b) {
  const auto sum = hn::Add(hn::Add(b.part[0], b.part[1]), hn::Add(b.part[2], b.part[3]));
  return !hn::AllFalse(Tag<T>(), hn::IsNaN(sum));
}
template <class T, class Bits>
HWY_INLINE void replaceNans(Block<T>& b, Bits canonical) {
  const auto nan = hn::BitCast(Tag<T>(), hn::Set(Tag<Bits>(), canonical));
  for (auto& part : b.part) part = hn::IfThenElse(hn::IsNaN(part), nan, part);
}

/// Integers, fp32 and fp64: the element is the accumulator.
template <class T>
struct PlainCodec {
  using Lane = T;
  static constexpr size_t kElemBytes = sizeof(T);
  static constexpr size_t kElems = 4 * HWY_LANES(T);
  static constexpr bool kRoundsScaled = false;

  static HWY_INLINE Block<T> load(const uint8_t* from) {
    return {{loadBytes<T>(from), loadBytes<T>(from + kVectorBytes), loadBytes<T>(from + 2 * kVectorBytes),
             loadBytes<T>(from + 3 * kVectorBytes)}};
  }
  static HWY_INLINE void store(Block<T> b, uint8_t* to) {
    if constexpr (hwy::IsFloat<T>()) {
      if (HWY_UNLIKELY(mayHoldNan(b))) {
        if constexpr (sizeof(T) == 8) {
          replaceNans(b, uint64_t{0x7ff8000000000000u});
        } else {
          replaceNans(b, uint32_t{0x7fffffffu});
        }
      }
    }
    for (size_t j = 0; j < 4; ++j) storeBytes<T>(b.part[j], to + j * kVectorBytes);
  }
  static HWY_INLINE VecOf<T> factor(uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return hn::Set(Tag<T>(), value);
  }
};

/// bf16: a 32-bit lane holds two neighbours; a shift or a mask makes a float of either, so nothing crosses lanes.
struct Bf16Codec {
  using Lane = float;
  static constexpr size_t kElemBytes = 2;
  static constexpr size_t kElems = 4 * HWY_LANES(float);
  static constexpr bool kRoundsScaled = true;

  static HWY_INLINE FloatVec even(WordVec pair) { return floatsOf(hn::ShiftLeft<16>(pair)); }
  static HWY_INLINE FloatVec odd(WordVec pair) { return floatsOf(hn::And(pair, word(0xffff0000u))); }

  static HWY_INLINE Block<float> load(const uint8_t* from) {
    const WordVec low = loadBytes<uint32_t>(from), high = loadBytes<uint32_t>(from + kVectorBytes);
    return {{even(low), odd(low), even(high), odd(high)}};
  }
  /// Rounds both neighbours at once in 16-bit lanes. To nearest even is up exactly when the dropped half, 0x7fff and the kept
  /// half's lowest bit add to a carry; an average keeps the carry as its highest bit.
  static HWY_INLINE WordVec pack(FloatVec evens, FloatVec odds) {
    const Tag<uint16_t> d;
    const auto even16 = hn::BitCast(d, evens), odd16 = hn::BitCast(d, odds);
    const auto kept = hn::OddEven(odd16, hn::BitCast(d, hn::ShiftRight<16>(wordsOf(evens))));
    const auto dropped = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<16>(wordsOf(odds))), even16);
    const auto addend = hn::Or(hn::And(kept, hn::Set(d, 1)), hn::Set(d, 0x7ffe));
    const auto carry = hn::ShiftRight<15>(hn::AverageRound(dropped, addend));
    return hn::BitCast(Tag<uint32_t>(), hn::Add(kept, carry));
  }
  static HWY_INLINE void store(Block<float> b, uint8_t* to) {
    if (HWY_UNLIKELY(mayHoldNan(b))) replaceNans(b, uint32_t{0x7fff0000u});  // rounding must not carry out of it
    storeBytes<uint32_t>(pack(b.part[0], b.part[1]), to);
    storeBytes<uint32_t>(pack(b.part[2], b.part[3]), to + kVectorBytes);
  }
  static HWY_INLINE FloatVec factor(uint64_t bits) { return even(word(static_cast<uint32_t>(bits))); }
};

/// The code of |value| in kExponent and kMantissa bits, to nearest even, at most kMaxCode; a NaN gives kMaxCode.
/// The magic number's unit in the last place is that of the result, so that its addition rounds and leaves the significand.
template <int kExponent, int kMantissa, uint32_t kMaxCode>
HWY_INLINE WordVec encodeMagnitude(WordVec bits) {
  constexpr uint32_t kRebias = 127 - ((1u << (kExponent - 1)) - 1);
  constexpr int kShift = 23 - kMantissa;
  const WordVec x = hn::Min(hn::And(bits, word(0x7fffffffu)), word((kMaxCode << kShift) + (kRebias << 23)));
  const WordVec exponent = hn::And(hn::Max(x, word((kRebias + 1) << 23)), word(0x7f800000u));
  const WordVec magic = hn::Add(exponent, word(static_cast<uint32_t>(kShift) << 23));
  const WordVec significand = hn::Sub(wordsOf(hn::Add(floatsOf(x), floatsOf(magic))), magic);
  return hn::Add(significand, hn::Sub(hn::ShiftRight<kShift>(exponent), word((kRebias + 1) << kMantissa)));
}

/// fp8 and fp16 where the processor knows neither: 1 sign, kExponent and kMantissa bits, several elements in a 32-bit lane.
/// kMaxCode caps encoded magnitudes; codes from kSpecial on decode to NaN or infinity.
template <int kExponent, int kMantissa, uint32_t kMaxCode, uint32_t kSpecial, uint32_t kNanCode>
struct SmallFloatCodec {
  using Lane = float;
  static constexpr int kBits = 1 + kExponent + kMantissa;
  static constexpr int kPerLane = 32 / kBits;
  static constexpr size_t kElemBytes = kBits / 8;
  static constexpr size_t kElems = 4 * HWY_LANES(float);
  static constexpr bool kRoundsScaled = true;
  static constexpr uint32_t kRebias = 127 - ((1u << (kExponent - 1)) - 1);
  static constexpr uint32_t kCodeMask = (1u << (kBits - 1)) - 1;
  static constexpr uint32_t kSignBit = 1u << (kBits - 1);

  /// `top` holds the element in its highest bits; what lies below is ignored.
  template <bool kMaySpecial>
  static HWY_INLINE FloatVec decode(WordVec top) {
    const WordVec magnitude = hn::And(hn::ShiftRight<8 - kExponent>(top), word(kCodeMask << (23 - kMantissa)));
    const WordVec normal = hn::Add(magnitude, word(kRebias << 23));
    const WordVec one = word((kRebias + 1) << 23);  // subnormal m is 1.m less 1, in units of the smallest normal number
    const FloatVec subnormal = hn::Sub(floatsOf(hn::Add(magnitude, one)), floatsOf(one));
    WordVec value = selectWords(magnitude, word(1u << 23), wordsOf(subnormal), normal);
    if constexpr (kMaySpecial) {
      const WordVec special = kExponent == 5 ? hn::Or(magnitude, word(0x7f800000u)) : word(0x7fffffffu);
      value = selectWords(magnitude, word(kSpecial << (23 - kMantissa)), value, special);
    }
    return floatsOf(hn::Or(value, hn::And(top, word(0x80000000u))));
  }

  template <bool kMaySpecial>
  static HWY_INLINE void decodeLanes(const WordVec* lanes, Block<float>& b) {
    if constexpr (kPerLane == 4) {
      b.part[0] = decode<kMaySpecial>(hn::ShiftLeft<24>(lanes[0]));
      b.part[1] = decode<kMaySpecial>(hn::ShiftLeft<16>(lanes[0]));
      b.part[2] = decode<kMaySpecial>(hn::ShiftLeft<8>(lanes[0]));
      b.part[3] = decode<kMaySpecial>(lanes[0]);
    } else {
      for (size_t j = 0; j < 2; ++j) {
        b.part[2 * j] = decode<kMaySpecial>(hn::ShiftLeft<16>(lanes[j]));
        b.part[2 * j + 1] = decode<kMaySpecial>(lanes[j]);
      }
    }
  }
  static HWY_INLINE bool anySpecial(WordVec lane) {
    using Code = hwy::MakeSigned<hwy::UnsignedFromSize<kElemBytes>>;
    const Tag<Code> d;
    const auto magnitude = hn::And(hn::BitCast(d, lane), hn::Set(d, static_cast<Code>(kCodeMask)));
    return !hn::AllFalse(d, hn::Gt(magnitude, hn::Set(d, static_cast<Code>(kSpecial - 1))));
  }
  static HWY_INLINE Block<float> load(const uint8_t* from) {
    WordVec lanes[2];
    lanes[0] = loadBytes<uint32_t>(from);
    bool special = anySpecial(lanes[0]);
    if constexpr (kPerLane == 2) {
      lanes[1] = loadBytes<uint32_t>(from + kVectorBytes);
      special |= anySpecial(lanes[1]);
    }
    Block<float> b;
    if (HWY_UNLIKELY(special)) {
      decodeLanes<true>(lanes, b);
    } else {
      decodeLanes<false>(lanes, b);
    }
    return b;
  }

  static HWY_INLINE WordVec encode(FloatVec v) {
    const WordVec sign = hn::And(hn::ShiftRight<32 - kBits>(wordsOf(v)), word(kSignBit));
    return hn::Or(encodeMagnitude<kExponent, kMantissa, kMaxCode>(wordsOf(v)), sign);
  }
  static HWY_INLINE WordVec pack(const WordVec* codes) {
    if constexpr (kPerLane == 4) {
      return hn::Or(hn::Or(codes[0], hn::ShiftLeft<8>(codes[1])),
                    hn::Or(hn::ShiftLeft<16>(codes[2]), hn::ShiftLeft<24>(codes[3])));
    } else {
      return hn::Or(codes[0], hn::ShiftLeft<16>(codes[1]));
    }
  }
  static HWY_INLINE void store(const Block<float>& b, uint8_t* to) {
    WordVec codes[4];
    for (size_t j = 0; j < 4; ++j) codes[j] = encode(b.part[j]);
    if (HWY_UNLIKELY(mayHoldNan(b))) {
      for (size_t j = 0; j < 4; ++j) {
        const auto isNan = hn::RebindMask(Tag<uint32_t>(), hn::IsNaN(b.part[j]));
        codes[j] = hn::IfThenElse(isNan, word(kNanCode), codes[j]);
      }
    }
    storeBytes<uint32_t>(pack(codes), to);
    if constexpr (kPerLane == 2) storeBytes<uint32_t>(pack(codes + 2), to + kVectorBytes);
  }
  static HWY_INLINE FloatVec factor(uint64_t bits) {
    return decode<true>(hn::ShiftLeft<32 - kBits>(word(static_cast<uint32_t>(bits))));
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
/// fp16 by the processor's own conversions, which round to nearest even and keep subnormals in both directions.
struct Fp16Codec {
  using Lane = float;
  static constexpr size_t kElemBytes = 2;
  static constexpr size_t kElems = 4 * HWY_LANES(float);
  static constexpr bool kRoundsScaled = true;
  using HalfTag = hn::Rebind<hwy::float16_t, Tag<float>>;
  using HalfBitsTag = hn::Rebind<uint16_t, Tag<float>>;
  using HalfBytesTag = hn::Repartition<uint8_t, HalfBitsTag>;
  static constexpr size_t kHalfVectorBytes = kVectorBytes / 2;

  static HWY_INLINE FloatVec decode(const uint8_t* from) {
    return hn::PromoteTo(Tag<float>(), hn::BitCast(HalfTag(), hn::LoadU(HalfBytesTag(), from)));
  }
  static HWY_INLINE Block<float> load(const uint8_t* from) {
    return {{decode(from), decode(from + kHalfVectorBytes), decode(from + 2 * kHalfVectorBytes),
             decode(from + 3 * kHalfVectorBytes)}};
  }
  static HWY_INLINE void store(Block<float> b, uint8_t* to) {
    if (HWY_UNLIKELY(mayHoldNan(b))) replaceNans(b, uint32_t{0x7fffffffu});
    for (size_t j = 0; j < 4; ++j) {
      const auto half = hn::DemoteTo(HalfTag(), b.part[j]);
      hn::StoreU(hn::BitCast(HalfBytesTag(), half), HalfBytesTag(), to + j * kHalfVectorBytes);
    }
  }
  static HWY_INLINE FloatVec factor(uint64_t bits) {
    const auto half = hn::Set(HalfBitsTag(), static_cast<uint16_t>(bits));
    return hn::PromoteTo(Tag<float>(), hn::BitCast(HalfTag(), half));
  }
};

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
  static constexpr size_t kElemBytes = 1;
  static constexpr size_t kElems = 4 * HWY_LANES(float);
  static constexpr bool kRoundsScaled = true;
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
    return kE4M3 ? encodeMagnitude<4, 3, 0x7e>(wordsOf(v)) : encodeMagnitude<5, 2, 0x7b>(wordsOf(v));
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
  static HWY_INLINE FloatVec factor(uint64_t bits) {
    return decode(hn::Set(Tag<uint8_t>(), static_cast<uint8_t>(bits))).part[0];
  }
};
using Fp8E4M3Codec = Fp8Codec<true>;
using Fp8E5M2Codec = Fp8Codec<false>;
#else
using Fp16Codec = SmallFloatCodec<5, 10, 0x7c00, 0x7c00, 0x7fff>;
using Fp8E4M3Codec = SmallFloatCodec<4, 3, 0x7e, 0x7f, 0x7f>;
using Fp8E5M2Codec = SmallFloatCodec<5, 2, 0x7b, 0x7c, 0x7f>;
#endif

}  // namespace
}  // namespace tutti::exec::host
