#include "transport/local/arena.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "transport/local/hub.h"

namespace tutti::transport::local::arena_test {
namespace {

/// Runs `body` in a child process; its number.
pid_t inChild(const std::function<bool()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body() ? 0 : 1);
  return pid;
}

bool endedWell(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

UniqueFd newFile() {
  auto file = Arena::createFile();
  EXPECT_TRUE(file);
  return file ? std::move(*file) : UniqueFd();
}

std::shared_ptr<Arena> attach(const UniqueFd& file, int32_t self, int32_t processes = 2) {
  auto arena = Arena::attach(file.get(), nullptr, processes == 1 ? std::vector<int32_t>{0} : std::vector<int32_t>{0, 1}, self);
  EXPECT_TRUE(arena) << (arena ? "" : arena.error().text());
  return arena ? *arena : nullptr;
}

/// A process that has the lock of a hub when this returns, as rank 1 of two, and goes on with `then`.
pid_t lockedBy(const UniqueFd& file, uint64_t place, const std::function<void()>& then) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t holder = inChild([&] {
    const auto own = attach(file, 1);
    own->announce(4711, -1);
    const auto theirs = *Hub::attach(own, place, 2);
    const auto held = theirs->lock(std::chrono::seconds(1));
    (void)!write(ready[1], "x", 1);
    then();
    return static_cast<bool>(held);
  });
  char word = 0;
  EXPECT_EQ(read(ready[0], &word, 1), 1);
  (void)close(ready[0]);
  (void)close(ready[1]);
  return holder;
}

uint64_t pagesOf(int fd) {
  struct stat info{};
  fstat(fd, &info);
  return static_cast<uint64_t>(info.st_blocks) / 8;
}

TEST(Arena, OfThreadsHandsOutZeroedBlocks) {
  const auto arena = Arena::ofThreads();
  const auto place = arena->reserve(Bytes(100));
  ASSERT_TRUE(place);
  const auto memory = arena->map(*place, Bytes(100));
  ASSERT_TRUE(memory);
  for (int i = 0; i < 100; ++i) EXPECT_EQ((*memory)[i], std::byte{0});
  arena->discard(*place, Bytes(100));
  EXPECT_FALSE(arena->map(*place, Bytes(100))) << "it is gone";
}

TEST(Arena, WhatOneProcessWritesTheOtherReads) {
  const UniqueFd file = newFile();
  const auto arena = attach(file, 0);
  const auto place = arena->reserve(Bytes(8));
  ASSERT_TRUE(place);
  auto* word = reinterpret_cast<std::atomic<uint64_t>*>(*arena->map(*place, Bytes(8)));
  const pid_t child = inChild([&] {
    const auto theirs = attach(file, 1);
    const auto memory = theirs->map(*place, Bytes(8));
    reinterpret_cast<std::atomic<uint64_t>*>(*memory)->store(42);
    return true;
  });
  ASSERT_TRUE(endedWell(child));
  EXPECT_EQ(word->load(), 42U);
}

TEST(Arena, BlocksOfSeveralProcessesNeverOverlap) {
  const UniqueFd file = newFile();
  const auto arena = attach(file, 0);
  const auto before = arena->reserve(Bytes(5000));
  ASSERT_TRUE(endedWell(inChild([&] {
    const auto theirs = attach(file, 1);
    return theirs->reserve(Bytes(5000)).value_or(0) >= *before + 5000;
  })));
  EXPECT_GE(*arena->reserve(Bytes(1)), *before + 10000);
}

TEST(Arena, KnowsWhoHasComeAndWhoHasDied) {
  const UniqueFd file = newFile();
  const auto arena = attach(file, 0);
  arena->announce(1, -1);
  EXPECT_FALSE(arena->isComplete());
  EXPECT_TRUE(arena->isAlive(1)) << "who has not come cannot have died";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = inChild([&] {
    const auto theirs = attach(file, 1);
    theirs->announce(2, -1);
    (void)!write(ready[1], "x", 1);
    pause();
    return false;
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(arena->isComplete());
  EXPECT_TRUE(arena->isAlive(1));
  EXPECT_EQ(arena->entry(1)->pid.load(), child);
  kill(child, SIGSTOP);
  EXPECT_TRUE(arena->isAlive(1)) << "stopped is not dead";
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_FALSE(arena->isAlive(1));
  close(ready[0]);
  close(ready[1]);
}

TEST(Arena, DiscardedPagesGoBackToTheSystem) {
  const UniqueFd file = newFile();
  const auto arena = attach(file, 0, 1);
  const uint64_t empty = pagesOf(file.get());
  const auto place = arena->reserve(Bytes(1 << 20));
  std::memset(arena->map(*place, Bytes(1 << 20)).value_or(nullptr), 1, 1 << 20);
  EXPECT_GE(pagesOf(file.get()), empty + 256);
  arena->discard(*place, Bytes(1 << 20));
  EXPECT_LE(pagesOf(file.get()), empty + 1);
}

TEST(Arena, GivesBackTheMemoryOfAHubWithItsLastRank) {
  const UniqueFd file = newFile();
  const auto arena = attach(file, 0, 1);
  const uint64_t empty = pagesOf(file.get());
  const int32_t processOf[] = {0, 0};
  const auto place = Hub::format(*arena, 7, processOf);
  ASSERT_TRUE(place);
  auto first = *Hub::attach(arena, *place, 2);
  auto second = *Hub::attach(arena, *place, 2);
  EXPECT_EQ(first, second);
  const auto pipe = first->pipe({ChannelId(0), 0, Rank(0), Rank(1)}, 4, 65536);
  ASSERT_TRUE(pipe);
  std::memset(pipe->memory, 1, 4 * 65536);
  EXPECT_GE(pagesOf(file.get()), empty + 64);
  first.reset();
  second.reset();
  EXPECT_LE(pagesOf(file.get()), empty + 1);
}

TEST(Arena, ForeignMemoryIsRefused) {
  const UniqueFd empty(memfd_create("other", 0));
  const auto none = Arena::attach(empty.get(), nullptr, {0, 1}, 0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::SystemError);
  ASSERT_EQ(ftruncate(empty.get(), 1 << 24), 0);
  EXPECT_FALSE(Arena::attach(empty.get(), nullptr, {0, 1}, 0)) << "no arena in it";
}

/// Behind the end of the file there is no memory: who looks there is killed.
TEST(Arena, PlacesOutsideTheFileAreRefused) {
  const UniqueFd file = newFile();
  const auto arena = attach(file, 0);
  struct stat info{};
  ASSERT_EQ(fstat(file.get(), &info), 0);
  const auto end = static_cast<uint64_t>(info.st_size);
  for (const uint64_t place : {uint64_t{0}, uint64_t{4096}, end, end + 4096, ~uint64_t{4095}})
    EXPECT_FALSE(arena->map(place, Bytes(4096))) << place;
  EXPECT_TRUE(arena->map(end - 4096, Bytes(4096)));
  EXPECT_FALSE(arena->map(end - 4096, Bytes(8192)));
  EXPECT_FALSE(Hub::attach(arena, end, 2));
}

TEST(Arena, MemoryThatOthersCanTakeAwayIsRefused) {
  const UniqueFd file = newFile();
  const UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::vector<std::byte> start(1 << 20);
  ASSERT_EQ(pread(file.get(), start.data(), start.size(), 0), static_cast<ssize_t>(start.size()));
  ASSERT_EQ(write(loose.get(), start.data(), start.size()), static_cast<ssize_t>(start.size()));
  const auto arena = Arena::attach(loose.get(), nullptr, {0, 1}, 0);
  ASSERT_FALSE(arena);
  EXPECT_NE(arena.error().text().find("can take it away"), std::string::npos) << arena.error().text();
}

TEST(Arena, StaysWithinTheFileSizeLimit) {
  ASSERT_TRUE(endedWell(inChild([] {
    const rlimit limit{8 << 20, 8 << 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    auto file = Arena::createFile();
    if (!file) return false;
    const auto arena = Arena::attach(file->get(), nullptr, {0}, 0);
    if (!arena || !(*arena)->reserve(Bytes(1 << 20))) return false;
    const auto much = (*arena)->reserve(Bytes(64 << 20));
    return !much && much.error().code() == Code::SystemError && (*arena)->reserve(Bytes(4096)).has_value();
  })));
}

/// A rank that dies while it holds the hub's lock leaves a hub that works.
TEST(Arena, ADeadHolderOfTheLockDoesNotStopTheOthers) {
  const UniqueFd file = newFile();
  const auto arena = attach(file, 0);
  const int32_t processOf[] = {0, 1};
  const auto place = Hub::format(*arena, 7, processOf);
  const auto hub = *Hub::attach(arena, *place, 2);
  ASSERT_TRUE(endedWell(inChild([&] {
    const auto theirs = *Hub::attach(attach(file, 1), *place, 2);
    const auto held = theirs->lock(std::chrono::seconds(1));
    _exit(held ? 0 : 1);
    return true;
  })));
  EXPECT_TRUE(hub->pipe({ChannelId(0), 0, Rank(0), Rank(1)}, 2, 64));
  EXPECT_TRUE(hub->isHere(Rank(0)));
  EXPECT_FALSE(hub->isHere(Rank(1)));
}

/// A rank that is stopped while it holds the lock: the others wait as for any stopped rank, until their deadline or an abort.
TEST(Arena, AStoppedHolderOfTheLockIsWaitedForAsLongAsTheRanksMayWait) {
  using namespace std::chrono_literals;
  for (const bool aborts : {false, true}) {
    const UniqueFd file = newFile();
    const auto arena = attach(file, 0);
    const int32_t processOf[] = {0, 1};
    const auto place = Hub::format(*arena, 7, processOf);
    const auto hub = *Hub::attach(arena, *place, 2);
    const int32_t otherWay[] = {1, 0};
    const auto otherPlace = Hub::format(*arena, 8, otherWay);
    const auto other = *Hub::attach(arena, *otherPlace, 2);
    EXPECT_EQ(hub->describeStopped(), "");
    const pid_t holder = lockedBy(file, *place, [] { (void)raise(SIGSTOP); });
    ASSERT_EQ(waitpid(holder, nullptr, WUNTRACED), holder);

    EXPECT_FALSE(hub->lock(20ms)) << "it is somebody else's";
    const std::string stopped = "process " + std::to_string(holder) + " with rank ";
    EXPECT_EQ(hub->describeStopped(), stopped + "1 was stopped while it had the lock of what ranks share");
    EXPECT_EQ(other->describeStopped(), stopped + "0 was stopped while it had the lock of what ranks share")
        << "as its own ranks are called";
    hub->waitAtMost(aborts ? 0ms : 300ms);
    std::thread aborter;
    if (aborts)
      aborter = std::thread([&] {
        std::this_thread::sleep_for(50ms);
        hub->failAll(error(Code::RemoteError, "rank 0 aborted"));
      });
    const auto begin = std::chrono::steady_clock::now();
    const auto view = hub->pipe({ChannelId(0), 0, Rank(0), Rank(1)}, 2, 64);
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (aborter.joinable()) aborter.join();
    ASSERT_FALSE(view);
    EXPECT_GE(waited, aborts ? 50ms : 300ms);
    EXPECT_LT(waited, 1s);
    EXPECT_EQ(view.error().code(), Code::RemoteError);
    const std::string culprit = aborts ? "rank 0 aborted" : "process " + std::to_string(holder) + " with rank 1 has the lock";
    EXPECT_NE(view.error().text().find(culprit), std::string::npos) << view.error().text();
    EXPECT_TRUE(hub->latch(Rank(0)).tripped() && hub->latch(Rank(1)).tripped());
    hub->forget({1, 2, 3, 4});  // what is left to do takes no time any more
    hub->waits().withdraw(Rank(0));
    EXPECT_TRUE(hub->blocks()->empty());
    EXPECT_EQ(*hub->block({1, 2, 3, 4}, Bytes(64)), nullptr);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, waited + 500ms);

    ASSERT_EQ(kill(holder, SIGCONT), 0);
    EXPECT_TRUE(endedWell(holder));
    EXPECT_TRUE(hub->lock(1s)) << "its holder has gone on";
    EXPECT_EQ(hub->describeStopped(), "");
  }
}

/// Whoever merely has the lock, for however long, or died with it, was not stopped.
TEST(Arena, NobodyIsCalledStoppedWhoIsNot) {
  const UniqueFd file = newFile();
  const auto arena = attach(file, 0);
  const int32_t processOf[] = {0, 1};
  const auto place = Hub::format(*arena, 7, processOf);
  const auto hub = *Hub::attach(arena, *place, 2);
  const pid_t holder = lockedBy(file, *place, [] {
    for (;;) sched_yield();
  });
  EXPECT_FALSE(hub->lock(std::chrono::milliseconds(5))) << "it is somebody else's";
  EXPECT_EQ(hub->describeStopped(), "");
  ASSERT_EQ(kill(holder, SIGKILL), 0);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(holder), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(hub->describeStopped(), "") << "it is still known to the system";
  ASSERT_EQ(waitpid(holder, nullptr, 0), holder);
  EXPECT_TRUE(hub->lock(std::chrono::seconds(1)));
}

}  // namespace
}  // namespace tutti::transport::local::arena_test
