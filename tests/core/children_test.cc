#include "core/children.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <functional>
#include <thread>

namespace tutti::children_test {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own = keptFromChildren(ends[0]);
    peer.reset(ends[1]);
  }
  UniqueFd own;
  UniqueFd peer;
};

bool isSocket(int fd) {
  struct stat file = {};
  return fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode);
}
bool isDevice(int fd) {
  struct stat file = {};
  return fstat(fd, &file) == 0 && S_ISCHR(file.st_mode);
}
bool isOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }
int openDescriptors() {
  int found = 0;
  for (int fd = 0; fd < 1024; ++fd) found += isOpen(fd) ? 1 : 0;
  return found;
}

/// What it answers in a child that ends then: 0 to 100.
int askChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Whether the other end of it is closed everywhere.
bool isOver(int peer) {
  pollfd one{peer, POLLIN, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & POLLHUP) != 0;
}

TEST(Children, HoldNoConnection) {
  Pair pair;
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_FALSE(isOver(pair.peer.get()));
  EXPECT_EQ(write(pair.own.get(), "x", 1), 1) << "the parent has it still";
  pair.own.reset();
  char is = 0;
  EXPECT_EQ(read(pair.peer.get(), &is, 1), 1);
  pollfd one{pair.peer.get(), POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 5000), 1) << "the child, which lives, keeps it open";
  EXPECT_TRUE(isOver(pair.peer.get()));
  EXPECT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(Children, KeepTheNumbersAndNoOthers) {
  const Pair one;
  const Pair other;
  const int before = openDescriptors();
  EXPECT_EQ(askChild([&] {
              if (isSocket(one.own.get()) || isSocket(other.own.get())) return 1;
              if (!isOpen(one.own.get()) || !isOpen(other.own.get())) return 2;
              if (!isSocket(one.peer.get())) return 3;
              if ((fcntl(one.own.get(), F_GETFD) & FD_CLOEXEC) == 0) return 4;
              return openDescriptors() == before ? 0 : 5;
            }),
            0);
  EXPECT_TRUE(isSocket(one.own.get()));
}

/// A number below a socket's is free for what takes its place, and is free again afterwards.
TEST(Children, LowerNumbersStayFree) {
  UniqueFd low(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Pair pair;
  const int number = low.get();
  ASSERT_LT(number, pair.own.get());
  low.reset();
  EXPECT_EQ(askChild([&] { return isOpen(number) || isSocket(pair.own.get()) || !isOpen(pair.own.get()) ? 1 : 0; }), 0);
}

TEST(Children, NumbersThatMeanSomethingElseByThenAreLeftAlone) {
  Pair pair;
  const int number = pair.own.get();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(dup3(ends[0], number, O_CLOEXEC), number);  // the user's own socket
  EXPECT_EQ(askChild([&] { return isSocket(number) ? 0 : 1; }), 0);
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(dup3(file.get(), number, O_CLOEXEC), number);
  EXPECT_EQ(askChild([&] { return isDevice(number) ? 0 : 1; }), 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(Children, WithoutAFreeNumberItWorksAsWell) {
  const Pair one;
  const Pair other;
  EXPECT_EQ(askChild([&] {
              rlimit limit{};
              getrlimit(RLIMIT_NOFILE, &limit);
              limit.rlim_cur = static_cast<rlim_t>(other.peer.get() + 1);
              setrlimit(RLIMIT_NOFILE, &limit);
              while (open("/dev/null", O_RDONLY) >= 0) {}
              const UniqueFd again = keptFromChildren(fcntl(one.peer.get(), F_DUPFD, 0));
              if (again) return 1;
              keepFromChildren(one.peer.get());
              keepFromChildren(other.peer.get());
              return askChild([&] { return isSocket(one.peer.get()) || isSocket(other.peer.get()) || !isOpen(one.peer.get()) ? 2 : 0; });
            }),
            0);
}

/// A thread with a table of its own has the same numbers for other sockets.
TEST(Children, WhatOtherTablesHoldIsNotRemembered) {
  const Pair pair;
  std::thread([&] {
    ASSERT_EQ(unshare(CLONE_FILES), 0);
    const OtherDescriptors others;
    const int number = pair.own.get();
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ASSERT_EQ(dup3(ends[0], number, O_CLOEXEC), number);
    keepFromChildren(number);
  }).join();
  EXPECT_EQ(askChild([&] { return isSocket(pair.own.get()) ? 1 : 0; }), 0);
}

TEST(Children, OfChildrenHaveTheirOwn) {
  EXPECT_EQ(askChild([] {
              Pair pair;
              return askChild([&] { return isSocket(pair.own.get()) ? 1 : 0; });
            }),
            0);
}

TEST(Children, WhatIsNoSocketIsNotRemembered) {
  keepFromChildren(-1);
  keepFromChildren(65536);
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  keepFromChildren(file.get());
  EXPECT_EQ(askChild([&] { return isDevice(file.get()) ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace tutti::children_test
