// Ranks that have left in peace are missing in the ways by which others hear of trouble: deaths and aborts are heard all the same, at once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::leavers_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

int64_t nowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// All but two ranks leave; one of these waits for the other, which is killed or aborts.
struct Play {
  const char* name;
  int ranks;
  int perHost;  ///< 0: all on one
  int waits;
  int ends;
  bool aborts;
};

class Leavers : public testing::TestWithParam<Play> {};

TEST_P(Leavers, TroubleIsHeardAtOnce) {
  const Play play = GetParam();
  ProcessRanks children(play.ranks, [play](Self& self) {
    if (play.perHost > 0) playHost(self.index() / play.perHost);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, play.ranks), ok);
    self.note(0, getpid());
    self.meet(1);
    if (self.index() != play.waits && self.index() != play.ends) {
      EXPECT_EQ(ncclCommDestroy(comm), ok);
      self.reach(2);
      return;
    }
    if (self.index() == play.ends) {
      self.reach(2);
      self.awaitAllowed(3);
      self.note(1, nowNs());
      EXPECT_EQ(play.aborts ? ncclCommAbort(comm) : ok, ok);
      self.reach(4);
      if (!play.aborts) std::this_thread::sleep_for(std::chrono::seconds(30));
      return;
    }
    self.reach(2);
    int value = 0;
    EXPECT_EQ(ncclRecv(&value, 1, ncclInt, play.ends, comm, nullptr), ncclRemoteError);
    EXPECT_LT(1e-9 * static_cast<double>(nowNs() - self.number(play.ends, 1)), kPromptSeconds + 0.5) << lastError();
    const std::string name = "rank " + std::to_string(play.ends);
    if (play.aborts) {
      EXPECT_TRUE(mentions(lastError(), {name + " aborted"}));
    } else {
      EXPECT_TRUE(mentions(lastError(), {name + ": process " + std::to_string(self.number(play.ends, 0)), "has ended without a word"}));
    }
    EXPECT_EQ(ncclCommAbort(comm), ok);
  });
  ASSERT_TRUE(children.awaitStageOfAll(2));
  for (int child = 0; child < play.ranks; ++child)
    EXPECT_TRUE(child == play.waits || child == play.ends || children.end(child).byItself) << child;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  children.allow(3);
  ASSERT_TRUE(children.awaitStage(play.ends, 4));
  if (play.aborts) return children.expectAllWell();
  children.kill(play.ends);
  children.expectAllWell({play.ends});
}

INSTANTIATE_TEST_SUITE_P(, Leavers,
                         testing::Values(Play{"DeathOnAHost", 3, 0, 1, 2, false}, Play{"DeathOnAHostOfMany", 8, 0, 6, 3, false},
                                         Play{"DeathBesideOtherHosts", 8, 4, 5, 7, false}, Play{"DeathOnAnotherHost", 8, 4, 3, 5, false},
                                         Play{"AbortOnAHost", 4, 0, 2, 1, true}, Play{"AbortOnAnotherHost", 16, 4, 5, 11, true}),
                         [](const auto& played) { return played.param.name; });

/// The ranks of a child communicator whose parent all others have left.
TEST(LeaversOfAParent, ADeathInAChildIsHeard) {
  constexpr int kRanks = 6;
  ProcessRanks children(kRanks, [](Self& self) {
    ncclComm_t parent = joinAll(self);
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(parent, self.index() % 2 == 1 ? 1 : NCCL_SPLIT_NOCOLOR, self.index(), &child, nullptr), ok) << lastError();
    self.note(0, getpid());
    self.meet(1);
    if (self.index() % 2 == 0) {
      EXPECT_EQ(ncclCommDestroy(parent), ok);
      self.reach(2);
      return;
    }
    self.reach(2);
    EXPECT_EQ(sumUntilError(child, 1000), ncclRemoteError);
    EXPECT_TRUE(
        mentions(lastError(), {"process " + std::to_string(self.number(3, 0)), "has ended without a word", "the last call of rank 1"}));
    EXPECT_EQ(ncclCommAbort(child), ok);
    EXPECT_EQ(ncclCommAbort(parent), ok);
  });
  ASSERT_TRUE(children.awaitStageOfAll(2));
  for (const int child : {0, 2, 4}) EXPECT_TRUE(children.end(child).byItself) << children.end(child).text;
  const Stopwatch watch;
  children.kill(3);
  for (const int child : {1, 5}) EXPECT_TRUE(children.end(child).byItself) << children.end(child).text;
  EXPECT_LT(watch.seconds(), 2 * kPromptSeconds);
  children.expectAllWell({3});
}

}  // namespace
}  // namespace tutti::faults::leavers_test
