// Ranks in several processes whose calls do not match: every rank gets ncclInvalidUsage and both calls in words, without any deadline.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"
#include "faults/process_ranks.h"

namespace tutti::faults::process_calls_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 3;
using Self = ProcessRanks::Self;
using Call = std::function<ncclResult_t(ncclComm_t comm, int* data)>;

ncclResult_t allReduce(ncclComm_t comm, int* data, size_t count = 1000, ncclDataType_t type = ncclInt, ncclRedOp_t op = ncclSum) {
  return ncclAllReduce(data, data, count, type, op, comm, nullptr);
}
ncclResult_t broadcast(ncclComm_t comm, int* data, size_t count = 1000, int root = 0) {
  return ncclBroadcast(data, data, count, ncclInt, root, comm, nullptr);
}

/// Rank 1 calls `odd`, the others `usual`, all until an error. The texts name both.
struct Mismatch {
  const char* name;
  Call usual;
  Call odd;
  std::vector<std::string> words;
};

const std::vector<Mismatch>& mismatches() {
  static const std::vector<Mismatch> all = {
      {"count", [](ncclComm_t c, int* d) { return allReduce(c, d, 1000); }, [](ncclComm_t c, int* d) { return allReduce(c, d, 1001); },
       {"1000", "1001"}},
      {"large count", [](ncclComm_t c, int* d) { return allReduce(c, d, 200000); },
       [](ncclComm_t c, int* d) { return allReduce(c, d, 100); }, {"200000", "100"}},
      {"type", [](ncclComm_t c, int* d) { return allReduce(c, d); }, [](ncclComm_t c, int* d) { return allReduce(c, d, 1000, ncclFloat); },
       {"int32", "float"}},
      {"operator", [](ncclComm_t c, int* d) { return allReduce(c, d); },
       [](ncclComm_t c, int* d) { return allReduce(c, d, 1000, ncclInt, ncclMax); }, {"sum", "max"}},
      {"root", [](ncclComm_t c, int* d) { return broadcast(c, d); }, [](ncclComm_t c, int* d) { return broadcast(c, d, 1000, 2); },
       {"root 0", "root 2"}},
      {"swapped calls",
       [](ncclComm_t c, int* d) {
         const ncclResult_t first = allReduce(c, d);
         return first == ok ? broadcast(c, d) : first;
       },
       [](ncclComm_t c, int* d) {
         const ncclResult_t first = broadcast(c, d);
         return first == ok ? allReduce(c, d) : first;
       },
       {"AllReduce", "Broadcast"}},
      {"a call left out",
       [](ncclComm_t c, int* d) {
         const ncclResult_t first = allReduce(c, d);
         return first == ok ? broadcast(c, d) : first;
       },
       [](ncclComm_t c, int* d) { return broadcast(c, d); }, {"AllReduce", "Broadcast"}},
      {"a split", [](ncclComm_t c, int* d) { return allReduce(c, d); },
       [](ncclComm_t c, int*) {
         ncclComm_t child = nullptr;
         return ncclCommSplit(c, 0, 0, &child, nullptr);
       },
       {"AllReduce", "Split"}},
      {"messages that nobody takes", [](ncclComm_t c, int* d) { return ncclSend(d, 300000, ncclInt, 1, c, nullptr); },
       [](ncclComm_t c, int* d) { return ncclSend(d, 300000, ncclInt, 0, c, nullptr); }, {"Send"}},
  };
  return all;
}

