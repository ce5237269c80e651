// Ranks on several hosts whose processes live on while a connection between them ends: everybody is told, by name, or nobody needed it.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

int64_t nowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Descriptors of this process that are connected over TCP.
std::vector<int> connections() {
  std::vector<int> all;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && address.sin_family == AF_INET) all.push_back(fd);
  }
  return all;
}

/// What became of the ranks of three hosts after one of them lost a connection.
struct Outcome {
  bool wasThere = false;  ///< that connection
  int told = 0;           ///< ranks that got an error
};

/// Child 1 ends connection number `which` of its own while all make all-reduces; `set`: the environment of all.
Outcome closeOne(size_t which, const std::vector<std::pair<const char*, const char*>>& set) {
  constexpr int kRanks = 3;
  constexpr int kCalls = 400;
  ProcessRanks children(kRanks, [&](Self& self) {
    for (const auto& [name, value] : set) setenv(name, value, 1);
    playHost(self.index());
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
    for (int call = 0; call < kCalls && result == ok; ++call) result = sumOnce(comm, kRanks, call % 2 == 0 ? 100 : 100000);
    self.note(1, nowNs());
    self.note(2, result == ok ? 0 : 1);
    closer.join();
    if (result != ok) {
      const std::string text = lastError();
      EXPECT_EQ(result, ncclRemoteError) << text;
      EXPECT_TRUE(mentions(text, {"rank ", hostName()})) << text;
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
  EXPECT_TRUE(outcome.told == 0 || outcome.told == kRanks) << outcome.told << " ranks were told, the others went on: connection " << which;
  return outcome;
}

/// Each connection of a process in turn, of which `least` are needed: to two hosts for data, and for news.
void closeEach(int least, const std::vector<std::pair<const char*, const char*>>& set) {
  int needed = 0;
  size_t which = 0;
  for (;; ++which) {
    const Outcome outcome = closeOne(which, set);
    if (testing::Test::HasFailure()) FAIL() << "connection " << which;
    if (!outcome.wasThere) break;
    needed += outcome.told > 0 ? 1 : 0;
  }
  EXPECT_GE(needed, least) << "of " << which;
}

TEST(HostsClosed, EachConnectionOfAProcess) { closeEach(4, {}); }
TEST(HostsClosed, EachOfSeveralStreams) { closeEach(8, {{"NCCL_SOCKET_NTHREADS", "2"}, {"NCCL_NSOCKS_PERTHREAD", "2"}}); }

}  // namespace
}  // namespace tutti::faults
