#include "tune/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tutti::tune::choose_test {
namespace {

Restrictions restrict(std::string_view nccl, std::string_view tutti = "") {
  Restrictions restrictions;
  auto a = Filter::parse("NCCL_ALGO", nccl, ncclAlgorithmNames());
  auto b = Filter::parse("TUTTI_ALGO", tutti, tuttiAlgorithmNames());
  EXPECT_TRUE(a && b);
  if (a) restrictions.nccl = *a;
  if (b) restrictions.tutti = *b;
  return restrictions;
}

/// The names that are left, in order, separated by blanks; "none" where that is an error.
std::string left(Collective collective, const Restrictions& restrictions = {}, bool deterministic = false) {
  const auto found = candidates(collective, restrictions, deterministic);
  if (!found) return "none";
  std::string names;
  for (const auto* algorithm : *found) names += (names.empty() ? "" : " ") + std::string(algorithm->traits.name);
  return names;
}

Status refusal(Collective collective, const Restrictions& restrictions, bool deterministic = false) {
  const auto found = candidates(collective, restrictions, deterministic);
  return found ? Status() : found.error();
}

TEST(Candidates, AreAllThatTheCollectiveHas) {
  for (const exec::record::Algorithm& a : exec::record::algorithms())
    EXPECT_NE((" " + left(a.traits.collective) + " ").find(" " + std::string(a.traits.name) + " "), std::string::npos) << a.traits.name;
  EXPECT_EQ(left(Collective::SendRecv), "p2p");
}

TEST(Candidates, NcclAlgoNamesRingTreeAndPat) {
  EXPECT_EQ(left(Collective::AllReduce, restrict("Ring")), "ring");
  EXPECT_EQ(left(Collective::AllReduce, restrict("allreduce:tree")), "tree");
  EXPECT_EQ(left(Collective::AllGather, restrict("PAT")), "pat");
  EXPECT_EQ(left(Collective::Broadcast, restrict("allreduce:tree")), left(Collective::Broadcast));
}

TEST(Candidates, PatMayBeForbidden) {
  Restrictions none;
  none.forbidsPat = true;
  EXPECT_EQ((" " + left(Collective::AllGather, none) + " ").find(" pat "), std::string::npos);
  EXPECT_NE((" " + left(Collective::AllGather) + " ").find(" pat "), std::string::npos);
  Restrictions only = restrict("PAT");
  only.forbidsPat = true;
  EXPECT_NE(refusal(Collective::AllGather, only).text().find("with NCCL_PAT_ENABLE=0 leaves no algorithm"), std::string::npos);
  Restrictions own = restrict("", "pat");
  own.forbidsPat = true;
  EXPECT_EQ(left(Collective::AllGather, own), "pat") << "TUTTI_ALGO wins";
  for (const exec::record::Algorithm& a : exec::record::algorithms()) {
    if (a.traits.name == "pat") {
      EXPECT_EQ(whyNot(a, none), "NCCL_PAT_ENABLE=0 forbids it");
    }
  }
}

TEST(Candidates, OnlyNotTheseKeepsWhatNcclHasNoNameFor) {
  EXPECT_EQ(left(Collective::AllReduce, restrict("^NVLS")), left(Collective::AllReduce));
  EXPECT_EQ(left(Collective::Broadcast, restrict("^Ring")), "chain direct star");
}

TEST(Candidates, TuttiAlgoNamesThemAllAndWinsWhereItSpeaks) {
  EXPECT_EQ(left(Collective::AllReduce, restrict("", "oneshot,twoshot")), "oneshot twoshot");
  EXPECT_EQ(left(Collective::AllReduce, restrict("Ring", "oneshot")), "oneshot");
  EXPECT_EQ(left(Collective::AllReduce, restrict("Tree", "broadcast:ring")), "tree");
}

TEST(Candidates, DefaultsLeaveMessagesAlone) {
  for (const Collective collective : {Collective::SendRecv, Collective::AllToAll, Collective::Gather, Collective::Scatter}) {
    EXPECT_EQ(left(collective, restrict("Tree")), left(collective));
    EXPECT_EQ(left(collective, restrict("", "oneshot")), left(collective));
  }
  EXPECT_EQ(left(Collective::AllToAll, restrict("", "alltoall:direct")), "direct");
  EXPECT_EQ(left(Collective::AllToAll, restrict("", "p2p")), "p2p") << "a default that names what there is";
  EXPECT_EQ(left(Collective::Gather, restrict("", "gather:ring")), "none") << "meant, and there is none";
}

TEST(Candidates, DeterministicIsRankOrderOfOneKind) {
  EXPECT_EQ(left(Collective::AllReduce, {}, true), "oneshot twoshot");
  EXPECT_EQ(left(Collective::ReduceScatter, {}, true), "direct");
  const auto reduces = candidates(Collective::Reduce, {}, true);
  ASSERT_TRUE(reduces);
  for (const auto* a : *reduces) EXPECT_EQ(a->traits.order, reduces->front()->traits.order);
  EXPECT_NE(reduces->front()->traits.order, algo::Order::Layout);
  EXPECT_EQ(left(Collective::AllReduce, restrict("", "ring,chain"), true), "chain");
  EXPECT_EQ(left(Collective::AllReduce, restrict("", "chain,twoshot"), true), "twoshot") << "never two kinds of rounding";
  EXPECT_EQ(left(Collective::AllGather, {}, true), left(Collective::AllGather)) << "moves have no order";
  const Status refused = refusal(Collective::AllReduce, restrict("Ring"), true);
  EXPECT_EQ(refused.code(), Code::InvalidUsage);
  EXPECT_NE(refused.text().find("TUTTI_DETERMINISTIC"), std::string::npos) << refused.text();
  EXPECT_NE(refused.text().find("NCCL_ALGO=Ring"), std::string::npos) << refused.text();
}

TEST(Candidates, WhenNothingIsLeftTheTextNamesTheVariableAndWhatThereIs) {
  const Status nccl = refusal(Collective::Broadcast, restrict("Tree"));
  EXPECT_EQ(nccl.code(), Code::InvalidUsage);
  EXPECT_NE(nccl.text().find("NCCL_ALGO=Tree"), std::string::npos) << nccl.text();
  EXPECT_NE(nccl.text().find("Broadcast"), std::string::npos) << nccl.text();
  EXPECT_NE(nccl.text().find("ring, chain"), std::string::npos) << nccl.text();

  const Status tutti = refusal(Collective::Reduce, restrict("", "oneshot"));
  EXPECT_EQ(tutti.code(), Code::InvalidUsage);
  EXPECT_NE(tutti.text().find("TUTTI_ALGO=oneshot"), std::string::npos) << tutti.text();
  for (const Status* status : {&nccl, &tutti}) {
    EXPECT_EQ(status->text().find("  "), std::string::npos) << status->text();
    EXPECT_NE(status->text().front(), ' ') << status->text();
  }
}

TEST(Candidates, ListsEveryNameOnce) {
  const auto names = tuttiAlgorithmNames();
  for (const std::string_view expected : {"ring", "tree", "oneshot", "p2p"})
    EXPECT_EQ(std::count(names.begin(), names.end(), expected), 1) << expected;
  EXPECT_EQ(ncclAlgorithmNames().size(), 7U);
}

TEST(Candidates, EveryNcclNameCanBeSet) {
  for (const auto n : ncclAlgorithmNames()) EXPECT_TRUE(Filter::parse("NCCL_ALGO", n, ncclAlgorithmNames())) << n;
  EXPECT_FALSE(Filter::parse("NCCL_ALGO", "oneshot", ncclAlgorithmNames()));
}

}  // namespace
}  // namespace tutti::tune::choose_test
