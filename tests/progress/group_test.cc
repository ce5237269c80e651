// How jobs end: in order, at once, by their peer's death, and what their errors say.
#include "progress/group.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <random>

#include "linked.h"

namespace tutti::progress::group_test {
namespace {

size_t entriesOf(const char* folder) {
  size_t count = 0;
  DIR* const dir = opendir(folder);
  if (dir == nullptr) return 0;
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

constexpr std::chrono::seconds kClose{20};

TEST(JobGroup, ClosesInOrderAndDeliversWhatWasPushed) {
  Pair pair;
  Link* const link = pair.link();
  ASSERT_NE(link, nullptr);
  const std::vector<std::byte> data(1 << 20, std::byte{7});
  link->pushReference(data.data(), data.size(), 1);
  link->push(data.data(), 100, 2);
  Status closed;
  std::thread closer([&] { closed = pair.from->close(kClose); });
  for (const uint64_t bytes : {data.size(), size_t{100}}) {
    EXPECT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
    EXPECT_EQ(link->recv.head().bytes, bytes);
    link->recv.release();
  }
  closer.join();
  EXPECT_TRUE(closed.ok()) << closed.text();
  EXPECT_EQ(link->sender->state(), JobState::Closed);
  ASSERT_TRUE(pair.driveUntil([&] { return link->receiver->final(); }));
  EXPECT_EQ(link->receiver->state(), JobState::Ended) << link->receiver->status().text();
  EXPECT_TRUE(pair.to->close(kClose).ok());
}

/// Whether a close ended well; or, of connections that were only being made, because the other side had closed before this one began to:
/// there is no goodbye yet that would tell it from a death.
testing::AssertionResult closedWell(const Status& status, bool wasSettled) {
  const bool isExcused =
      !wasSettled && status.code() == Code::RemoteError && status.text().find("closed the connection") != std::string::npos;
  if (status.ok() || isExcused) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status.text();
}

TEST(JobGroup, ClosesBothSidesAtOnceWithoutAnError) {
  for (int i = 0; i < 20; ++i) {
    Pair pair;
    for (int k = 0; k < 4; ++k) (void)pair.link();
    const bool settles = i % 2 == 0;
    if (settles) {
      ASSERT_TRUE(pair.driveUntil([&] { return pair.from->settled() && pair.to->settled(); }));
    }
    Status first;
    std::thread other([&] { first = pair.from->close(kClose); });
    const Status second = pair.to->close(kClose);
    other.join();
    EXPECT_TRUE(closedWell(first, settles));
    EXPECT_TRUE(closedWell(second, settles));
  }
}

TEST(JobGroup, WhatBrokeFirstIsToldFirst) {
  Links links;  // outlive the groups
  Pair pair;
  JobGroup other(*pair.a);
  const Link* const early = links.make(*pair.from, *pair.to);
  const Link* const late = links.make(other, *pair.to);
  ASSERT_TRUE(early != nullptr && late != nullptr);
  ASSERT_TRUE(pair.driveUntil([&] { return pair.to->settled(); }));
  other.abort();
  ASSERT_TRUE(pair.driveUntil([&] { return late->receiver->final(); }));
  pair.from->abort();
  ASSERT_TRUE(pair.driveUntil([&] { return early->receiver->final(); }));
  const auto failures = pair.to->failures();
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].status.text(), late->receiver->status().text());
  EXPECT_EQ(failures[1].status.text(), early->receiver->status().text());
  EXPECT_NE(failures[0].status.text(), failures[1].status.text());
  EXPECT_EQ(pair.to->status().text(), failures[0].status.text());
}

TEST(JobGroup, GivesUpClosingWhenTheReceiverDoesNotTake) {
  const std::vector<std::byte> data(64 << 20, std::byte{7});
  Pair pair;
  Link* const link = pair.link(2);
  ASSERT_NE(link, nullptr);
  link->pushReference(data.data(), data.size(), 1);
  link->pushReference(data.data(), data.size(), 1);
  // Nobody drives the receiver but its own thread, and nobody reads.
  const Status status = pair.from->close(std::chrono::milliseconds(50));
  EXPECT_TRUE(link->sender->final());
  EXPECT_EQ(status.code(), Code::RemoteError) << "64 MiB twice fit into nothing on the way";
}

TEST(JobGroup, TellsThatThePeerIsGoneAndWhoItWas) {
  Links links;
  ErrorLatch latch;
  const auto engine = makeEngine();
  JobGroup group(*engine, &latch);
  const auto other = makeEngine();
  auto dying = std::make_unique<JobGroup>(*other);
  Link* const out = links.make(group, *dying);
  Link* const in = links.make(*dying, group);
  const auto drive = [&] { (void)engine->progress(), (void)other->progress(); };
  ASSERT_TRUE(driveUntil(drive, [&] { return group.settled() && dying->settled(); }));
  dying.reset();
  ASSERT_TRUE(driveUntil(drive, [&] { return in->receiver->final() && out->sender->final(); }));
  EXPECT_EQ(in->receiver->state(), JobState::Failed);
  EXPECT_EQ(out->sender->state(), JobState::Failed) << "noticed although nothing was sent";
  EXPECT_EQ(latch.code(), Code::RemoteError);
  EXPECT_EQ(group.status().code(), Code::RemoteError);
  for (const char* words : {"rank 0 on sender-host at 127.0.0.1:", "closed the connection"}) {
    EXPECT_NE(in->receiver->status().text().find(words), std::string::npos) << in->receiver->status().text();
  }
  EXPECT_NE(out->sender->status().text().find("rank 1 on receiver-host at 127.0.0.1:"), std::string::npos) << out->sender->status().text();
}

TEST(JobGroup, NoticesADeadPeerWithoutAnybodyDriving) {
  Links links;
  const auto engine = makeEngine();
  ErrorLatch latch;
  JobGroup group(*engine, &latch);
  const auto other = makeEngine();
  auto dying = std::make_unique<JobGroup>(*other);
  (void)links.make(*dying, group);
  ASSERT_TRUE(
      driveUntil([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, [&] { return group.settled() && dying->settled(); }))
      << "the engines' threads set connections up by themselves";
  dying.reset();
  EXPECT_TRUE(driveUntil([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, [&] { return latch.tripped(); }));
}

TEST(JobGroup, FailsASenderThatHasMoreAfterThePeerLeft) {
  Pair pair;
  Link* const link = pair.link();
  ASSERT_TRUE(pair.driveUntil([&] { return pair.from->settled() && pair.to->settled(); }));
  ASSERT_TRUE(pair.to->close(kClose).ok());
  for (int i = 0; i < 1000; ++i) pair.drive();
  EXPECT_EQ(link->sender->state(), JobState::Running) << "leaving is no failure";
  const std::byte word{1};
  uint64_t sent = 0;  // what the kernel took before the leave was noticed is not known to be lost
  ASSERT_TRUE(pair.driveUntil([&] {
    if (link->send.ready(1)) link->push(&word, 1, ++sent);
    return link->sender->final();
  }));
  EXPECT_EQ(link->sender->state(), JobState::Failed);
}

/// A peer that dies at any moment of a stream of messages: the other side fails, and says so, and nothing else happens.
TEST(JobGroup, SurvivesADeathAtEveryStage) {
  std::mt19937_64 random(20261121);
  const std::vector<std::byte> data(3 << 20, std::byte{5});
  for (int round = 0; round < 60; ++round) {
    Links links;
    const auto a = makeEngine();
    const auto b = makeEngine();
    auto from = std::make_unique<JobGroup>(*a);
    auto to = std::make_unique<JobGroup>(*b);
    Link* const link = links.make(*from, *to);
    ASSERT_NE(link, nullptr);
    const bool receiverDies = round % 2 == 0;
    uint64_t steps = random() % 200;
    int messages = 0;
    const auto drive = [&] {
      if (link->send.ready(data.size()) && messages < 40) {
        const uint64_t bytes = messages % 3 == 0 ? data.size() : messages % 3 == 1 ? 8 : 3000;
        if (bytes > Link::kSlotBytes) {
          link->pushReference(data.data(), bytes, 1);
        } else {
          link->push(data.data(), bytes, 1);
        }
        ++messages;
      }
      (void)a->progress();
      (void)b->progress();
      if (link->recv.ready()) link->recv.release();
    };
    ASSERT_TRUE(driveUntil(drive, [&] { return from->settled() && to->settled(); }));
    while (steps-- > 0) drive();
    (receiverDies ? to : from).reset();
    Job* const survivor = receiverDies ? static_cast<Job*>(link->sender) : link->receiver;
    if (receiverDies) messages = std::min(messages, 39);  // there is always something left to send
    ASSERT_TRUE(driveUntil(drive, [&] { return survivor->final(); })) << round;
    EXPECT_EQ(survivor->state(), JobState::Failed) << round;
    EXPECT_FALSE(survivor->status().ok());
  }
}

/// Once abort() has returned nothing reads or writes any buffer, also while another thread drives.
TEST(JobGroup, TouchesNothingAfterAnAbort) {
  for (int round = 0; round < 10; ++round) {
    Pair pair("127.0.0.1",
              round % 2 == 0 ? transport::socket::Settings{} : transport::socket::Settings{.threads = 2, .socketsPerThread = 1});
    Link* const link = pair.link();
    ASSERT_NE(link, nullptr);
    std::vector<std::byte> source(16 << 20, std::byte{1});
    std::vector<std::byte> target(16 << 20);
    link->readView().offering().make(1, target.data(), target.size());
    link->pushReference(source.data(), source.size(), 1);
    std::atomic<bool> stop{false};
    std::thread driver([&] {
      while (!stop) pair.drive();
    });
    ASSERT_TRUE(driveUntil([] { std::this_thread::yield(); }, [&] { return link->receiver->offeredBytesForTest() > 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 5));  // until some of it has come
    const auto begin = std::chrono::steady_clock::now();
    pair.to->abort();
    pair.from->abort();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
    source = std::vector<std::byte>();  // a sanitizer, or a fault, would tell
    std::memset(target.data(), 9, target.size());
    for (int i = 0; i < 100; ++i) pair.drive();
    EXPECT_EQ(std::memcmp(target.data(), target.data() + 1, target.size() - 1), 0) << "all nines";
    EXPECT_EQ(target[0], std::byte{9});
    stop = true;
    driver.join();
    EXPECT_TRUE(link->receiver->final() && link->sender->final());
  }
}

TEST(JobGroup, AbortsBeforeAnybodyHasConnected) {
  Pair pair;
  Link* const link = pair.link();
  pair.from->abort();
  EXPECT_EQ(link->sender->state(), JobState::Closed);
  pair.drive();
  EXPECT_FALSE(link->receiver->state() == JobState::Failed) << "it may never have known";
}

TEST(JobGroup, SaysThatDescriptorsRanOut) {
  Links links;
  const auto engine = makeEngine();
  ErrorLatch latch;
  JobGroup group(*engine, &latch);
  Link* const warm = links.make(group, group);
  ASSERT_TRUE(driveUntil([&] { (void)engine->progress(); }, [&] { return group.settled(); }));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = entriesOf("/proc/self/fd");  // none is left, or one or two
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int i = 0; i < 4; ++i) (void)links.make(group, group);
  const bool failed = driveUntil([&] { (void)engine->progress(); }, [&] { return latch.tripped(); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(failed);
  EXPECT_NE(latch.status().text().find("Too many open files"), std::string::npos) << latch.status().text();
  EXPECT_EQ(warm->sender->state(), JobState::Running) << "those that stand are not disturbed";
}

TEST(JobGroup, LeavesNothingBehind) {
  std::thread([] {}).join();  // what a first thread brings along is there from now on
  const size_t descriptors = entriesOf("/proc/self/fd");
  const size_t threads = entriesOf("/proc/self/task");
  for (int i = 0; i < 4; ++i) {
    Pair pair("127.0.0.1", {.threads = i % 2 == 0 ? 0 : 2, .socketsPerThread = 1});
    for (int k = 0; k < 3; ++k) (void)pair.link();
    if (i < 2) {
      ASSERT_TRUE(pair.driveUntil([&] { return pair.from->settled() && pair.to->settled(); }));
    }
  }
  EXPECT_EQ(entriesOf("/proc/self/fd"), descriptors);
  // The system lists a thread for a moment after it was joined, and may have done so before.
  for (int i = 0; i < 1000 && entriesOf("/proc/self/task") > threads; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LE(entriesOf("/proc/self/task"), threads);
}

}  // namespace
}  // namespace tutti::progress::group_test
