// The fold loops over the codecs of simd_codec.h and simd_fp8.h, and the table of all types and operations. Only for the files
// compiled once per level; everything is in an unnamed namespace. Any thread; no state.
//
// 1. Memory is passed over once: all sources of a block are folded in registers before its one store.
// 2. A block is stored only after all its sources were loaded, so dst may be one of the sources. NaNs are mended in dst, once
//    all of it is stored.
// 3. The rest that fills no block goes through a zeroed buffer: nothing is read or written outside the operands.
#pragma once

#include "exec/host/reduce/kernels.h"
#include "exec/host/reduce/simd_codec.h"
#include "exec/host/reduce/simd_fp8.h"

namespace tutti::exec::host {
namespace {

struct SumOp {
  template <class T>
  static HWY_INLINE VecOf<T> apply(VecOf<T> a, VecOf<T> b) {
    return hn::Add(a, b);
  }
};

struct ProdOp {
  template <class T>
  static HWY_INLINE VecOf<T> apply(VecOf<T> a, VecOf<T> b) {
    if constexpr (sizeof(T) == 1) {
      // There is no 8-bit multiply: low and high bytes of 16-bit lanes in turn.
      const Tag<uint16_t> d;
      const auto a16 = hn::BitCast(d, a), b16 = hn::BitCast(d, b);
      const auto low = hn::And(hn::Mul(a16, b16), hn::Set(d, 0x00ffu));
      const auto high = hn::Mul(hn::ShiftRight<8>(a16), hn::And(b16, hn::Set(d, 0xff00u)));
      return hn::BitCast(Tag<T>(), hn::Or(low, high));
#if HWY_TARGET != HWY_AVX3
    } else if constexpr (sizeof(T) == 8 && !hwy::IsFloat<T>()) {
      // Only AVX-512 multiplies 64-bit lanes: low by low in full, and both mixed products' low halves above it.
      const auto a32 = hn::BitCast(Tag<uint32_t>(), a), b32 = hn::BitCast(Tag<uint32_t>(), b);
      const auto low = hn::MulEven(a32, b32);
      const auto mixed = hn::BitCast(Tag<uint64_t>(), hn::Mul(a32, hn::Shuffle2301(b32)));
      const auto mixedSum = hn::ShiftLeft<32>(hn::Add(mixed, hn::ShiftRight<32>(mixed)));
      return hn::BitCast(Tag<T>(), hn::Add(low, mixedSum));
#endif
    } else {
      return hn::Mul(a, b);
    }
  }
};

template <bool kMax>
struct ExtremeOp {
  template <class T>
  static HWY_INLINE VecOf<T> apply(VecOf<T> a, VecOf<T> b) {
    const VecOf<T> extreme = kMax ? hn::Max(a, b) : hn::Min(a, b);
    if constexpr (hwy::IsFloat<T>()) {
      // x86 gives `b` if either is a NaN, which is right when `a` is. Equal numbers differ in bits only as zeros do: the
      // sign bit of +0 and -0 is cleared by And for a maximum, kept by Or for a minimum.
      const VecOf<T> ofEqual = kMax ? hn::And(a, b) : hn::Or(a, b);
      return hn::IfThenElse(hn::IsNaN(b), a, hn::IfThenElse(hn::Eq(a, b), ofEqual, extreme));
    } else {
      return extreme;
    }
  }
};

template <class Op, class T>
HWY_INLINE Block<T> combine(const Block<T>& a, const Block<T>& b) {
  return {{Op::template apply<T>(a.part[0], b.part[0]), Op::template apply<T>(a.part[1], b.part[1]),
           Op::template apply<T>(a.part[2], b.part[2]), Op::template apply<T>(a.part[3], b.part[3])}};
}

/// Multiplies by the factor and rounds to the element type.
template <class Codec, class T>
HWY_INLINE void scaleBlock(Block<T>& b, VecOf<T> factor) {
  for (auto& part : b.part) part = ProdOp::apply<T>(part, factor);
  Codec::round(b);
}

/// What follows the last store of a fold into the `blocks` blocks from `dst` on.
template <class Codec>
HWY_INLINE void mendStored(const typename Codec::Watch& watch, uint8_t* dst, size_t blocks) {
  if constexpr (Codec::Watch::kWatches) {
    if (HWY_UNLIKELY(watch.sawNan())) Codec::mend(dst, blocks);
  }
}

template <class Codec>
HWY_INLINE const uint8_t* sourceAt(const FoldArgs& args, int k) {
  return static_cast<const uint8_t*>(args.sources[k]) + args.first * Codec::kElemBytes;
}

/// Folds the last `count` < kElems elements, from element `done` on.
template <class Codec, class Op>
HWY_NOINLINE void foldRest(const FoldArgs& args, size_t done, size_t count) {
  using T = Codec::Lane;
  alignas(64) uint8_t buffer[Codec::kElems * Codec::kElemBytes] = {};
  const size_t offset = done * Codec::kElemBytes, bytes = count * Codec::kElemBytes;
  const VecOf<T> factor = Codec::factor(args.factor);
  uint32_t scaled = args.scaledSources;
  Block<T> acc;
  for (int k = 0; k < args.numSources; ++k, scaled >>= 1) {
    __builtin_memcpy(buffer, sourceAt<Codec>(args, k) + offset, bytes);
    Block<T> x = Codec::load(buffer);
    if (scaled & 1u) scaleBlock<Codec>(x, factor);
    acc = k == 0 ? x : combine<Op>(acc, x);
  }
  typename Codec::Watch watch;
  watch.see(acc);
  Codec::store(acc, buffer);
  mendStored<Codec>(watch, buffer, 1);
  __builtin_memcpy(static_cast<uint8_t*>(args.dst) + offset, buffer, bytes);
}

template <class Codec, class Op, int kSources>
void foldFew(const FoldArgs& args) {
  using T = Codec::Lane;
  constexpr size_t kStep = Codec::kElems * Codec::kElemBytes;
  auto* const dst = static_cast<uint8_t*>(args.dst);
  const uint8_t* const a = sourceAt<Codec>(args, 0);
  const uint8_t* const b = sourceAt<Codec>(args, 1);
  const uint8_t* const c = sourceAt<Codec>(args, kSources - 1);
  const size_t blocks = args.elems / Codec::kElems;
  typename Codec::Watch watch;
  for (size_t at = 0; at < blocks * kStep; at += kStep) {
    Block<T> acc = combine<Op>(Codec::load(a + at), Codec::load(b + at));
    if constexpr (kSources == 3) acc = combine<Op>(acc, Codec::load(c + at));
    watch.see(acc);
    Codec::store(acc, dst + at);
  }
  mendStored<Codec>(watch, dst, blocks);
  const size_t done = blocks * Codec::kElems;
  if (done < args.elems) foldRest<Codec, Op>(args, done, args.elems - done);
}

template <class Codec, class Op>
void foldAny(const FoldArgs& args) {
  using T = Codec::Lane;
  constexpr size_t kStep = Codec::kElems * Codec::kElemBytes;
  auto* const dst = static_cast<uint8_t*>(args.dst);
  const VecOf<T> factor = Codec::factor(args.factor);
  const size_t blocks = args.elems / Codec::kElems;
  typename Codec::Watch watch;
  for (size_t at = 0; at < blocks * kStep; at += kStep) {
    uint32_t scaled = args.scaledSources;
    Block<T> acc = Codec::load(sourceAt<Codec>(args, 0) + at);
    if (scaled & 1u) scaleBlock<Codec>(acc, factor);
    for (int k = 1; k < args.numSources; ++k) {
      scaled >>= 1;
      Block<T> x = Codec::load(sourceAt<Codec>(args, k) + at);
      if (scaled & 1u) scaleBlock<Codec>(x, factor);
      acc = combine<Op>(acc, x);
    }
    watch.see(acc);
    Codec::store(acc, dst + at);
  }
  mendStored<Codec>(watch, dst, blocks);
  const size_t done = blocks * Codec::kElems;
  if (done < args.elems) foldRest<Codec, Op>(args, done, args.elems - done);
}

template <class Codec, class Op>
constexpr FoldKernels kernelsOf() {
  return {&foldFew<Codec, Op, 2>, &foldFew<Codec, Op, 3>, &foldAny<Codec, Op>};
}

/// `Wrapping` serves sum and product, `Codec` the rest: signedness only matters to max and min, so one copy is enough.
template <class Codec, class Wrapping>
constexpr void fill(FoldKernels* row) {
  row[static_cast<int>(ReduceOp::Sum)] = kernelsOf<Wrapping, SumOp>();
  row[static_cast<int>(ReduceOp::Prod)] = kernelsOf<Wrapping, ProdOp>();
  row[static_cast<int>(ReduceOp::Max)] = kernelsOf<Codec, ExtremeOp<true>>();
  row[static_cast<int>(ReduceOp::Min)] = kernelsOf<Codec, ExtremeOp<false>>();
}

constexpr FoldTable makeTable() {
  FoldTable table{};
  const auto row = [&table](DataType type) { return table.at[static_cast<int>(type)]; };
  fill<PlainCodec<int8_t>, PlainCodec<uint8_t>>(row(DataType::I8));
  fill<PlainCodec<uint8_t>, PlainCodec<uint8_t>>(row(DataType::U8));
  fill<PlainCodec<int32_t>, PlainCodec<uint32_t>>(row(DataType::I32));
  fill<PlainCodec<uint32_t>, PlainCodec<uint32_t>>(row(DataType::U32));
  fill<PlainCodec<int64_t>, PlainCodec<uint64_t>>(row(DataType::I64));
  fill<PlainCodec<uint64_t>, PlainCodec<uint64_t>>(row(DataType::U64));
  fill<Fp16Codec, Fp16Codec>(row(DataType::F16));
  fill<PlainCodec<float>, PlainCodec<float>>(row(DataType::F32));
  fill<PlainCodec<double>, PlainCodec<double>>(row(DataType::F64));
  fill<Bf16Codec, Bf16Codec>(row(DataType::BF16));
  fill<Fp8E4M3Codec, Fp8E4M3Codec>(row(DataType::F8E4M3));
  fill<Fp8E5M2Codec, Fp8E5M2Codec>(row(DataType::F8E5M2));
  return table;
}

constexpr FoldTable kFolds = makeTable();

}  // namespace
}  // namespace tutti::exec::host
