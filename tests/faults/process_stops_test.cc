// A process that is stopped while a communicator is made, divided or ended: the others give up in time, and say which rank they had waited
// for.
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

// ---- While a communicator is divided --------------------------------------------------------------------------------------

/// Three of four ranks become a communicator; the fourth takes part in the split alone, and becomes a member of nothing.
enum class Division : uint8_t { Split, Shrink, ShrinkThatEndsWork };
constexpr int kParents = kRanks + 1;
/// When it stops: before it comes, and so do the others; before the others come; or so many microseconds after all have begun to do it
/// again and again.
constexpr int kBeforeItComes = -2, kWhenItHasCome = -1;
struct Halt {
  Division how;
  int victim;
  int microseconds;

  bool isRepeated() const { return microseconds >= 0; }
  bool takesPart(int rank) const { return rank < kRanks || how == Division::Split; }
};

ncclResult_t divide(ncclComm_t comm, Division how, bool isMember, ncclComm_t* child) {
  if (how == Division::Split) return ncclCommSplit(comm, isMember ? 0 : NCCL_SPLIT_NOCOLOR, 0, child, nullptr);
  int excluded = kParents - 1;
  return ncclCommShrink(comm, &excluded, 1, child, nullptr, how == Division::Shrink ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT);
}

/// As members of the communicator, if there is one, that they can use from then on. `why`: what an error said.
ncclResult_t divideAndUse(ncclComm_t comm, Division how, bool isMember, std::string& why) {
  ncclComm_t child = nullptr;
  ncclResult_t result = divide(comm, how, isMember, &child);
  why = lastError();
  EXPECT_EQ(child != nullptr, result == ncclSuccess && isMember) << why;
  if (child == nullptr) return result;
  EXPECT_EQ(tuttiCommSetTimeout(child, kTimeoutMs), ncclSuccess);
  result = sumOnce(child, kRanks);
  why = lastError();
  if (result != ncclSuccess) {
    abortPromptly(child);
  } else {
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess) << lastError();
  }
  return result;
}

/// A survivor's text: who is missing, whether it has seen that itself or was told. Who waits for one that waits for the lock of the stopped
/// one says who has that.
testing::AssertionResult saysWhoIsMissing(const std::string& text, int victim) {
  const std::string name = "rank " + std::to_string(victim);
  if (const auto says = mentions(text, {"which is past the deadline of", "of " + name})) return says;
  if (const auto says = mentions(text, {"with " + name + " was stopped while it had the lock"})) return says;
  const size_t end = text.find(" have not come");
  if (end == std::string::npos) return mentions(text, {"with " + name + " has the lock of what"});
  return namesRank(text.substr(0, end).substr(text.find("allows: ")), victim);  // behind who complains
}

/// What a rank does until its division fails, and how long that takes.
void divideUntilError(Self& self, ncclComm_t comm, const Halt& halt, int rank) {
  const bool isMember = rank < kRanks;
  const Stopwatch watch;
  std::string why;
  ncclResult_t result = ncclSuccess;
  do result = divideAndUse(comm, halt.how, isMember, why);
  while (result == ncclSuccess && halt.isRepeated());
  if (rank == halt.victim) {
    EXPECT_EQ(result, ncclRemoteError) << why;
    return;
  }
  // A second deadline where a call after the stop has succeeded.
  EXPECT_LT(watch.seconds(), (halt.isRepeated() ? 2e-3 : 1e-3) * kTimeoutMs + kPromptSeconds);
  if (!isMember && halt.microseconds == kWhenItHasCome) {
    EXPECT_EQ(result, ncclSuccess) << why;
  } else {
    EXPECT_EQ(result, ncclRemoteError) << why;
    EXPECT_TRUE(saysWhoIsMissing(why, halt.victim)) << "victim " << halt.victim << " of child " << self.index();
  }
}

