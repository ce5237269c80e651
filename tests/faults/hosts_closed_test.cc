// Processes that live on while a connection between them ends, on several hosts or on one, over sockets or a plugin: everybody is told, by
// name, or nobody needed it.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::hosts_closed_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

int64_t nowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Descriptors of this process that are connected, over whatever.
std::vector<int> connections() {
  std::vector<int> all;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) all.push_back(fd);
  }
  return all;
}

/// Where the ranks are, and the environment of all.
struct Setting {
  bool isOneHost = false;
  std::vector<std::pair<const char*, const char*>> set;
  bool mixes = false;  ///< operations, instead of all-reduces
};

/// The operation of that number, in turn; of all-reduces the sum is checked.
ncclResult_t callAny(ncclComm_t comm, int ranks, int rank, int number, size_t count) {
  const size_t all = count * static_cast<size_t>(ranks);
  std::vector<int> in(all, rank);
  std::vector<int> out(all);
  switch (number % 6) {
    case 0: return ncclAllGather(in.data(), out.data(), count, ncclInt, comm, nullptr);
    case 1: return ncclReduceScatter(in.data(), out.data(), count, ncclInt, ncclSum, comm, nullptr);
    case 2: return ncclAlltoAll(in.data(), out.data(), count, ncclInt, comm, nullptr);
    case 3: return ncclBroadcast(in.data(), out.data(), count, ncclInt, number % ranks, comm, nullptr);
    case 4: return passOn(comm, rank, ranks, in.data(), out.data(), count);
    default: return sumOnce(comm, ranks, count);
  }
}

/// The rank that an error is about: the first that it names; -1: none.
int namedFirst(const std::string& text) {
  const size_t at = text.find(": rank ");
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + 7);
}

/// What became of three ranks after one of them lost a connection.
struct Outcome {
  bool wasThere = false;  ///< that connection
  int told = 0;           ///< ranks that got an error
};

/// Child 1 ends connection number `which` of its own while all make calls.
Outcome closeOne(size_t which, const Setting& setting) {
  constexpr int kRanks = 3;
  const int calls = setting.isOneHost ? 1500 : 400;  // still under way when it ends
  ProcessRanks children(kRanks, [&](Self& self) {
    for (const auto& [name, value] : setting.set) setenv(name, value, 1);
    if (!setting.isOneHost) playHost(self.index());
    ncclComm_t comm = joinAll(self);
    EXPECT_EQ(sumOnce(comm, kRanks, 100000), ok) << lastError();
    self.meet(1);
    std::thread closer([&] {
      if (self.index() != 1) return;
      const std::vector<int> open = connections();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      self.note(0, which < open.size() ? nowNs() : 0);
      if (which < open.size()) {
        EXPECT_EQ(shutdown(open[which], SHUT_RDWR), 0);
      }
    });
    ncclResult_t result = ok;
    for (int call = 0; call < calls && result == ok; ++call) {
      const size_t count = call % 2 == 0 ? 100 : 100'000;
      result = setting.mixes ? callAny(comm, kRanks, self.index(), call / 2, count) : sumOnce(comm, kRanks, count);
    }
    self.note(1, nowNs());
    self.note(2, result == ok ? 0 : 1);
    closer.join();
    if (result != ok) {
      const std::string text = lastError();
      EXPECT_EQ(result, ncclRemoteError) << text;
      EXPECT_TRUE(mentions(text, {hostName()}));
      self.note(3, namedFirst(text));
      abortPromptly(comm);
    } else {
      EXPECT_EQ(ncclCommDestroy(comm), ok) << lastError();
    }
  });
  children.expectAllWell({}, 20);
  Outcome outcome;
  outcome.wasThere = children.number(1, 0) != 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    outcome.told += static_cast<int>(children.number(rank, 2));
    if (children.number(rank, 2) == 0) continue;
    EXPECT_LT(static_cast<double>(children.number(rank, 1) - children.number(1, 0)) * 1e-9, kPromptSeconds) << "rank " << rank;
  }
  // It is about an end of that connection: rank 1, or one other, the same for all.
  std::set<int64_t> named{1};
  for (int rank = 0; rank < kRanks; ++rank)
    if (children.number(rank, 2) != 0) named.insert(children.number(rank, 3));
  EXPECT_LE(named.size(), 2u) << testing::PrintToString(named);
  EXPECT_EQ(named.count(-1), 0u) << "no rank is named";
  EXPECT_TRUE(outcome.told == 0 || outcome.told == kRanks) << outcome.told << " ranks were told, the others went on: connection " << which;
  return outcome;
}

/// Each connection of a process in turn, of which `least` are needed.
void closeEach(int least, const Setting& setting) {
  int needed = 0;
  size_t which = 0;
  for (;; ++which) {
    const Outcome outcome = closeOne(which, setting);
    if (testing::Test::HasFailure()) FAIL() << "connection " << which;
    if (!outcome.wasThere) break;
    needed += outcome.told > 0 ? 1 : 0;
  }
  EXPECT_GE(needed, least) << "of " << which;
}

// To two hosts for data, and for news.
TEST(HostsClosed, EachConnectionOfAProcess) { closeEach(4, {}); }
TEST(HostsClosed, EachOfSeveralStreams) { closeEach(8, {false, {{"NCCL_SOCKET_NTHREADS", "2"}, {"NCCL_NSOCKS_PERTHREAD", "2"}}}); }
TEST(HostsClosed, EachConnectionOverAPlugin) { closeEach(4, {false, {{"NCCL_NET_PLUGIN", "example"}, {"NCCL_NET", "Example"}}}); }
TEST(HostsClosed, EachConnectionWhateverIsCalled) { closeEach(4, {false, {}, true}); }
// Data goes by memory there; the first process is told of deaths by a connection.
TEST(HostsClosed, EachConnectionOfAProcessOfOneHost) { closeEach(1, {true, {}}); }

}  // namespace
}  // namespace tutti::faults::hosts_closed_test
