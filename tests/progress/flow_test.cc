// How much is under way, where payloads land, and who drives.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <random>

#include "linked.h"

namespace tutti::progress::flow_test {
namespace {

TEST(Flow, NeverRunsAheadOfTheReader) {
  Pair pair;
  constexpr uint32_t kSlots = 3;
  Link* const link = pair.link(kSlots);
  ASSERT_NE(link, nullptr);
  const std::vector<std::byte> data(Link::kSlotBytes, std::byte{2});
  uint64_t sent = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (link->send.ready(data.size())) link->push(data.data(), data.size(), sent++);
    pair.drive();
    uint64_t filled = 0;
    for (uint32_t k = 0; k < link->far.view().numHeads; ++k) filled = std::max<uint64_t>(filled, link->far.view().heads[k].filled);
    ASSERT_LE(filled, link->recv.received() + kSlots);
  }
  EXPECT_LT(sent, 20'000U) << "somebody buffers without bound";
  for (uint64_t i = 0; i < sent; ++i) {
    ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
    ASSERT_EQ(link->recv.head().signature, i);
    link->recv.release();
  }
}

TEST(Flow, HoldsTwoLongMessagesAtMost) {
  const std::vector<std::byte> data(1 << 20, std::byte{3});
  Pair pair;
  Link* const link = pair.link();
  for (uint64_t i = 0; i < 4; ++i) link->pushReference(data.data(), data.size(), i);
  ASSERT_TRUE(pair.driveUntil([&] { return link->far.view().heads[1].filled.load() == 2; }));
  for (int i = 0; i < 2000; ++i) pair.drive();
  EXPECT_EQ(link->far.view().heads[2].filled.load(), 0U);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
    ASSERT_EQ(link->recv.head().bytes, data.size());
    ASSERT_EQ(std::memcmp(link->recv.payload(), data.data(), data.size()), 0);
    link->recv.release();
  }
}

TEST(Flow, PutsAPayloadWhereItIsWanted) {
  Pair pair;
  Link* const link = pair.link();
  const transport::local::OfferView offers = link->readView().offering();
  std::vector<std::byte> data(5 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 13 + (i >> 12));
  std::vector<std::byte> room(data.size() + 64);
  offers.make(1, room.data(), room.size());
  offers.make(2, room.data(), 10);  // too small for the message that comes
  link->pushReference(data.data(), data.size(), 1);
  link->push(data.data(), 5000, 2);
  ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
  EXPECT_EQ(link->recv.payload(), room.data());
  EXPECT_EQ(std::memcmp(room.data(), data.data(), data.size()), 0);
  EXPECT_EQ(link->receiver->offeredBytesForTest(), data.size());
  link->recv.release();
  ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
  EXPECT_NE(link->recv.payload(), room.data());
  EXPECT_EQ(std::memcmp(link->recv.payload(), data.data(), 5000), 0);
}

TEST(Flow, SendsByReferenceWithoutAStagingSpace) {
  Pair pair;
  Link* const link = pair.link(2, 0);
  const std::vector<std::byte> data(100, std::byte{4});
  link->pushReference(data.data(), data.size(), 1);
  ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
  EXPECT_EQ(std::memcmp(link->recv.payload(), data.data(), data.size()), 0);
  ASSERT_TRUE(pair.driveUntil([&] { return link->send.drained(); }));
}

TEST(Flow, GoesThroughHelperThreads) {
  Pair pair("127.0.0.1", {.threads = 3, .socketsPerThread = 2, .minTaskBytes = 1000});
  Link* const link = pair.link();
  std::mt19937_64 random(4);
  std::vector<std::byte> data(4 << 20);
  for (std::byte& one : data) one = static_cast<std::byte>(random());
  for (uint64_t i = 0; i < 60; ++i) {
    const uint64_t bytes = random() % data.size();
    link->pushReference(data.data(), bytes, i);
    ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); })) << pair.to->status().text();
    ASSERT_EQ(link->recv.head().bytes, bytes);
    ASSERT_EQ(std::memcmp(link->recv.payload(), data.data(), bytes), 0) << i;
    link->recv.release();
  }
}