/// All mismatches, over the library's own sockets or those of a plugin.
void expectMismatches(const Layout& layout, bool isOverPlugin) {
  for (size_t m = 0; m < mismatches().size(); ++m) {
    ProcessRanks children(kRanks, [m, &layout, isOverPlugin](Self& self) {
      if (!layout.hosts.empty()) playHost(layout.hosts[static_cast<size_t>(self.index())]);
      if (isOverPlugin) {
        setenv("NCCL_NET_PLUGIN", "example", 1);
        setenv("NCCL_NET", "Example", 1);
      }
      const Mismatch& mismatch = mismatches()[m];
      ncclComm_t comm = joinAll(self);
      std::vector<int> data(300000);
      EXPECT_EQ(sumOnce(comm, kRanks), ok);
      self.meet(1);
      const Stopwatch watch;
      const ncclResult_t first = self.index() == 1 ? mismatch.odd(comm, data.data()) : mismatch.usual(comm, data.data());
      ncclResult_t result = first;
      if (result == ok) result = allReduce(comm, data.data(), 1);  // a short call may be over before anybody compares
      EXPECT_EQ(result, ncclInvalidUsage);
      EXPECT_LT(watch.seconds(), 2 * kPromptSeconds);
      const std::string text = ncclGetLastError(comm);
      for (const std::string& word : mismatch.words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
      const std::string verdict = verdictOf(comm);
      EXPECT_NE(verdict.find("\"kind\":\"mismatch\""), std::string::npos) << verdict;
      abortPromptly(comm);
    });
    children.expectAllWell({}, 10);
    if (testing::Test::HasFailure()) FAIL() << mismatches()[m].name;
  }
}

/// On one host, each on its own, and two of them together.
class ProcessCalls : public testing::TestWithParam<Layout> {};

TEST_P(ProcessCalls, EveryRankHearsOfBothCalls) { expectMismatches(GetParam(), false); }

TEST(ProcessCallsOverPlugin, EveryRankHearsOfBothCalls) { expectMismatches({"ThreeHosts", {0, 1, 2}}, true); }

INSTANTIATE_TEST_SUITE_P(Layouts, ProcessCalls,
                         testing::Values(Layout{"OneHost", {}}, Layout{"ThreeHosts", {0, 1, 2}}, Layout{"OddOneAlone", {0, 1, 0}},
                                         Layout{"OddOneInCompany", {0, 0, 1}}),
                         [](const auto& layout) { return layout.param.name; });

/// One is stopped: the verdict says which, where it is, and that it is reached over memory.
TEST(ProcessStopped, IsSuspectedOverSharedMemory) {
  ProcessRanks children(2, [](Self& self) {
    playNamedHost(7);
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, 2), ok);
    EXPECT_EQ(tuttiCommSetTimeout(comm, 300), ok);
    self.meet(1);
    EXPECT_EQ(sumUntilError(comm, 1000), ncclRemoteError) << lastError();
    const std::string host = nameOfHost(7);
    if (self.index() == 0) {
      const std::string link = "shared memory of " + host;
      EXPECT_TRUE(mentions(lastError(), {"rank 1 is on " + host + ", over " + link}));
      EXPECT_TRUE(mentions(verdictOf(comm), {R"("suspects":[{"rank":1,"host":")" + host + R"(","link":")" + link + R"("}])"}));
    }
    self.reach(2);
    abortPromptly(comm);
  });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  children.signal(1, SIGSTOP);
  ASSERT_TRUE(children.awaitStage(0, 2));
  children.signal(1, SIGCONT);
  children.expectAllWell();
}

/// A rank that ends instead of calling: no mismatch, but the others need not wait either.
TEST(ProcessLeaves, ARankThatLeavesInsteadOfCalling) {
  ProcessRanks children(kRanks, [](Self& self) {
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, kRanks), ok);
    self.meet(1);  // an error of the next call may reach who is not yet through with this one
    if (self.index() != 2) {
      EXPECT_EQ(sumOnce(comm, kRanks), ncclRemoteError);
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 2 has destroyed"), std::string::npos) << ncclGetLastError(comm);
    }
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell({}, 10);
}

/// A rank that finalizes instead of calling, and goes on with something else: on one host and on two, blocking and not.
TEST(ProcessLeaves, ARankThatFinalizesInsteadOfCalling) {
  for (const bool areTwoHosts : {false, true})
    for (const bool isBlocking : {true, false}) {
      ProcessRanks children(kRanks, [&](Self& self) {
        if (areTwoHosts) playHost(self.index() % 2);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = isBlocking ? 1 : 0;
        ncclComm_t comm = nullptr;
        const auto settle = [&](ncclResult_t result) {
          while (result == ncclInProgress && ncclCommGetAsyncError(comm, &result) == ok && result == ncclInProgress)
            std::this_thread::yield();
          return result;
        };
        ASSERT_EQ(settle(ncclCommInitRankConfig(&comm, kRanks, self.id(), self.index(), &config)), ok) << ncclGetLastError(nullptr);
        int x = 1;
        EXPECT_EQ(settle(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr)), ok) << ncclGetLastError(comm);
        self.meet(1);
        if (self.index() == 2) {
          EXPECT_EQ(settle(ncclCommFinalize(comm)), ok);
        } else {
          EXPECT_EQ(settle(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr)), ncclRemoteError);
          EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 2 has finalized"), std::string::npos) << ncclGetLastError(comm);
        }
        self.meet(2);  // it is there all the time
        EXPECT_EQ(ncclCommAbort(comm), ok);
      });
      children.expectAllWell({}, 10);
    }
}

/// Two processes claim one rank; the others hear of it.
TEST(ProcessLeaves, ARankThatIsClaimedTwice) {
  ProcessRanks children(3, [](Self& self) {
    ncclComm_t comm = nullptr;
    const ncclUniqueId id = self.id();
    const int rank = self.index() == 2 ? 1 : self.index();
    const ncclResult_t result = ncclCommInitRank(&comm, 3, id, rank);
    EXPECT_EQ(result, ncclInvalidUsage) << ncclGetLastError(nullptr);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("rank 1"), std::string::npos) << ncclGetLastError(nullptr);
    EXPECT_EQ(comm, nullptr);
    self.meet(1);  // the process of the root, gone early, would be the news
  });
  children.expectAllWell({}, 10);
}

}  // namespace
}  // namespace tutti::faults::process_calls_test
