#include "core/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <set>

namespace tutti::thread_test {
namespace {

std::atomic<pthread_t> handledBy;

TEST(Thread, TheProgramsSignalsReachTheProgramsThreadsOnly) {
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) { handledBy = pthread_self(); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> mayEnd = false;
  sigset_t seen;
  auto thread = startThread("tutti test", "of a test", [&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &seen);
    while (!mayEnd) std::this_thread::yield();
  });
  ASSERT_TRUE(thread);
  for (int i = 0; i < 20; ++i) {
    handledBy = pthread_t();
    ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
    while (handledBy.load() == pthread_t()) std::this_thread::yield();
    EXPECT_EQ(handledBy.load(), pthread_self());
  }
  char name[16];
  ASSERT_EQ(pthread_getname_np(thread->native_handle(), name, sizeof name), 0);
  EXPECT_STREQ(name, "tutti test");
  mayEnd = true;
  thread->join();
  EXPECT_EQ(sigismember(&seen, SIGTERM), 1);
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(Thread, ThisThreadTakesSignalsAsBefore) {
  sigset_t before;
  sigset_t after;
  sigset_t mine;
  sigemptyset(&mine);
  sigaddset(&mine, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &mine, &before);
  auto thread = startThread(nullptr, "of a test", [] {});
  pthread_sigmask(SIG_SETMASK, &before, &after);
  ASSERT_TRUE(thread);
  thread->join();
  EXPECT_EQ(sigismember(&after, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&after, SIGTERM), 0);
}

TEST(Thread, SetsOfCoresAreToldApart) {
  const uint64_t all = availableCoreSet();
  EXPECT_NE(all, 0U);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  std::set<uint64_t> sets;
  for (int core = 0; core < CPU_SETSIZE && sets.size() < 4; ++core) {
    if (!CPU_ISSET(core, &before)) continue;
    auto thread = startThread(nullptr, "of a test", [&] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
      EXPECT_EQ(availableCores(), 1);
      EXPECT_EQ(availableCoreSet(), availableCoreSet());
      EXPECT_TRUE(sets.insert(availableCoreSet()).second) << "core " << core;
    });
    ASSERT_TRUE(thread);
    thread->join();
  }
  EXPECT_EQ(sets.contains(all), CPU_COUNT(&before) == 1);
  EXPECT_EQ(availableCoreSet(), all) << "this thread's are as before";
}

/// In a child process: address space is what a thread lacks first, also for root; stacks of threads that have ended serve once more.
[[noreturn]] void startWithoutRoom() {
  rlimit none = {};
  none.rlim_cur = none.rlim_max = 1 << 20;
  setrlimit(RLIMIT_AS, &none);
  auto thread = startThread(nullptr, "of a test", [] { pause(); });
  for (int i = 0; i < 100 && thread; ++i) {
    thread->detach();
    thread = startThread(nullptr, "of a test", [] { pause(); });
  }
  const bool isTold = !thread && thread.error().code() == Code::SystemError && thread.error().text().find("of a test") != std::string::npos;
  _exit(isTold ? 0 : 1);
}

TEST(Thread, ASystemWithoutThreadsIsAnErrorThatNamesThePurpose) {
#if defined(TUTTI_SANITIZED)
  GTEST_SKIP() << "sanitizers need address space of their own";
#endif
  EXPECT_EXIT(startWithoutRoom(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tutti::thread_test