/// Many pipes in both directions, each side driven by several threads that wait for different ones.
TEST(Drive, ManyThreadsShareAnEngine) {
  constexpr int kThreads = 3;
  constexpr uint64_t kMessages = 400;
  Pair pair;
  std::vector<Link*> there;
  std::vector<Link*> back;
  for (int i = 0; i < kThreads; ++i) {
    there.push_back(pair.links.make(*pair.from, *pair.to));
    back.push_back(pair.links.make(*pair.to, *pair.from));
  }
  std::atomic<int> wrong{0};
  const auto play = [&](Engine& engine, Link& out, Link& in, bool begins, uint64_t seed) {
    const auto await = [&](auto&& done) {
      for (int tries = 0; !done(); ++tries) {
        if (tries < 50 ? !engine.progress() : !engine.progressOrWait(std::chrono::milliseconds(100))) std::this_thread::yield();
      }
    };
    std::mt19937_64 random(seed);
    std::vector<std::byte> data(40'000);
    for (uint64_t i = 0; i < kMessages; ++i) {
      if (begins || i > 0) {
        const uint64_t bytes = random() % 3 == 0 ? data.size() : random() % 100;
        await([&] { return out.send.ready(bytes) && out.send.drained(); });
        std::memset(data.data(), static_cast<int>(i), bytes);
        if (bytes > Link::kSlotBytes) {
          out.pushReference(data.data(), bytes, i);
        } else {
          out.push(data.data(), bytes, i);
        }
      }
      await([&] { return in.recv.ready(); });
      const SlotHead& head = in.recv.head();
      const auto expected = static_cast<std::byte>(begins ? i + 1 : i);
      for (uint64_t k = 0; k < head.bytes; ++k) wrong += in.recv.payload()[k] == expected ? 0 : 1;
      in.recv.release();
    }
    if (!begins) {
      const auto last = static_cast<std::byte>(kMessages % 256);
      await([&] { return out.send.ready(1); });
      out.push(&last, 1, kMessages);
    }
    await([&] { return out.send.drained(); });
    engine.kick();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    const auto k = static_cast<size_t>(i);
    threads.emplace_back([&, k] { play(*pair.a, *there[k], *back[k], true, k); });
    threads.emplace_back([&, k] { play(*pair.b, *back[k], *there[k], false, 100 + k); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(pair.from->status().ok()) << pair.from->status().text();
}

TEST(Drive, AKickIsEnough) {
  const std::vector<std::byte> data(20 << 20, std::byte{9});
  Pair pair;
  Link* const link = pair.link();
  link->pushReference(data.data(), data.size(), 1);
  pair.a->kick();
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  ASSERT_TRUE(driveUntil(nap, [&] { return link->send.drained(); })) << "nobody but the engines' threads drives";
  ASSERT_TRUE(driveUntil(nap, [&] { return link->recv.ready(); }));
  link->recv.release();
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(driveUntil(nap, [&] { return link->send.ready(8); }));
    link->push(data.data(), 8, i);
    pair.a->kick();
    ASSERT_TRUE(driveUntil(nap, [&] { return link->recv.ready(); })) << i;
    link->recv.release();
  }
}

/// The pass that takes the event of a message has to read it: nobody else is told. With more receivers than are asked in every pass.
TEST(Drive, WhatComesBehindAMessageIsSeenWhileNobodyWaits) {
  for (int trial = 0; trial < 4; ++trial) {
    Pair pair;
    std::vector<Link*> links;
    for (int i = 0; i < 3; ++i) links.push_back(pair.link());
    const std::byte word[8] = {};
    for (Link* const link : links) {
      link->push(word, sizeof word, 1);
      ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
      link->recv.release();
    }
    for (int i = 0; i < 50; ++i) pair.drive();
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // the engine's thread has nothing more to do
    links[0]->push(word, sizeof word, 2);
    (void)pair.a->progress();
    while (!links[0]->recv.ready()) (void)pair.b->progress();
    links[0]->push(word, sizeof word, 3);
    (void)pair.a->progress();
    (void)pair.b->progress();  // the last of who waited
    links[0]->recv.release();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!links[0]->recv.ready() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(links[0]->recv.ready()) << trial;
  }
}

TEST(Drive, AnIdleEngineUsesNoTime) {
  Pair pair;
  (void)pair.link();
  ASSERT_TRUE(pair.driveUntil([&] { return pair.from->settled() && pair.to->settled(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the threads have seen that nobody drives
  const uint64_t passes = pair.a->passes() + pair.b->passes();
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  getrusage(RUSAGE_SELF, &after);
  const auto us = [](const rusage& r) {
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1'000'000 + r.ru_utime.tv_usec + r.ru_stime.tv_usec;
  };
  EXPECT_LT(us(after) - us(before), 5000) << "us of CPU in a second";
  EXPECT_EQ(pair.a->passes() + pair.b->passes(), passes);
}

TEST(Drive, AWaiterSleepsAndIsWoken) {
  Pair pair;
  Link* const link = pair.link();
  ASSERT_TRUE(pair.driveUntil([&] { return pair.from->settled() && pair.to->settled(); }));
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(300))
    (void)pair.b->progressOrWait(std::chrono::milliseconds(100));
  getrusage(RUSAGE_SELF, &after);
  const auto us = [](const rusage& r) {
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1'000'000 + r.ru_utime.tv_usec + r.ru_stime.tv_usec;
  };
  EXPECT_LT(us(after) - us(before), 50'000);
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::byte word{1};
    link->push(&word, 1, 1);
    (void)pair.a->progress();
  });
  std::vector<std::thread> waiters;
  std::atomic<int> woken{0};
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!link->recv.ready() && std::chrono::steady_clock::now() < end) (void)pair.b->progressOrWait(std::chrono::seconds(20));
      if (link->recv.ready()) ++woken;
    });
  }
  for (std::thread& waiter : waiters) waiter.join();
  sender.join();
  EXPECT_EQ(woken, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << "all wake, not only the one who slept on the descriptor";
}

}  // namespace
}  // namespace tutti::progress::flow_test
