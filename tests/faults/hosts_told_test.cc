// What the survivors of a death on another host know together: also those to whom the dead rank never sent anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::hosts_told_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 4;
constexpr int kDead = 1;
using Self = ProcessRanks::Self;

/// A call that is repeated until it fails, and how an error names the last one of the dead rank.
struct Repeated {
  const char* name;
  ncclResult_t (*call)(ncclComm_t comm, int rank, std::vector<int>& data);
  const char* last;
  size_t count;  ///< of ints
};
void PrintTo(const Repeated& repeated, std::ostream* out) { *out << repeated.name; }

ncclResult_t allReduce(ncclComm_t comm, int /*rank*/, std::vector<int>& data) {
  return ncclAllReduce(data.data(), data.data(), data.size(), ncclInt, ncclMax, comm, nullptr);
}
ncclResult_t broadcast(ncclComm_t comm, int /*rank*/, std::vector<int>& data) {
  return ncclBroadcast(data.data(), data.data(), data.size(), ncclInt, 0, comm, nullptr);
}
ncclResult_t reduce(ncclComm_t comm, int /*rank*/, std::vector<int>& data) {
  return ncclReduce(data.data(), data.data(), data.size(), ncclInt, ncclSum, 0, comm, nullptr);
}
ncclResult_t passOn(ncclComm_t comm, int rank, std::vector<int>& data) {
  const size_t half = data.size() / 2;
  if (const ncclResult_t begun = ncclGroupStart(); begun != ok) return begun;
  (void)ncclSend(data.data(), half, ncclInt, (rank + 1) % kRanks, comm, nullptr);
  (void)ncclRecv(data.data() + half, half, ncclInt, (rank + kRanks - 1) % kRanks, comm, nullptr);
  return ncclGroupEnd();
}

/// Whether the verdict of this host has the waits of all who were told in one, and how far all living ranks had come.
bool isComplete(const ProcessRanks::Self& self, const std::string& text, bool ofCollectives) {
  const auto verdict = nlohmann::json::parse(text);
  const bool hasCall = verdict.contains("missing");
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto& report = verdict["ranks"][static_cast<size_t>(rank)];
    if (rank == kDead) continue;
    if (self.number(rank, 1) != 0 && (!hasCall || report["state"] != "waiting")) return false;
    if (!ofCollectives) continue;
    const int64_t begun = report["begun"];
    if (begun + 1 < self.number(rank, 2)) return false;  // the last call may have been refused
    if (!hasCall) continue;  // all were between two calls
    const auto& missing = verdict["missing"];
    if (begun > verdict["sequence"].get<int64_t>() && std::find(missing.begin(), missing.end(), rank) != missing.end()) return false;
  }
  return true;
}

class HostsTold : public testing::TestWithParam<Repeated> {};

TEST_P(HostsTold, EverybodyWhoDiedWhereInWhatAndWhereTheOthersStand) {
  const Repeated& repeated = GetParam();
  ProcessRanks children(kRanks, [&](Self& self) {
    playNamedHost(self.index());
    ncclComm_t comm = joinAll(self);
    std::vector<int> data(repeated.count);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(repeated.call(comm, self.index(), data), ok) << lastError();
    self.note(0, getpid());
    self.meet(1);
    ncclResult_t result = ok;
    int64_t calls = 3;
    for (; result == ok; ++calls) result = repeated.call(comm, self.index(), data);
    self.note(2, calls);
    EXPECT_EQ(result, ncclRemoteError);
    EXPECT_TRUE(mentions(lastError(), {"rank 1: process " + std::to_string(self.number(kDead, 0)) + " on " + nameOfHost(kDead),
                                       "the last that came from rank 1 was of ", repeated.last}));
    // Or it was told between two calls, and stands nowhere.
    self.note(1, lastError().find("[rank " + std::to_string(self.index()) + " in ") != std::string::npos ? 1 : 0);
    self.reach(2);
    self.awaitAllowed(1);  // all have returned
    const bool ofCollectives = repeated.call != passOn;
    const Stopwatch watch;
    while (!isComplete(self, verdictOf(comm), ofCollectives) && watch.seconds() < kPromptSeconds)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(isComplete(self, verdictOf(comm), ofCollectives)) << verdictOf(comm);
    EXPECT_TRUE(mentions(verdictOf(comm), {R"("suspects":[{"rank":1,"host":")" + nameOfHost(kDead)}));
    self.reach(3);
    self.awaitAllowed(2);
    EXPECT_EQ(ncclCommAbort(comm), ok);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  children.kill(kDead);
  for (const int stage : {2, 3}) {
    for (int child = 0; child < kRanks; ++child) EXPECT_TRUE(child == kDead || children.awaitStage(child, stage)) << child;
    children.allow(stage - 1);
  }
  children.expectAllWell({kDead});
}

INSTANTIATE_TEST_SUITE_P(Of, HostsTold,
                         testing::Values(Repeated{"AllReduce", allReduce, "AllReduce #", 600'000},
                                         Repeated{"Broadcast", broadcast, "Broadcast #", 600'000},
                                         Repeated{"SmallBroadcast", broadcast, "Broadcast #", 1000},
                                         Repeated{"SmallReduce", reduce, "Reduce #", 1000},
                                         Repeated{"Messages", passOn, "a message of ", 600'000}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tutti::faults::hosts_told_test
