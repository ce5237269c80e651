// What the survivors of a death on another host know together: also those to whom the dead rank never sent anything.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults {
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
};
void PrintTo(const Repeated& repeated, std::ostream* out) { *out << repeated.name; }

ncclResult_t allReduce(ncclComm_t comm, int /*rank*/, std::vector<int>& data) {
  return ncclAllReduce(data.data(), data.data(), data.size(), ncclInt, ncclMax, comm, nullptr);
}
ncclResult_t broadcast(ncclComm_t comm, int /*rank*/, std::vector<int>& data) {
  return ncclBroadcast(data.data(), data.data(), data.size(), ncclInt, 0, comm, nullptr);
}
ncclResult_t passOn(ncclComm_t comm, int rank, std::vector<int>& data) {
  const size_t half = data.size() / 2;
  if (const ncclResult_t begun = ncclGroupStart(); begun != ok) return begun;
  (void)ncclSend(data.data(), half, ncclInt, (rank + 1) % kRanks, comm, nullptr);
  (void)ncclRecv(data.data() + half, half, ncclInt, (rank + kRanks - 1) % kRanks, comm, nullptr);
  return ncclGroupEnd();
}

/// Of a collective: whoever waits in it, or in a later one, has come to it.
void expectNobodyMissingWhoWaits(const std::string& text) {
  const auto verdict = nlohmann::json::parse(text);
  if (verdict.contains("peer") || !verdict.contains("missing")) return;
  for (const int rank : verdict["missing"]) {
    const auto& report = verdict["ranks"][static_cast<size_t>(rank)];
    EXPECT_TRUE(report["state"] != "waiting" || report["begun"] <= verdict["sequence"]) << rank << ": " << text;
  }
}

class HostsTold : public testing::TestWithParam<Repeated> {};

TEST_P(HostsTold, EverybodyWhoDiedWhereInWhatAndWhereTheOthersStand) {
  const Repeated& repeated = GetParam();
  ProcessRanks children(kRanks, [&](Self& self) {
    playNamedHost(self.index());
    ncclComm_t comm = joinAll(self);
    std::vector<int> data(600'000);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(repeated.call(comm, self.index(), data), ok) << lastError();
    self.note(0, getpid());
    self.meet(1);
    ncclResult_t result = ok;
    while (result == ok) result = repeated.call(comm, self.index(), data);
    EXPECT_EQ(result, ncclRemoteError);
    EXPECT_TRUE(mentions(lastError(), {"rank 1: process " + std::to_string(self.number(kDead, 0)) + " on " + nameOfHost(kDead),
                                       "the last that came from rank 1 was of ", repeated.last}));
    // Or it was told between two calls, and stands nowhere.
    self.note(1, lastError().find("[rank " + std::to_string(self.index()) + " in ") != std::string::npos ? 1 : 0);
    self.reach(2);
    self.awaitAllowed(1);  // all have returned
    const auto isComplete = [&] {
      const std::string verdict = verdictOf(comm);
      for (int rank = 0; rank < kRanks; ++rank) {
        if (rank == kDead || self.number(rank, 1) == 0) continue;
        if (verdict.find(R"({"rank":)" + std::to_string(rank) + R"(,"state":"waiting")") == std::string::npos) return false;
      }
      return true;
    };
    const Stopwatch watch;
    while (!isComplete() && watch.seconds() < kPromptSeconds) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(isComplete()) << verdictOf(comm);
    expectNobodyMissingWhoWaits(verdictOf(comm));
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
                         testing::Values(Repeated{"AllReduce", allReduce, "AllReduce #"}, Repeated{"Broadcast", broadcast, "Broadcast #"},
                                         Repeated{"Messages", passOn, "a message of "}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tutti::faults
