#include "core/types.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>

#include "core/ids.h"

namespace tutti::types_test {
namespace {

static_assert(!std::is_convertible_v<Rank, LocalRank> && !std::is_convertible_v<int, Rank>);
static_assert(!std::is_convertible_v<Bytes, Elems>);
static_assert(std::is_trivially_copyable_v<Rank> && sizeof(Rank) == 4 && sizeof(Bytes) == 8);

TEST(Types, SizesNamesAndClasses) {
  constexpr uint32_t kSizes[kNumDataTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  std::set<std::string_view> names;
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(sizeOf(type), kSizes[i]) << i;
    EXPECT_EQ(isInteger(type), i < 6) << i;
    names.insert(name(type));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumDataTypes));
  EXPECT_EQ(name(DataType::BF16), "bfloat16");
  EXPECT_EQ(name(ReduceOp::Min), "min");
  EXPECT_EQ(name(Collective::AllReduce), "AllReduce");
  EXPECT_EQ(name(Collective::Gather), "Gather");
}

TEST(Ids, CompareAndAdd) {
  EXPECT_LT(Rank(1), Rank(2));
  EXPECT_EQ(Bytes(3) + Bytes(4), Bytes(7));
  EXPECT_EQ(Bytes(7) - Bytes(4), Bytes(3));
  EXPECT_EQ(Bytes(7) * 3, Bytes(21));
  EXPECT_EQ(bytesOf(Elems(5), 8), Bytes(40));
}

}  // namespace
}  // namespace tutti::types_test
