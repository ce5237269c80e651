// The loops of the kernels, as far as they can be looked at without a GPU: which one a type and operation use, and what it computes.
#include "exec/cuda/loops.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>

#include "core/element.h"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda::loops_test {
namespace {

TEST(CudaLoops, EveryTypeAndOperationHasALoopOfItsSize) {
  for (int t = 0; t < kNumDataTypes; ++t) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      const int loop = loopOf(type, op);
      ASSERT_GE(loop, 0);
      ASSERT_LT(loop, kNumLoops);
      EXPECT_EQ(kLoopTypes[loop / kNumLoopOps], loopType(type));
      EXPECT_EQ(kLoopOps[loop % kNumLoopOps], op == ReduceOp::Min ? ReduceOp::Max : op);
      EXPECT_EQ(sizeOf(loopType(type)), sizeOf(type));
    }
  }
}

/// What a loop of `Unsigned` values makes of max or min of signed or unsigned integers.
template <DataType kType>
void expectFlippedMaxIsRight(std::mt19937_64& random) {
  using Element = ElementOf<kType>;
  using Unsigned = ElementOf<loopType(kType)>;
  for (const ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    const auto flip = static_cast<Unsigned>(flipOf(kType, op));
    for (int i = 0; i < 1000; ++i) {
      const auto a = static_cast<Element>(i < 4 ? std::numeric_limits<Element>::min() : random());
      const auto b = static_cast<Element>(i % 3 == 0 ? std::numeric_limits<Element>::max() : random());
      const auto flippedA = static_cast<Unsigned>(static_cast<Unsigned>(a) ^ flip);
      const auto flippedB = static_cast<Unsigned>(static_cast<Unsigned>(b) ^ flip);
      const auto got = static_cast<Element>(static_cast<Unsigned>(reduce<ReduceOp::Max>(flippedA, flippedB) ^ flip));
      EXPECT_EQ(got, op == ReduceOp::Max ? reduce<ReduceOp::Max>(a, b) : reduce<ReduceOp::Min>(a, b));
    }
  }
}

TEST(CudaLoops, MaxOfFlippedIntegersIsMaxAndMin) {
  std::mt19937_64 random(1);
  expectFlippedMaxIsRight<DataType::I8>(random);
  expectFlippedMaxIsRight<DataType::U8>(random);
  expectFlippedMaxIsRight<DataType::I32>(random);
  expectFlippedMaxIsRight<DataType::U32>(random);
  expectFlippedMaxIsRight<DataType::I64>(random);
  expectFlippedMaxIsRight<DataType::U64>(random);
}

template <class Float, class Bits>
void expectFlippedMaxOfFloats(DataType type, std::mt19937_64& random) {
  const auto flip = static_cast<Bits>(flipOf(type, ReduceOp::Min));
  const Float odd[] = {Float{0},
                       -Float{0},
                       std::numeric_limits<Float>::infinity(),
                       -std::numeric_limits<Float>::infinity(),
                       std::numeric_limits<Float>::quiet_NaN(),
                       std::numeric_limits<Float>::denorm_min()};
  for (int i = 0; i < 2000; ++i) {
    const Float a = i % 2 == 0 ? odd[random() % std::size(odd)] : std::bit_cast<Float>(static_cast<Bits>(random()));
    const Float b = i % 3 == 0 ? odd[random() % std::size(odd)] : std::bit_cast<Float>(static_cast<Bits>(random()));
    const auto flipped = [flip](Float x) { return std::bit_cast<Float>(static_cast<Bits>(std::bit_cast<Bits>(x) ^ flip)); };
    const Float got = element::canonical(flipped(reduce<ReduceOp::Max>(flipped(a), flipped(b))));
    const Float want = element::canonical(reduce<ReduceOp::Min>(a, b));
    EXPECT_EQ(std::bit_cast<Bits>(got), std::bit_cast<Bits>(want));
  }
}

TEST(CudaLoops, MaxOfFlippedFloatsIsMin) {
  std::mt19937_64 random(2);
  expectFlippedMaxOfFloats<float, uint32_t>(DataType::F32, random);
  expectFlippedMaxOfFloats<double, uint64_t>(DataType::F64, random);
}

TEST(CudaPipes, CarriedBytesAreWholeWords) {
  for (const Protocol protocol : {Protocol::Simple, Protocol::Cells, Protocol::Lines}) {
    for (uint64_t bytes = 128; bytes <= 1 << 20; bytes *= 2) {
      const uint64_t carried = carriedBytes(protocol, bytes);
      EXPECT_GT(carried, 0u);
      EXPECT_LE(carried, bytes);
      EXPECT_EQ(carried % 8, 0u);
    }
  }
  EXPECT_EQ(carriedBytes(Protocol::Cells, 256), 128u);
  EXPECT_EQ(carriedBytes(Protocol::Lines, 256), 240u);
}

TEST(CudaWindows, SharesOfAllWritersChannelsAndBanksAreApart) {
  WindowView window;
  window.base[2] = nullptr;
  window.shareBytes = 256;
  window.channels = 3;
  constexpr int32_t kRanks = 5;
  uint64_t next = 0;
  for (uint64_t epoch = 0; epoch < 2; ++epoch)
    for (int32_t channel = 0; channel < window.channels; ++channel)
      for (int32_t writer = 0; writer < kRanks; ++writer, next += window.shareBytes) {
        const auto offset = reinterpret_cast<uintptr_t>(window.share(2, epoch, writer, kRanks, channel));
        EXPECT_EQ(offset, next);
        EXPECT_EQ(window.share(2, epoch + 2, writer, kRanks, channel), window.share(2, epoch, writer, kRanks, channel));
      }
  EXPECT_EQ(next, windowBytes(kRanks, window.channels, window.shareBytes));
}

TEST(CudaWindows, WhatAShareHoldsFitsBehindItsFirstPage) {
  WindowView window;
  window.shareBytes = 4 * kPageBytes;
  window.channels = 64;
  window.storedPages[1].laterIn[0] = window.takenPages[1].laterIn[1] = 1u << 31 | 1u << 3;
  const auto place = [](const std::byte* p) { return reinterpret_cast<uintptr_t>(p); };
  int later = 0;
  for (uint64_t epoch = 0; epoch < 4; ++epoch) {
    for (int32_t channel = 0; channel < window.channels; ++channel) {
      const uint64_t stored = place(window.shareAt(1, epoch, 0, 2, channel)) - place(window.share(1, epoch, 0, 2, channel));
      const uint64_t taken = place(window.shareOf(1, epoch, 0, 2, channel)) - place(window.share(0, epoch, 1, 2, channel));
      const bool isPlaced = channel == 3 || channel == 31;  // no bit stands for channel 35 or 63
      EXPECT_EQ(stored, isPlaced && epoch % 2 == 0 ? kPageBytes : 0) << channel;
      EXPECT_EQ(taken, isPlaced && epoch % 2 == 1 ? kPageBytes : 0) << channel;
      EXPECT_LE(std::max(stored, taken) + shareRoom(Protocol::Cells, window.shareBytes), window.shareBytes);
      later += stored != 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(later, 4);
  for (const uint64_t bytes : {256, 4096, 16384}) {
    EXPECT_EQ(shareRoom(Protocol::Lines, bytes), bytes);
    EXPECT_EQ(shareRoom(Protocol::Simple, bytes), bytes);
  }
  EXPECT_EQ(shareRoom(Protocol::Cells, 256), 256u) << "no second page";
}

}  // namespace
}  // namespace tutti::exec::cuda::loops_test
