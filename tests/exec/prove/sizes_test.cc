#include "exec/prove/sizes.h"

#include <gtest/gtest.h>

namespace tutti::exec::prove::sizes_test {
namespace {

using algo::Division;
using algo::Geometry;

TEST(Sizes, OddGeometryHasTheSlicesAskedFor) {
  for (const Division division : {Division::Shares, Division::Blocks})
    for (int32_t chunks = 1; chunks <= 20; ++chunks)
      for (const int32_t channels : {1, 2, 3, 8})
        for (const int32_t slices : {1, 2, 3, 7, 64}) {
          const Geometry g = oddGeometry(division, chunks, channels, slices);
          EXPECT_EQ(g.slices, slices);
          EXPECT_EQ(checkCover(g, chunks), "");
          EXPECT_NE(g.totalElems % 2 + g.totalElems % static_cast<uint64_t>(slices * 64), 0u);
        }
}

TEST(Sizes, CoverNoticesHolesAndOverlaps) {
  const Geometry good = oddGeometry(Division::Shares, 4, 2, 3);
  Geometry g = good;
  g.sliceElems -= 1;  // the slices do not reach the end of a part
  EXPECT_NE(checkCover(g, 4).find("begins at element"), std::string::npos);
  g = good;
  g.partElems -= 64;  // nor do the parts that of a chunk
  EXPECT_NE(checkCover(g, 4), "");
  g = good;
  g.totalElems += 1000;
  EXPECT_NE(checkCover(g, 4).find("of"), std::string::npos);
}

TEST(Sizes, ClassesSeparateChunksOfDifferentLength) {
  const SizeClasses blocks = classifySizes(Division::Blocks, 5, 2, 3);
  EXPECT_EQ(blocks.failure, "");
  EXPECT_EQ(blocks.ofChunk, (std::vector<uint32_t>{0, 0, 0, 0, 0}));
  const SizeClasses shares = classifySizes(Division::Shares, 4, 1, 2);
  EXPECT_EQ(shares.failure, "");
  EXPECT_NE(shares.ofChunk.front(), shares.ofChunk.back());
}

}  // namespace
}  // namespace tutti::exec::prove::sizes_test
