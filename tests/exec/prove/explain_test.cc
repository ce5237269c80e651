// What the prover says when it rejects something, in cases that are long or come late.
#include <gtest/gtest.h>

#include "algo/list.h"
#include "tampered.h"

namespace tutti::exec::prove::explain_test {
namespace {

using record::Program;

constexpr auto kNobodySends = [](Program& p, const LayoutView&) { p.lanes[0][0].to.count = 0; };

TEST(Explain, ALongCycleIsShortenedButCounted) {
  const Subject s = tampered<algo::RingAllGather, kNobodySends>();
  const Proof few = proofOf(s, {.ranks = 4, .slices = 1});
  expectRejected(few, {"deadlock, 4 of 4 lanes wait", "4 of them in a cycle"});
  EXPECT_EQ(few.failure.find("more;"), std::string::npos) << few.failure;
  const Proof many = proofOf(s, {.ranks = 40, .slices = 1});
  expectRejected(many, {"deadlock, 40 of 40 lanes wait", "40 of them in a cycle", " more; "});
  EXPECT_LT(many.failure.size(), 2 * few.failure.size() + 200) << many.failure;
}

constexpr auto kWrongOutput = [](Program& p, const LayoutView& v) {
  if (v.rank == Rank(2)) p.lanes[0].back().dst.chunk = (p.lanes[0].back().dst.chunk + 1) % v.ranks;
};

TEST(Explain, NamesTheOperationOnlyWhereThereAreSeveral) {
  const Subject s = tampered<algo::RingAllGather, kWrongOutput>();
  const Proof one = proofOf(s);
  expectRejected(one, {"rank 2 lane 0 slice 0"});
  expectRejected(proofOf(s, {.operations = 2}), {"rank 2 lane 0 operation 0 slice 0"});
}

TEST(Explain, ATamperedSecondOperationIsNamed) {
  const Subject bad = tampered<algo::RingAllGather, kWrongOutput>();
  Case c;
  c.algorithm = findSubject(Collective::AllReduce, "ring");
  c.then = &bad;
  c.ranks = 4;
  c.slices = 2;
  c.operations = 2;
  expectRejected(prove(c), {"rank 2 lane 0 operation 1 slice 0"});
}

TEST(Explain, AProofThatHoldsSaysNothing) {
  const Proof proof = proofOf(subjectOf<algo::RingAllGather>());
  EXPECT_TRUE(proof.ok);
  EXPECT_EQ(proof.failure, "");
}

}  // namespace
}  // namespace tutti::exec::prove::explain_test
