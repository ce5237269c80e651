// Hosts that run out of descriptors: an error in words on every rank, in time, and nothing is left.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::hosts_limits_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kHosts = 3;
using Self = ProcessRanks::Self;

/// How many more descriptors this process may open.
void allowDescriptors(int64_t more) {
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  now.rlim_cur = static_cast<rlim_t>(Footprint::now().descriptors + more);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
}

/// While the communicator is made. From some number on there are enough; below, every rank ends and names the one, and in time: a dialler
/// without a socket tries again for 5.5 s. The program has files open, copies of which make room for what it has to say
/// (docs/decisions/0057).
TEST(HostsLimits, FewDescriptorsForTheSetUp) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "it takes equal numbers in two tables for one descriptor: the library does without a table of its own there";
#endif
  constexpr int kFiles = 12, kEnough = 48;
  bool worked = false;
  for (const int most : {0, 1, 2, 3, 6, 7, 8, 9, 10, kEnough}) {
    ProcessRanks children(kHosts, [most](Self& self) {
      playHost(self.index());
      const ncclUniqueId id = self.id();
      const bool isStarved = self.index() == 1;
      std::vector<int> files;
      while (isStarved && files.size() < kFiles) files.push_back(dup(0));
      if (isStarved) allowDescriptors(most);
      self.note(1, getpid());
      self.meet(1);
      const Stopwatch watch;
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRank(&comm, kHosts, id, self.index());
      EXPECT_LT(watch.seconds(), 10 * kSlow) << most;
      if (result == ok) {
        const ncclResult_t sum = sumOnce(comm, kHosts, 100000);
        EXPECT_TRUE(sum == ok || most < kEnough) << lastError();
        self.note(0, 1);
      } else {
        EXPECT_TRUE(result == ncclSystemError || result == ncclRemoteError) << result << " " << lastError();
        EXPECT_TRUE(!isStarved || mentions(lastError(), {"Too many open files"})) << most;  // others may hear its connections end first
        const std::string process = "process " + std::to_string(self.number(1, 1));
        EXPECT_TRUE(isStarved || mentions(lastError(), {"rank 1"}) || mentions(lastError(), {process})) << most << ": " << lastError();
      }
      self.meet(2);  // nobody hears of an end instead
      EXPECT_EQ(ncclCommAbort(comm), ok);
      for (const int file : files) EXPECT_EQ(close(file), 0);
    });
    children.expectAllWell();
    worked = children.number(1, 0) == 1;
    for (int child = 0; child < kHosts; ++child) EXPECT_EQ(children.number(child, 0) == 1, worked) << most;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(worked) << kEnough << " descriptors are enough";
}

/// A process that may not have more than a few descriptors at all has none to make room with: it says so itself, and the others wait for it
/// as for a rank that is late, which is not looked at here.
TEST(HostsLimits, NextToNoDescriptorsForTheSetUp) {
  for (const int most : {0, 1}) {
    ProcessRanks children(kHosts, [most](Self& self) {
      playHost(self.index());
      const ncclUniqueId id = self.id();
      if (self.index() == 1) allowDescriptors(most);
      ncclComm_t comm = nullptr;
      EXPECT_NE(ncclCommInitRank(&comm, kHosts, id, self.index()), ok);
      EXPECT_TRUE(self.index() != 1 || mentions(lastError(), {"Too many open files"})) << most;
    });
    const Ended& starved = children.end(1, 10);
    EXPECT_TRUE(starved.byItself && starved.code == 0) << most << " descriptors:\n" << starved.text;
  }
}

/// Copies of a descriptor in the place of all that may be opened, but for so many. (Below its limit a process may have free numbers.)
std::vector<int> takeAllBut(int64_t more) {
  std::vector<int> files;
  for (int file = dup(0); file >= 0; file = dup(0)) files.push_back(file);
  for (; more > 0 && !files.empty(); --more) {
    close(files.back());
    files.pop_back();
  }
  return files;
}

/// When the first call opens its connections: on a process that makes them, and on one that takes them.
void starveTheFirstCall(int most, bool isExact) {
  for (int more = 0; more <= most; ++more) {
    ProcessRanks children(kHosts, [more, isExact](Self& self) {
      playHost(self.index());
      ncclComm_t comm = joinAll(self);
      self.meet(1);
      std::vector<int> files;
      if (self.index() == 1) {
        allowDescriptors(more);
        if (isExact) files = takeAllBut(more);
      }
      self.meet(2);
      const Stopwatch watch;
      const ncclResult_t result = sumOnce(comm, kHosts, 100000);
      self.note(0, result);
      EXPECT_LT(watch.seconds(), 2 * kPromptSeconds) << more;
      if (result != ok) {
        EXPECT_EQ(result, self.index() == 1 ? ncclSystemError : ncclRemoteError) << lastError();
        EXPECT_TRUE(mentions(lastError(), {"rank 1 on ", "Too many open files"})) << more;
        EXPECT_TRUE(mentions(verdictOf(comm), {R"("suspects":[{"rank":1,)"})) << more;
      }
      self.meet(3);
      EXPECT_EQ(ncclCommAbort(comm), ok);
      for (const int file : files) close(file);
    });
    children.expectAllWell();
    EXPECT_EQ(children.number(0, 0) == ok, children.number(1, 0) == ok) << more;
    if (more == 0) {
      EXPECT_NE(children.number(1, 0), static_cast<int64_t>(ok)) << "no call without sockets";
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(HostsLimits, FewDescriptorsForTheFirstCall) { starveTheFirstCall(6, false); }

/// None to listen with: it is known before anything is called, to this rank alone.
TEST(HostsLimits, NoDescriptorsForTheFirstCall) { starveTheFirstCall(2, true); }

}  // namespace
}  // namespace tutti::faults::hosts_limits_test
