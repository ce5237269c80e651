#include "tune/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tutti::tune {
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

std::string_view chosen(Collective collective, uint64_t bytes, int32_t ranks, const Restrictions& restrictions = {}) {
  const auto algorithm = choose(collective, bytes, ranks, restrictions);
  return algorithm ? (*algorithm)->traits.name : "none";
}

Status refusal(Collective collective, const Restrictions& restrictions) {
  const auto algorithm = choose(collective, 1000, 4, restrictions);
  return algorithm ? Status() : algorithm.error();
}

constexpr uint64_t kLarge = uint64_t{1} << 30;

TEST(Choose, EveryCollectiveHasAnAlgorithmAtAnySizeAndRankCount) {
  for (int c = 0; c < kNumCollectives; ++c)
    for (const int32_t ranks : {1, 2, 3, 8, 64, 1000})
      for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{1} << 20, kLarge}) {
        const auto algorithm = choose(static_cast<Collective>(c), bytes, ranks, {});
        ASSERT_TRUE(algorithm) << name(static_cast<Collective>(c));
        EXPECT_EQ((*algorithm)->traits.collective, static_cast<Collective>(c));
      }
}

TEST(Choose, SmallAllReducesGoInOneFlightAndLargeOnesRound) {
  for (const int32_t ranks : {2, 4, 8, 32}) {
    EXPECT_EQ(chosen(Collective::AllReduce, 8, ranks), "oneshot") << ranks;
    EXPECT_EQ(chosen(Collective::AllReduce, kLarge, ranks), "ring") << ranks;
  }
  EXPECT_EQ(chosen(Collective::AllReduce, 65536, 32), "tree") << "many ranks, middling size";
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 1), "ring");
}

TEST(Choose, NcclAlgoNamesRingAndTree) {
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, restrict("Ring")), "ring");
  EXPECT_EQ(chosen(Collective::AllReduce, kLarge, 4, restrict("tree")), "tree");
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, restrict("allreduce:tree")), "tree");
  EXPECT_EQ(chosen(Collective::Broadcast, kLarge, 4, restrict("allreduce:tree")), "ring");
}

TEST(Choose, OnlyNotTheseKeepsOneShotAllowed) {
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, restrict("^NVLS")), "oneshot");
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, restrict("^Tree")), "oneshot");
  EXPECT_EQ(chosen(Collective::AllReduce, kLarge, 4, restrict("^Ring")), "tree");
}

TEST(Choose, TuttiAlgoNamesOneShotToo) {
  EXPECT_EQ(chosen(Collective::AllReduce, kLarge, 4, restrict("", "oneshot")), "oneshot");
  EXPECT_EQ(chosen(Collective::AllReduce, 8, 4, restrict("", "allreduce:^oneshot")), "ring");
  EXPECT_EQ(chosen(Collective::AllReduce, 65536, 32, restrict("", "^tree")), "ring");
}

TEST(Choose, TuttiAlgoWinsOverNcclAlgoWhereItSpeaks) {
  EXPECT_EQ(chosen(Collective::AllReduce, kLarge, 4, restrict("Ring", "oneshot")), "oneshot");
  EXPECT_EQ(chosen(Collective::AllReduce, kLarge, 4, restrict("Tree", "broadcast:ring")), "tree");
}

TEST(Choose, MessagesAreNotGoverned) {
  for (const Collective collective : {Collective::SendRecv, Collective::AllToAll, Collective::Gather, Collective::Scatter}) {
    EXPECT_EQ(chosen(collective, 100, 4, restrict("Tree")), "p2p");
    EXPECT_EQ(chosen(collective, 100, 4, restrict("", "oneshot")), "p2p");
  }
}

TEST(Choose, WhenNothingIsLeftTheTextNamesTheVariableAndWhatThereIs) {
  const Status nccl = refusal(Collective::Broadcast, restrict("Tree"));
  EXPECT_EQ(nccl.code(), Code::InvalidUsage);
  EXPECT_NE(nccl.text().find("NCCL_ALGO=Tree"), std::string::npos) << nccl.text();
  EXPECT_NE(nccl.text().find("Broadcast"), std::string::npos) << nccl.text();
  EXPECT_NE(nccl.text().find("ring"), std::string::npos) << nccl.text();

  const Status tutti = refusal(Collective::Reduce, restrict("", "oneshot"));
  EXPECT_EQ(tutti.code(), Code::InvalidUsage);
  EXPECT_NE(tutti.text().find("TUTTI_ALGO=oneshot"), std::string::npos) << tutti.text();

  const Status collnet = refusal(Collective::AllReduce, restrict("CollnetDirect"));
  EXPECT_NE(collnet.text().find("ring, tree, oneshot"), std::string::npos) << collnet.text();

  for (const Status* status : {&nccl, &tutti, &collnet}) {
    EXPECT_EQ(status->text().find("  "), std::string::npos) << status->text();
    EXPECT_NE(status->text().front(), ' ') << status->text();
  }
}

TEST(Choose, ListsEveryNameOnce) {
  const auto names = tuttiAlgorithmNames();
  for (const std::string_view expected : {"ring", "tree", "oneshot", "p2p"})
    EXPECT_EQ(std::count(names.begin(), names.end(), expected), 1) << expected;
  EXPECT_EQ(ncclAlgorithmNames().size(), 7U);
}

TEST(Choose, EveryNcclNameCanBeSet) {
  for (const auto n : ncclAlgorithmNames()) EXPECT_TRUE(Filter::parse("NCCL_ALGO", n, ncclAlgorithmNames())) << n;
  EXPECT_FALSE(Filter::parse("NCCL_ALGO", "oneshot", ncclAlgorithmNames()));
}

}  // namespace
}  // namespace tutti::tune
