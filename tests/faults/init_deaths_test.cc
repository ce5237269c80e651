// A process dies while a communicator is made, after it has registered: the others are told at once, and by whom, without any deadline.
// (One that dies before is a rank that never came, which nobody can tell from one that is late: Killed.DuringInit, HostsKilled.DuringInit.)
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::init_deaths_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 3;
/// For what happens on the service's threads, with nobody who waits for it.
constexpr std::chrono::milliseconds kMoment(200);
using Self = ProcessRanks::Self;

/// When it dies: before the others come; while one waits with it for another that does not come; so many microseconds after all have come.
constexpr int kBeforeTheOthers = -2, kWhileOneIsMissing = -1;
struct Death {
  int victim;
  int microseconds;

  /// Of what the victim and those that begin with it wait for.
  bool isMissing(int rank) const { return microseconds == kWhileOneIsMissing && rank == kRanks - 1; }
};

/// Of the all-reduces that follow: a victim that is killed late makes them like the others.
constexpr size_t kCount = 10;

/// Until it is killed.
void liveOn(const ncclUniqueId& id, int rank, const std::function<void()>& onRegistered) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, kRanks, id, rank, &config), ncclInProgress) << lastError();
  std::this_thread::sleep_for(kMoment);
  onRegistered();
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ok);
  std::vector<int> values(kCount);
  while (state == ok || state == ncclInProgress) {
    if (state == ok) (void)ncclAllReduce(values.data(), values.data(), kCount, ncclInt, ncclSum, comm, nullptr);
    (void)ncclCommGetAsyncError(comm, &state);
  }
  std::this_thread::sleep_for(std::chrono::minutes(1));
}

/// Each in a communicator of its own, all at once. `deaths`: by their time.
void playDeaths(const std::vector<Death>& deaths, bool onHosts) {
  const int processes = kRanks * static_cast<int>(deaths.size());
  ProcessRanks children(processes, [&](Self& self) {
    const int group = self.index() / kRanks;
    const int rank = self.index() % kRanks;
    const int first = group * kRanks;
    const Death death = deaths[static_cast<size_t>(group)];
    playHost(onHosts ? rank : 0);
    self.note(0, getpid());
    const ncclUniqueId id = self.id(group, first);
    if (rank == death.victim) return liveOn(id, rank, [&] { self.reach(1); });
    self.awaitAllowed(1);
    if (!death.isMissing(rank)) {
      const Stopwatch watch;
      ncclComm_t comm = nullptr;
      ncclResult_t result = ncclCommInitRank(&comm, kRanks, id, rank);
      if (result == ok) result = sumUntilError(comm, kCount);
      self.note(1, static_cast<int64_t>(1e3 * watch.seconds()));
      EXPECT_EQ(result, ncclRemoteError) << lastError();
      const std::string process = "process " + std::to_string(self.number(first + death.victim, 0));
      // The root closes its door when it gives up: who has not been told yet says so.
      EXPECT_TRUE(mentions(lastError(), {"rank " + std::to_string(death.victim), process}) || mentions(lastError(), {"root", "went away"}));
      self.reach(2);
      self.awaitAllowed(2);  // the process of the root, gone early, would be the news
      if (comm != nullptr) abortPromptly(comm);
    }
  });
  const auto victimOf = [&](size_t group) { return kRanks * static_cast<int>(group) + deaths[group].victim; };
  const auto killThoseOf = [&](int when) {
    for (size_t group = 0; group < deaths.size(); ++group)
      if (deaths[group].microseconds == when) children.kill(victimOf(group));
  };
  for (size_t group = 0; group < deaths.size(); ++group) ASSERT_TRUE(children.awaitStage(victimOf(group), 1));
  killThoseOf(kBeforeTheOthers);
  children.allow(1);
  const Stopwatch watch;
  for (size_t group = 0; group < deaths.size(); ++group) {
    if (deaths[group].microseconds < 0) continue;
    std::this_thread::sleep_for(std::chrono::duration<double>(1e-6 * deaths[group].microseconds - watch.seconds()));
    children.kill(victimOf(group));
  }
  std::this_thread::sleep_for(kMoment);
  killThoseOf(kWhileOneIsMissing);
  for (int child = 0; child < processes; ++child) {
    const Death& death = deaths[static_cast<size_t>(child / kRanks)];
    const int rank = child % kRanks;
    if (rank == death.victim || death.isMissing(rank)) continue;
    EXPECT_TRUE(children.awaitStage(child, 2)) << "child " << child;
    EXPECT_LT(1e-3 * static_cast<double>(children.number(child, 1)), kPromptSeconds + 0.5) << "child " << child;
  }
  children.allow(2);
  for (int child = 0; child < processes; ++child) {
    if (child % kRanks == deaths[static_cast<size_t>(child / kRanks)].victim) continue;
    const Ended& ended = children.end(child);
    EXPECT_TRUE(ended.byItself && ended.code == 0) << "child " << child << ":\n" << ended.text;
  }
}

/// Rank 0 is in the process of the root. Who has not reached it before its death tries for some seconds to do so.
const std::vector<Death> kDeaths = {{1, kBeforeTheOthers}, {0, kWhileOneIsMissing}, {1, kWhileOneIsMissing}, {1, 3000}, {2, 10000}};

TEST(InitDeaths, OnOneHostAreToldAtOnce) { playDeaths(kDeaths, false); }

TEST(InitDeaths, OnSeveralHostsAreToldAtOnce) { playDeaths(kDeaths, true); }

}  // namespace
}  // namespace tutti::faults::init_deaths_test
