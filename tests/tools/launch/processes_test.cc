#include "launch/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace tutti::launch::processes_test {
namespace {

TEST(Processes, ParsesStat) {
  const Process process = parseStat("17 (a) R (b) S 4 16 17 0 -1 4194304 1 2 3");
  EXPECT_EQ(process.pid, 17);
  EXPECT_EQ(process.parent, 4);
  EXPECT_EQ(process.group, 16);
}

TEST(Processes, DeadOnesAndNonsenseAreNone) {
  for (const char* line : {"17 (x) Z 4 16 17", "17 (x) X 4 16 17", "", "17", "17 (x", "17 (x)", "17 (x) S", "a (x) S b c", "17 (x) S 4"}) {
    EXPECT_EQ(parseStat(line).pid, 0) << line;
  }
}

/// A child, its child in a session of its own, and a grandchild whose parent has gone: all of them sleep.
TEST(Processes, FindsAndKillsDescendantsHoweverTheyRegroup) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  ASSERT_NE(getppid(), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      (void)setsid();
      if (fork() == 0) {
        (void)setpgid(0, 0);
      } else if (fork() == 0) {
        _exit(0);  // stays a zombie
      }
    }
    for (;;) pause();
  }
  const auto count = [] { return descendantsOf(getpid()).size(); };
  for (int i = 0; i < 1000 && count() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(count(), 3U);
  EXPECT_TRUE(killDescendants(Deadline::after(std::chrono::seconds(20))));
  EXPECT_EQ(count(), 0U);
  EXPECT_EQ(waitpid(-1, nullptr, 0), -1);
}

}  // namespace
}  // namespace tutti::launch::processes_test
