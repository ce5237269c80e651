#include "algo/geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tutti::algo::geometry_test {
namespace {

constexpr uint64_t kCounts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 100, 127, 255, 257, 1000, 1023, 4097, 12345};
constexpr int32_t kChunks[] = {1, 2, 3, 4, 5, 7, 8, 16, 17};
constexpr int32_t kChannels[] = {1, 2, 3, 4, 8};
constexpr uint64_t kSliceBytes[] = {1, 8, 60, 64, 200, 4096};

template <class Visit>
void forEachGeometry(DataType type, Visit&& visit) {
  for (const Division division : {Division::Shares, Division::Blocks})
    for (const uint64_t count : kCounts)
      for (const int32_t chunks : kChunks)
        for (const int32_t channels : kChannels)
          for (const uint64_t sliceBytes : kSliceBytes)
            visit(makeGeometry(division, count, chunks, type, channels, sliceBytes), division, count, chunks, sliceBytes);
}

class GeometryOfType : public ::testing::TestWithParam<DataType> {};

TEST_P(GeometryOfType, EveryElementIsInExactlyOneSlice) {
  forEachGeometry(GetParam(), [](const Geometry& g, Division division, uint64_t count, int32_t chunks, uint64_t) {
    const uint64_t total = division == Division::Shares ? count : count * static_cast<uint64_t>(chunks);
    ASSERT_EQ(g.totalElems, total);
    // Visited chunk by chunk, channel by channel, slice by slice, elements come in order: so each comes once.
    uint64_t next = 0;
    bool inOrder = true;
    for (int32_t chunk = 0; chunk < chunks; ++chunk)
      for (int32_t channel = 0; channel < g.channels; ++channel)
        for (int32_t slice = 0; slice < g.slices; ++slice) {
          const Range r = g.range(chunk, channel, slice);
          inOrder = inOrder && (r.elems == 0 || r.begin == next);
          next += r.elems;
        }
    ASSERT_EQ(next, total);
    ASSERT_TRUE(inOrder) << "count " << count << " chunks " << chunks << " channels " << g.channels;
  });
}

TEST_P(GeometryOfType, SlicesFitTheirSlotAndNoneIsWasted) {
  const uint64_t size = sizeOf(GetParam());
  forEachGeometry(GetParam(), [&](const Geometry& g, Division, uint64_t count, int32_t chunks, uint64_t sliceBytes) {
    uint64_t inLast = 0;
    uint64_t longest = 0;
    for (int32_t chunk = 0; chunk < chunks; ++chunk)
      for (int32_t channel = 0; channel < g.channels; ++channel) {
        for (int32_t slice = 0; slice < g.slices; ++slice) longest = std::max(longest, g.range(chunk, channel, slice).elems * size);
        if (g.slices > 0) inLast += g.range(chunk, channel, g.slices - 1).elems;
      }
    ASSERT_LE(longest, std::max(sliceBytes, size));
    ASSERT_TRUE(g.totalElems == 0 || inLast > 0) << "count " << count << " chunks " << chunks;
    ASSERT_EQ(g.slices == 0, g.totalElems == 0);
  });
}

TEST_P(GeometryOfType, ChunksDoNotDependOnChannelsOrSlices) {
  const auto begins = [](const Geometry& g, int32_t chunks) {
    std::vector<uint64_t> all;
    for (int32_t chunk = 0; chunk < chunks; ++chunk) all.push_back(std::min(g.chunkElems * static_cast<uint64_t>(chunk), g.totalElems));
    return all;
  };
  for (const Division division : {Division::Shares, Division::Blocks})
    for (const uint64_t count : kCounts)
      for (const int32_t chunks : kChunks) {
        const auto first = begins(makeGeometry(division, count, chunks, GetParam(), 1, 64), chunks);
        for (const int32_t channels : kChannels)
          for (const uint64_t sliceBytes : kSliceBytes) {
            const Geometry g = makeGeometry(division, count, chunks, GetParam(), channels, sliceBytes);
            ASSERT_EQ(begins(g, chunks), first);
            for (int32_t chunk = 0; chunk < chunks; ++chunk) {
              const Range r = g.range(chunk, 0, 0);
              ASSERT_TRUE(r.elems == 0 || r.begin == first[static_cast<size_t>(chunk)]);
            }
          }
      }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, GeometryOfType,
                         ::testing::Values(DataType::I8, DataType::U8, DataType::I32, DataType::U32, DataType::I64, DataType::U64,
                                           DataType::F16, DataType::F32, DataType::F64, DataType::BF16, DataType::F8E4M3, DataType::F8E5M2),
                         [](const auto& param) { return std::string(name(param.param)); });

TEST(Geometry, SharesBeginAtAlignedBytes) {
  const Geometry g = makeGeometry(Division::Shares, 1000, 3, DataType::F32, 1, 1 << 20);
  EXPECT_EQ(g.chunkElems, 336u);  // 1000 / 3 up to whole 64 bytes
  EXPECT_EQ(g.range(2, 0, 0).begin, 672u);
  EXPECT_EQ(g.range(2, 0, 0).elems, 328u);
}

TEST(Geometry, BlocksBeginAtWholeCounts) {
  const Geometry g = makeGeometry(Division::Blocks, 1000, 3, DataType::F32, 2, 1 << 20);
  EXPECT_EQ(g.totalElems, 3000u);
  EXPECT_EQ(g.range(2, 0, 0).begin, 2000u);
  EXPECT_EQ(g.range(1, 1, 0).begin, 1512u);
  EXPECT_EQ(g.range(1, 1, 0).elems, 488u);
}

TEST(Geometry, ACountBelowTheChunksLeavesSomeEmpty) {
  const Geometry g = makeGeometry(Division::Shares, 5, 4, DataType::F64, 1, 64);
  EXPECT_EQ(g.range(0, 0, 0).elems, 5u);
  EXPECT_EQ(g.range(1, 0, 0).elems, 0u);
  EXPECT_EQ(g.range(3, 0, 0).elems, 0u);
}

TEST(Geometry, HugeCountsDoNotOverflow) {
  const uint64_t count = uint64_t{1} << 40;
  const Geometry g = makeGeometry(Division::Blocks, count, 64, DataType::U8, 32, 4 << 20);
  EXPECT_EQ(g.totalElems, count * 64);
  const Range last = g.range(63, 31, g.slices - 1);
  EXPECT_EQ(last.begin + last.elems, g.totalElems);
}

TEST(Geometry, ASliceHoldsAtLeastOneElement) { EXPECT_EQ(makeGeometry(Division::Shares, 10, 1, DataType::F64, 1, 3).sliceElems, 1u); }

}  // namespace
}  // namespace tutti::algo::geometry_test
