#include "exec/prove/prove.h"

#include <gtest/gtest.h>

#include "exec/prove/collective.h"

namespace tutti::exec::prove::prove_test {
namespace {

const Subject& find(Collective collective, std::string_view name) { return *findSubject(collective, name); }

TEST(Prove, EveryAlgorithmForSmallRankCounts) {
  Prover prover;
  for (const Subject& s : subjects()) {
    const int32_t least = std::max(1, s.traits.minSlots);
    for (int32_t ranks = 1; ranks <= 9; ++ranks) {
      for (int32_t root = 0; root < ranks; ++root) {
        for (const bool inPlace : {false, true}) {
          if (inPlace && !hasInPlace(s.traits.collective)) continue;
          const Proof proof = prover.prove({&s, nullptr, ranks, root, least, 3, 2, 3, 2, inPlace, static_cast<uint64_t>(root)});
          EXPECT_TRUE(proof.ok) << proof.failure;
          EXPECT_NE(proof.races, RaceCheck::NotReached);
        }
      }
    }
  }
}

TEST(Prove, CountsStepsAndMessages) {
  const Subject& ring = find(Collective::AllReduce, "ring");
  const Proof proof = prove({&ring, nullptr, 4, 0, 4, 3});
  ASSERT_TRUE(proof.ok) << proof.failure;
  EXPECT_EQ(proof.lanes, 4u);
  EXPECT_EQ(proof.steps, 4u * 3u * 7u);     // ranks × slices × (2 (ranks - 1) + 1)
  EXPECT_EQ(proof.messages, 4u * 3u * 6u);  // ranks × slices × 2 (ranks - 1)
  EXPECT_GE(proof.slotsUsed, 2);
  EXPECT_LE(proof.slotsUsed, 4);
}

TEST(Prove, LeastSlots) {
  EXPECT_EQ(leastSlots(find(Collective::AllReduce, "ring"), 1), 1);
  for (const int32_t ranks : {2, 3, 8, 17}) {
    EXPECT_EQ(leastSlots(find(Collective::AllReduce, "ring"), ranks), 2) << ranks;
    EXPECT_EQ(leastSlots(find(Collective::Broadcast, "ring"), ranks), 1) << ranks;
    EXPECT_EQ(leastSlots(find(Collective::AllReduce, "tree"), ranks), 1) << ranks;
    EXPECT_EQ(leastSlots(find(Collective::AllToAll, "p2p"), ranks), 1) << ranks;
  }
}

TEST(Prove, TwoAlgorithmsInTurn) {
  for (const char* second : {"tree", "oneshot"}) {
    const Proof proof = prove({&find(Collective::AllReduce, "ring"), &find(Collective::AllReduce, second), 6, 0, 2, 3, 1, 5, 2, true});
    EXPECT_TRUE(proof.ok) << proof.failure;
  }
}

TEST(Prove, ManyRanks) {
  const Proof tree = prove({&find(Collective::AllReduce, "tree"), nullptr, 1000, 0, 1, 2, 1, 1, 2, true});
  EXPECT_TRUE(tree.ok) << tree.failure;
  const Proof ring = prove({&find(Collective::ReduceScatter, "ring"), nullptr, 257, 0, 2, 1});
  EXPECT_TRUE(ring.ok) << ring.failure;
}

TEST(Prove, RefusesCasesThatMakeNoSense) {
  const Subject& ring = find(Collective::AllReduce, "ring");
  EXPECT_EQ(prove({}).failure, "no algorithm: no algorithm");
  EXPECT_NE(prove({&ring, nullptr, 0}).failure.find("0 ranks; at least 1"), std::string::npos);
  EXPECT_NE(prove({&ring, nullptr, 4, 4}).failure.find("root 4; 0 to 3"), std::string::npos);
  EXPECT_NE(prove({&ring, nullptr, 4, 0, 0}).failure.find("0 slots; at least 1"), std::string::npos);
  EXPECT_NE(prove({&ring, nullptr, 4, 0, 1, 0}).failure.find("0 slices; at least 1"), std::string::npos);
  EXPECT_NE(prove({&find(Collective::AllToAll, "p2p"), nullptr, 4, 0, 1, 1, 1, 1, 2, true}).failure.find("no in-place form"),
            std::string::npos);
}

TEST(Prove, NamesTheCase) {
  const Subject& reduce = find(Collective::Reduce, "ring");
  EXPECT_EQ(describe(Case{&reduce, nullptr, 4, 2, 3, 1, 2, 5, 1, true, 9}),
            "Reduce ring, 4 ranks, root 2, 3 slots, 1 slice, 2 channels, 5 operations, 1 bank, in place, layout 9");
}

}  // namespace
}  // namespace tutti::exec::prove::prove_test
