#include "algo/list.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace tutti::algo::list_test {
namespace {

TEST(List, NamesAreUniqueWithinACollective) {
  std::set<std::pair<Collective, std::string_view>> seen;
  AllAlgorithms::forEach([&]<class A>() { EXPECT_TRUE(seen.emplace(A::kTraits.collective, A::kTraits.name).second) << A::kTraits.name; });
}

TEST(List, EveryCollectiveHasAnAlgorithm) {
  std::set<Collective> seen;
  AllAlgorithms::forEach([&]<class A>() { seen.insert(A::kTraits.collective); });
  EXPECT_EQ(seen.size(), static_cast<size_t>(kNumCollectives));
}

TEST(List, EveryAlgorithmHasChunksAndLanesForEveryRankCount) {
  AllAlgorithms::forEach([&]<class A>() {
    for (int32_t ranks = 1; ranks <= 200; ++ranks) {
      EXPECT_GE(A::chunks(ranks), 1);
      EXPECT_GE(A::lanes(ranks), 1);
      EXPECT_TRUE(A::kTraits.division != Division::Blocks || A::chunks(ranks) == ranks) << A::kTraits.name;
    }
  });
}

}  // namespace
}  // namespace tutti::algo::list_test
