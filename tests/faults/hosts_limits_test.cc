// Hosts that run out of descriptors: an error in words on every rank, at once, and nothing is left.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>

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

/// While the communicator is made. From some number on there are enough.
TEST(HostsLimits, FewDescriptorsForTheSetUp) {
  bool worked = false;
  for (const int most : {0, 1, 3, 48}) {
    ProcessRanks children(kHosts, [most](Self& self) {
      playHost(self.index());
      const ncclUniqueId id = self.id();
      if (self.index() == 1) allowDescriptors(most);
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRank(&comm, kHosts, id, self.index());
      if (result == ok) {
        EXPECT_EQ(sumOnce(comm, kHosts, 100000), ok) << lastError();
        EXPECT_EQ(ncclCommDestroy(comm), ok);
        self.note(0, 1);
        return;
      }
      EXPECT_TRUE(result == ncclSystemError || result == ncclRemoteError) << result << " " << lastError();
      EXPECT_TRUE(self.index() != 1 || mentions(lastError(), {"Too many open files"})) << most;
    });
    const Ended& starved = children.end(1, 10);
    EXPECT_TRUE(starved.byItself && starved.code == 0) << most << " descriptors:\n" << starved.text;
    worked = children.number(1, 0) == 1;
    if (worked) children.expectAllWell();  // otherwise the others wait, as for a rank that is late, or have heard
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(worked) << "48 descriptors are enough";
}

/// When the first call opens its connections: on a process that makes them, and on one that takes them.
TEST(HostsLimits, FewDescriptorsForTheFirstCall) {
  for (int more = 0; more <= 6; ++more) {
    ProcessRanks children(kHosts, [more](Self& self) {
      playHost(self.index());
      ncclComm_t comm = joinAll(self);
      self.meet(1);
      if (self.index() == 1) allowDescriptors(more);
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
    });
    children.expectAllWell();
    EXPECT_EQ(children.number(0, 0) == ok, children.number(1, 0) == ok) << more;
    if (more == 0) {
      EXPECT_NE(children.number(1, 0), static_cast<int64_t>(ok)) << "no call without sockets";
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace tutti::faults::hosts_limits_test
