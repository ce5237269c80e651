// A process dies in the middle of calls of every shape and size over shared memory: all who wait for it are told who, where and when.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"
#include "faults/process_ranks.h"

namespace tutti::faults::process_deaths_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 3;
using Self = ProcessRanks::Self;

int64_t nowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// What the ranks repeat until one of them dies.
struct Shape {
  const char* name;
  ncclResult_t (*call)(ncclComm_t comm, int rank, int* in, int* out, size_t count);
  int doomed;
  const char* operation;  ///< as the survivors' text names the last call of the dead; empty where it may be any of two
};

ncclResult_t allReduce(ncclComm_t comm, int, int* in, int* out, size_t count) {
  return ncclAllReduce(in, out, count, ncclInt, ncclSum, comm, nullptr);
}
ncclResult_t broadcast(ncclComm_t comm, int, int* in, int* out, size_t count) {
  return ncclBroadcast(in, out, count, ncclInt, 0, comm, nullptr);
}
ncclResult_t ring(ncclComm_t comm, int rank, int* in, int* out, size_t count) { return passOn(comm, rank, kRanks, in, out, count); }
/// Rank 0 sends to all others, one after another; nothing comes back.
ncclResult_t messages(ncclComm_t comm, int rank, int* in, int* out, size_t count) {
  if (rank != 0) return ncclRecv(out, count, ncclInt, 0, comm, nullptr);
  for (int peer = 1; peer < kRanks; ++peer)
    if (const ncclResult_t sent = ncclSend(in, count, ncclInt, peer, comm, nullptr); sent != ok) return sent;
  return ok;
}
ncclResult_t groupOfTwo(ncclComm_t comm, int, int* in, int* out, size_t count) {
  if (const ncclResult_t begun = ncclGroupStart(); begun != ok) return begun;
  const ncclResult_t first = ncclAllReduce(in, out, count, ncclInt, ncclSum, comm, nullptr);
  const ncclResult_t second = ncclBroadcast(in, out + count, count, ncclInt, 1, comm, nullptr);
  const ncclResult_t ended = ncclGroupEnd();
  return first != ok ? first : second != ok ? second : ended;
}

const Shape kShapes[] = {
    {"AllReduce", allReduce, 1, "AllReduce"},
    {"BroadcastWithoutTheRoot", broadcast, 0, "Broadcast"},
    {"BroadcastToADeadReader", broadcast, 2, "Broadcast"},
    {"Ring", ring, 1, ""},
    {"MessagesOfTheDead", messages, 0, "Send #"},
    {"MessagesToTheDead", messages, 1, "Recv #"},
    {"GroupOfTwo", groupOfTwo, 2, ""},
};

/// A shape, and how many elements: a flag in the data, staged, and pulled from the peer's memory.
class ProcessDeaths : public testing::TestWithParam<std::tuple<Shape, size_t>> {};

TEST_P(ProcessDeaths, EverySurvivorIsToldWhoWhereAndWhat) {
  const auto& [shape, count] = GetParam();
  ProcessRanks children(kRanks, [shape = shape, count = count](Self& self) {
    if (count >= 1'000'000) setenv("TUTTI_CMA", "1", 1);
    ncclComm_t comm = joinAll(self);
    std::vector<int> in(count, 1);
    std::vector<int> out(2 * count);
    EXPECT_EQ(shape.call(comm, self.index(), in.data(), out.data(), count), ok);
    self.note(0, getpid());
    self.meet(1);
    ncclResult_t result = ok;
    while (result == ok) result = shape.call(comm, self.index(), in.data(), out.data(), count);
    self.note(1, nowNs());
    EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(comm);
    const std::string text = ncclGetLastError(comm);
    const std::string name = "rank " + std::to_string(shape.doomed);
    for (const std::string& word :
         {name, std::to_string(self.number(shape.doomed, 0)) + " on " + hostName(), "the last call of " + name + " was " + shape.operation})
      EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
    EXPECT_EQ(text.find("the last call of " + name + " was none"), std::string::npos) << text;
    const Stopwatch watch;
    EXPECT_EQ(ncclCommAbort(comm), ok);
    EXPECT_LT(watch.seconds(), kPromptSeconds);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t death = nowNs();
  children.kill(shape.doomed);
  children.expectAllWell({shape.doomed});
  for (int child = 0; child < kRanks; ++child) {
    if (child == shape.doomed) continue;
    EXPECT_LT(static_cast<double>(children.number(child, 1) - death) * 1e-9, kPromptSeconds) << "child " << child;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ProcessDeaths, testing::Combine(testing::ValuesIn(kShapes), testing::Values(4, 6000, 1000000)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace tutti::faults::process_deaths_test
