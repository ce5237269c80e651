// How elements of each type become accumulators in vector registers and back. Only for the files compiled once per level:
// everything is in an unnamed namespace, so that no symbol of one level can stand in for another's. Any thread.
//
// 1. A Block is four vectors of accumulators; a codec's load and store move exactly kElems elements.
// 2. round() gives what store and load would: the values of the element type. Where in a Block an element lies is
//    the codec's affair (even and odd elements apart, say); operations are element-wise.
// 3. Loads and stores take any address. Bits are those of core/element.h.
// 4. A codec with a NanWatch stores NaNs as they come; whoever folds shows the watch every Block before it is stored, and
//    calls mend() over what was stored if it saw one.
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

HWY_INLINE hn::Mask<Tag<float>> eitherIsNan(FloatVec a, FloatVec b) {
#if HWY_TARGET == HWY_AVX3
  return {_mm512_cmp_ps_mask(a.raw, b.raw, _CMP_UNORD_Q)};
#elif HWY_TARGET == HWY_AVX2
  return {_mm256_cmp_ps(a.raw, b.raw, _CMP_UNORD_Q)};
#else
  return {_mm_cmpunord_ps(a.raw, b.raw)};
#endif
}

/// Whether any accumulator of a whole fold was a NaN: two compares a block, and no branch. Conversion to and from the 16-bit
/// floats keeps all of the processor's vector units busy, where fp32 waits for its loads, so that a test for each block shows.
class NanWatch {
 public:
  static constexpr bool kWatches = true;
  HWY_INLINE NanWatch() : seen_(eitherIsNan(hn::Zero(Tag<float>()), hn::Zero(Tag<float>()))) {}
  HWY_INLINE void see(const Block<float>& b) {
    seen_ = hn::Or(seen_, hn::Or(eitherIsNan(b.part[0], b.part[1]), eitherIsNan(b.part[2], b.part[3])));
  }
  HWY_INLINE bool sawNan() const { return !hn::AllFalse(Tag<float>(), seen_); }

 private:
  hn::Mask<Tag<float>> seen_;
};

/// For codecs that store the canonical NaN by themselves.
struct NoWatch {
  static constexpr bool kWatches = false;
  template <class T>
  static HWY_INLINE void see(const Block<T>&) {}
};

/// Makes every NaN among stored 16-bit floats the canonical 0x7fff: `vectors` vectors of codes, NaN above kInfinity.
template <int16_t kInfinity>
HWY_NOINLINE void mendNans(uint8_t* data, size_t vectors) {
  const Tag<int16_t> d;
  const auto canonical = hn::Set(d, int16_t{0x7fff});
  for (size_t i = 0; i < vectors; ++i, data += kVectorBytes) {
    const auto code = loadBytes<int16_t>(data);
    const auto isNan = hn::Gt(hn::And(code, canonical), hn::Set(d, kInfinity));
    storeBytes<int16_t>(hn::IfThenElse(isNan, canonical, code), data);
  }
}

/// Integers, fp32 and fp64: the element is the accumulator.
template <class T>
struct PlainCodec {
  using Lane = T;
  using Watch = NoWatch;
  static constexpr size_t kElemBytes = sizeof(T);
  static constexpr size_t kElems = 4 * HWY_LANES(T);

  static HWY_INLINE void round(Block<T>&) {}
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
  using Watch = NanWatch;
  static constexpr size_t kElemBytes = 2;
  static constexpr size_t kElems = 4 * HWY_LANES(float);

  static HWY_INLINE FloatVec even(WordVec pair) { return floatsOf(hn::ShiftLeft<16>(pair)); }
  static HWY_INLINE FloatVec odd(WordVec pair) { return floatsOf(hn::And(pair, word(0xffff0000u))); }

  static HWY_INLINE Block<float> load(const uint8_t* from) {
    const WordVec low = loadBytes<uint32_t>(from), high = loadBytes<uint32_t>(from + kVectorBytes);
    return {{even(low), odd(low), even(high), odd(high)}};
  }
  /// Rounds to nearest, ties away from zero, then clears the lowest kept bit of the ties: those whose dropped half has become
  /// 0. Adding 0xfffe with saturation makes that bit's mask of a dropped half. A NaN has only zeros to drop (its bits are an
  /// element's, or the processor's own) and stays one.
  static HWY_INLINE WordVec pack(FloatVec evens, FloatVec odds) {
    const Tag<uint16_t> d;
    const WordVec even = hn::Add(wordsOf(evens), word(0x8000u)), odd = hn::Add(wordsOf(odds), word(0x8000u));
    const auto kept = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<16>(even)));
    const auto dropped = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<16>(odd)), hn::BitCast(d, even));
    return hn::BitCast(Tag<uint32_t>(), hn::And(kept, hn::SaturatedAdd(dropped, hn::Set(d, 0xfffe))));
  }
  static HWY_INLINE void store(const Block<float>& b, uint8_t* to) {
    storeBytes<uint32_t>(pack(b.part[0], b.part[1]), to);
    storeBytes<uint32_t>(pack(b.part[2], b.part[3]), to + kVectorBytes);
  }
  static HWY_INLINE void mend(uint8_t* data, size_t blocks) { mendNans<0x7f80>(data, 2 * blocks); }
  static HWY_INLINE void round(Block<float>& b) {
    if (HWY_UNLIKELY(mayHoldNan(b))) replaceNans(b, uint32_t{0x7fff0000u});
    for (auto& part : b.part) {
      const WordVec w = wordsOf(part);
      const WordVec up = hn::Add(hn::And(hn::ShiftRight<16>(w), word(1u)), word(0x7fffu));
      part = odd(hn::Add(w, up));
    }
  }
  static HWY_INLINE FloatVec factor(uint64_t bits) { return even(word(static_cast<uint32_t>(bits))); }
};

