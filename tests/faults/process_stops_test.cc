// A process that is stopped while a communicator is made: the others give up in time, and say which rank they had waited for.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::process_stops_test {
namespace {

using Self = ProcessRanks::Self;

constexpr int kRanks = 3;
constexpr int64_t kTimeoutMs = 1000;
/// For what happens on the service's threads, with nobody who waits for it.
constexpr std::chrono::milliseconds kMoment(200);

/// How far it has come.
enum class When : uint8_t {
  WithTheId,  ///< made it, and nothing else: nobody knows a rank of it
  BeforeItCalls,
  Registered,   ///< at the root, before the others
  EverybodyMet  ///< the roster is there, and it has not looked
};
struct Stop {
  int victim;
  When when;
};

ncclComm_t beginToJoin(const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, kRanks, id, rank, &config), ncclInProgress) << lastError();
  return comm;
}

/// Its place in the text is that of one who is missing, not of one who complains.
testing::AssertionResult namesAsMissing(const std::string& text, int rank) {
  const std::string name = "rank " + std::to_string(rank);
  for (const std::string& form : {name + " of 3", name + " (process", "of " + name})
    if (text.find(form) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name << " is not named in: " << text;
}

/// Each stop in a communicator of its own, all at once.
void playStops(const std::vector<Stop>& stops, bool onHosts) {
  const int processes = kRanks * static_cast<int>(stops.size());
  ProcessRanks children(processes, [&](Self& self) {
    const int group = self.index() / kRanks;
    const int rank = self.index() % kRanks;
    const int first = group * kRanks;
    const Stop stop = stops[static_cast<size_t>(group)];
    playHost(onHosts ? rank : 0);
    setenv("TUTTI_TIMEOUT_MS", std::to_string(kTimeoutMs).c_str(), 1);
    self.note(0, getpid());
    const ncclUniqueId id = self.id(group, first);
    if (rank == stop.victim) {
      if (stop.when == When::EverybodyMet) {
        for (int other = 0; other < kRanks; ++other)
          if (other != rank) self.awaitStage(first + other, 1);
      }
      if (stop.when >= When::Registered) (void)beginToJoin(id, rank);
      std::this_thread::sleep_for(kMoment);
      self.reach(1);
      (void)raise(SIGSTOP);
      return;
    }
    if (stop.when != When::EverybodyMet) self.awaitStage(first + stop.victim, 1);
    std::this_thread::sleep_for(stop.when == When::EverybodyMet ? std::chrono::milliseconds(0) : kMoment);
    self.reach(1);
    const Stopwatch watch;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, kRanks, id, rank), ncclRemoteError);
    EXPECT_LT(watch.seconds(), 1e-3 * kTimeoutMs + kPromptSeconds);
    if (stop.when == When::WithTheId) {
      const std::string root = std::to_string(self.number(first, 0));
      EXPECT_TRUE(mentions(lastError(), {"the root at", ", process " + root + " has not answered"}));
    } else {
      EXPECT_TRUE(namesAsMissing(lastError(), stop.victim)) << "victim " << stop.victim << ", when " << static_cast<int>(stop.when);
    }
    self.reach(2);
  });
  for (int child = 0; child < processes; ++child) {
    const bool isVictim = child % kRanks == stops[static_cast<size_t>(child / kRanks)].victim;
    EXPECT_TRUE(children.awaitStage(child, isVictim ? 1 : 2)) << "child " << child;
  }
  for (int child = 0; child < processes; ++child) {
    if (child % kRanks == stops[static_cast<size_t>(child / kRanks)].victim) {
      children.kill(child);
    } else {
      EXPECT_TRUE(children.end(child).byItself && children.end(child).code == 0) << children.end(child).text;
    }
  }
}

const std::vector<Stop> kStops = {
    {1, When::BeforeItCalls}, {0, When::WithTheId}, {1, When::Registered}, {0, When::EverybodyMet}, {1, When::EverybodyMet},
};

TEST(ProcessStops, DuringSetUpOnOneHostAreNamed) { playStops(kStops, false); }

TEST(ProcessStops, DuringSetUpOnSeveralHostsAreNamed) { playStops(kStops, true); }

}  // namespace
}  // namespace tutti::faults::process_stops_test