/// Each in a communicator of its own, all at once.
void playHalts(const std::vector<Halt>& halts) {
  const int processes = kParents * static_cast<int>(halts.size());
  ProcessRanks children(processes, [&](Self& self) {
    const int rank = self.index() % kParents;
    const int group = self.index() / kParents;
    const int first = group * kParents;
    const Halt& halt = halts[static_cast<size_t>(group)];
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, kParents, self.id(group, first), rank), ncclSuccess) << lastError();
    EXPECT_EQ(sumOnce(comm, kParents), ncclSuccess) << lastError();
    EXPECT_EQ(tuttiCommSetTimeout(comm, kTimeoutMs), ncclSuccess);  // only now: processes may come late
    self.meet(1);
    const auto stop = [&] {
      const bool isSoon = halt.isRepeated();
      std::this_thread::sleep_for(isSoon ? std::chrono::microseconds(halt.microseconds) : kMoment);
      self.reach(2);
      (void)::kill(getpid(), SIGSTOP);  // until all others have given up
    };
    if (rank == halt.victim) {
      if (halt.microseconds == kBeforeItComes) stop();
      std::thread later;
      if (halt.microseconds != kBeforeItComes) later = std::thread(stop);
      divideUntilError(self, comm, halt, rank);
      if (later.joinable()) later.join();
    } else if (halt.takesPart(rank)) {
      if (!halt.isRepeated()) {
        self.awaitStage(first + halt.victim, 2);
        std::this_thread::sleep_for(kMoment);
      }
      divideUntilError(self, comm, halt, rank);
      self.reach(2);
    }
    self.awaitAllowed(1);
    abortPromptly(comm);
  });
  bool areThere = children.awaitStageOfAll(1);
  for (int child = 0; child < processes && areThere; ++child)
    areThere = !halts[static_cast<size_t>(child / kParents)].takesPart(child % kParents) || children.awaitStage(child, 2);
  for (int group = 0; group < static_cast<int>(halts.size()); ++group)
    children.signal(group * kParents + halts[static_cast<size_t>(group)].victim, SIGCONT);
  children.allow(1);
  children.expectAllWell();
}

TEST(ProcessStops, BeforeItComesToASplitOrAShrinkIsNamed) {
  playHalts({{Division::Split, 1, kBeforeItComes},
             {Division::Split, 0, kBeforeItComes},
             {Division::Shrink, 1, kBeforeItComes},
             {Division::ShrinkThatEndsWork, 2, kBeforeItComes}});
}

/// The others have a communicator with it, and are told by the first call.
TEST(ProcessStops, WhenItHasComeToASplitOrAShrinkIsNamed) {
  playHalts({{Division::Split, 1, kWhenItHasCome},
             {Division::Split, 0, kWhenItHasCome},
             {Division::Shrink, 1, kWhenItHasCome},
             {Division::ShrinkThatEndsWork, 2, kWhenItHasCome}});
}

TEST(ProcessStops, InTheMiddleOfSplitsAndShrinksIsNamed) {
  playHalts({{Division::Split, 1, 1000},
             {Division::Split, 0, 7000},
             {Division::Shrink, 1, 4000},
             {Division::ShrinkThatEndsWork, 2, 10000}});
}

// ---- While a communicator comes to its end --------------------------------------------------------------------------------

/// A call on a stream waits for the stopped rank, and the finalize for the call.
TEST(ProcessStops, DuringAFinalizeIsNamed) {
  constexpr int kVictim = 1;
  for (const bool isBlocking : {true, false}) {
    ProcessRanks children(kRanks, [&](Self& self) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = isBlocking ? 1 : 0;
      ncclComm_t comm = nullptr;
      const auto settle = [&](ncclResult_t result) {
        while (result == ncclInProgress && ncclCommGetAsyncError(comm, &result) == ncclSuccess && result == ncclInProgress)
          std::this_thread::yield();
        return result;
      };
      ASSERT_EQ(settle(ncclCommInitRankConfig(&comm, kRanks, self.id(), self.index(), &config)), ncclSuccess) << lastError();
      int value = 1;
      EXPECT_EQ(settle(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr)), ncclSuccess) << lastError();
      EXPECT_EQ(tuttiCommSetTimeout(comm, kTimeoutMs), ncclSuccess);
      cudaStream_t stream = nullptr;
      ASSERT_EQ(tuttiStreamCreate(&stream), ncclSuccess);
      self.meet(1);
      if (self.index() == kVictim) {
        (void)raise(SIGSTOP);  // until all others have given up
        EXPECT_EQ(settle(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr)), ncclRemoteError) << lastError();
      } else {
        EXPECT_EQ(settle(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, stream)), ncclSuccess) << lastError();
        const Stopwatch watch;
        EXPECT_EQ(settle(ncclCommFinalize(comm)), ncclRemoteError) << lastError();
        EXPECT_LT(watch.seconds(), 1e-3 * kTimeoutMs + kPromptSeconds);
        EXPECT_TRUE(mentions(verdictOf(comm), {"\"kind\":\"deadline\"", "AllReduce", "of rank 1"}));
        EXPECT_TRUE(mentions(lastError(), {"AllReduce", "of rank 1"}));
        EXPECT_EQ(tuttiStreamSynchronize(stream), ncclRemoteError);
        self.reach(2);
        self.awaitAllowed(1);
      }
      EXPECT_EQ(tuttiStreamDestroy(stream), ncclSuccess);
      abortPromptly(comm);
    });
    ASSERT_TRUE(children.awaitStageOfAll(1));
    ASSERT_TRUE(children.awaitStageOfAll(2, {kVictim}));
    children.signal(kVictim, SIGCONT);
    children.allow(1);
    children.expectAllWell();
  }
}

}  // namespace
}  // namespace tutti::faults::process_stops_test
