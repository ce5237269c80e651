#include "exec/prove/cases.h"

#include <gtest/gtest.h>

#include <set>

#include "algo/list.h"
#include "tampered.h"

namespace tutti::exec::prove::cases_test {
namespace {

TEST(Cases, QuickOnesAreAllProved) {
  Prover prover;
  std::vector<Proof> proofs;
  for (const Case& c : standardCases(Extent::Quick)) {
    proofs.push_back(prover.prove(c));
    EXPECT_TRUE(proofs.back().ok) << proofs.back().failure;
  }
  const std::string table = markdownTable(proofs);
  for (const Subject& s : subjects()) EXPECT_NE(table.find(std::string(s.traits.name)), std::string::npos);
  EXPECT_EQ(table.find("FAILED"), std::string::npos);
}

TEST(Cases, FullOnesHaveEveryRankCountAndSlotCount) {
  for (const Subject& s : subjects()) {
    std::set<int32_t> ranks, slots, slices, roots;
    for (const Case& c : standardCases(s, Extent::Full)) {
      EXPECT_EQ(c.algorithm, &s);
      ranks.insert(c.ranks);
      slots.insert(c.slots);
      slices.insert(c.slices);
      if (c.ranks == 5) roots.insert(c.root);
    }
    const auto runsOn = [&](int32_t n) {
      bool runs = false;
      for (int32_t nodes = 1; nodes <= n; ++nodes) runs = runs || (n % nodes == 0 && s.traits.runsOn(nodes, n / nodes));
      return runs;
    };
    for (int32_t n = 1; n <= 64; ++n) EXPECT_EQ(ranks.contains(n), runsOn(n)) << s.traits.name << " " << n;
    EXPECT_EQ(slices, (std::set<int32_t>{1, 2, 3, 7}));
    const bool usesPipes = s.traits.needs == algo::Needs::Pipe;
    EXPECT_EQ(*slots.rbegin(), usesPipes ? 8 : 1);
    EXPECT_EQ(roots.size(), s.traits.collective == Collective::Gather || s.traits.collective == Collective::Reduce ? 5u : roots.size());
    const bool fewLanes = usesPipes && s.lanes(1000) < 1000;
    EXPECT_EQ(ranks.contains(127) && ranks.contains(1000), fewLanes && runsOn(1000)) << s.traits.name;
    EXPECT_EQ(ranks.contains(100), fewLanes && runsOn(100)) << s.traits.name;
    for (const std::string_view wanted : {"ring", "tree", "pat"}) EXPECT_TRUE(s.traits.name != wanted || fewLanes);
  }
}

constexpr auto kNoLastStep = [](record::Program& p, const LayoutView& v) {
  if (v.ranks > 2) p.lanes[0].pop_back();
};
TEST(Cases, TheTableShowsTheFirstFailure) {
  const Subject s = tampered<algo::RingAllReduce, kNoLastStep>();
  std::vector<Proof> proofs;
  for (const int32_t ranks : {1, 2, 4, 5}) proofs.push_back(proofOf(s, {.ranks = ranks}));
  const std::string table = markdownTable(proofs);
  EXPECT_NE(table.find("| AllReduce | ring | 1, 2, 4, 5 | 2 |"), std::string::npos) << table;
  EXPECT_NE(table.find("FAILED: AllReduce ring, 4 ranks"), std::string::npos) << table;
}

}  // namespace
}  // namespace tutti::exec::prove::cases_test