/// How |value| is rounded to kExponent and kMantissa bits, to nearest even and capped at the code kMaxCode: the unit in the
/// last place of the magic number is that of the result, so that adding it rounds. A NaN is capped like a large number.
template <int kExponent, int kMantissa, uint32_t kMaxCode>
struct MagicRounding {
  static constexpr uint32_t kRebias = 127 - ((1u << (kExponent - 1)) - 1);
  static constexpr int kShift = 23 - kMantissa;
  WordVec exponent, magic;
  FloatVec sum;

  explicit HWY_INLINE MagicRounding(FloatVec v) {
    const WordVec x = hn::Min(hn::And(wordsOf(v), word(0x7fffffffu)), word((kMaxCode << kShift) + (kRebias << 23)));
    exponent = hn::And(hn::Max(x, word((kRebias + 1) << 23)), word(0x7f800000u));
    magic = hn::Add(exponent, word(static_cast<uint32_t>(kShift) << 23));
    sum = hn::Add(floatsOf(x), floatsOf(magic));
  }
  HWY_INLINE WordVec code() const {
    const WordVec significand = hn::Sub(wordsOf(sum), magic);
    return hn::Add(significand, hn::Sub(hn::ShiftRight<kShift>(exponent), word((kRebias + 1) << kMantissa)));
  }
  HWY_INLINE FloatVec value() const { return hn::Sub(sum, floatsOf(magic)); }
};

/// Rounds to the values of a small float, in place. NaNs stay NaNs.
template <int kExponent, int kMantissa, uint32_t kMaxCode>
HWY_INLINE void roundBlock(Block<float>& b) {
  const bool nan = mayHoldNan(b);
  for (auto& part : b.part) {
    FloatVec value = MagicRounding<kExponent, kMantissa, kMaxCode>(part).value();
    if constexpr (kMantissa == 10) {  // fp16 alone does not saturate
      const auto inf = floatsOf(word(0x7f800000u));
      value = hn::IfThenElse(hn::Ge(value, hn::Set(Tag<float>(), 65536.0f)), inf, value);
    }
    value = hn::CopySign(value, part);
    part = HWY_UNLIKELY(nan) ? hn::IfThenElse(hn::IsNaN(part), part, value) : value;
  }
}

/// fp8 and fp16 where the processor knows neither: 1 sign, kExponent and kMantissa bits, several elements in a 32-bit lane.
/// kMaxCode caps encoded magnitudes; codes from kSpecial on decode to NaN or infinity.
template <int kExponent, int kMantissa, uint32_t kMaxCode, uint32_t kSpecial, uint32_t kNanCode>
struct SmallFloatCodec {
  using Lane = float;
  using Watch = NoWatch;
  static constexpr int kBits = 1 + kExponent + kMantissa;
  static constexpr int kPerLane = 32 / kBits;
  static constexpr size_t kElemBytes = kBits / 8;
  static constexpr size_t kElems = 4 * HWY_LANES(float);
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
    return hn::Or(MagicRounding<kExponent, kMantissa, kMaxCode>(v).code(), sign);
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
  static HWY_INLINE void round(Block<float>& b) { roundBlock<kExponent, kMantissa, kMaxCode>(b); }
  static HWY_INLINE FloatVec factor(uint64_t bits) {
    return decode<true>(hn::ShiftLeft<32 - kBits>(word(static_cast<uint32_t>(bits))));
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
/// fp16 by the processor's own conversions, which round to nearest even and keep subnormals in both directions.
struct Fp16Codec {
  using Lane = float;
  using Watch = NanWatch;
  static constexpr size_t kElemBytes = 2;
  static constexpr size_t kElems = 4 * HWY_LANES(float);
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
  static HWY_INLINE void store(const Block<float>& b, uint8_t* to) {
    for (size_t j = 0; j < 4; ++j) {
      const auto half = hn::DemoteTo(HalfTag(), b.part[j]);
      hn::StoreU(hn::BitCast(HalfBytesTag(), half), HalfBytesTag(), to + j * kHalfVectorBytes);
    }
  }
  static HWY_INLINE void mend(uint8_t* data, size_t blocks) { mendNans<0x7c00>(data, 2 * blocks); }
  static HWY_INLINE void round(Block<float>& b) {
    for (auto& part : b.part) part = hn::PromoteTo(Tag<float>(), hn::DemoteTo(HalfTag(), part));
  }
  static HWY_INLINE FloatVec factor(uint64_t bits) {
    const auto half = hn::Set(HalfBitsTag(), static_cast<uint16_t>(bits));
    return hn::PromoteTo(Tag<float>(), hn::BitCast(HalfTag(), half));
  }
};
#else
using Fp16Codec = SmallFloatCodec<5, 10, 0x7c00, 0x7c00, 0x7fff>;
#endif

}  // namespace
}  // namespace tutti::exec::host
