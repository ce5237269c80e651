#include "transport/local/hub.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tutti::transport::local::hub_test {
namespace {

const PipeKey kKey{ChannelId(0), 0, Rank(0), Rank(1)};

TEST(Hub, BothSidesGetTheSamePipe) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  const auto first = hub.pipe(kKey, 4, 128);
  const auto second = hub.pipe(kKey, 9, 4096);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->heads, second->heads);
  EXPECT_EQ(first->freed, second->freed);
  EXPECT_EQ(second->slots, 4U) << "the first asker's size counts";
  EXPECT_EQ(second->slotBytes, first->slotBytes);
}

TEST(Hub, EveryPartOfTheKeyTellsPipesApart) {
  const auto owner = *Hub::make(3);
  Hub& hub = *owner;
  std::vector<PipeKey> keys = {kKey,
                               {ChannelId(1), 0, Rank(0), Rank(1)},
                               {ChannelId(0), 1, Rank(0), Rank(1)},
                               {ChannelId(0), 0, Rank(2), Rank(1)},
                               {ChannelId(0), 0, Rank(0), Rank(2)},
                               {ChannelId(0), 0, Rank(1), Rank(0)}};
  std::vector<SlotHead*> heads;
  for (const PipeKey& key : keys) {
    const auto pipe = hub.pipe(key, 2, 64);
    ASSERT_TRUE(pipe);
    for (const SlotHead* other : heads) EXPECT_NE(pipe->heads, other);
    heads.push_back(pipe->heads);
  }
}

TEST(Hub, EveryRankHasOneWindow) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  const auto a = hub.window(Rank(0), 128);
  const auto again = hub.window(Rank(0), 128);
  const auto b = hub.window(Rank(1), 128);
  ASSERT_TRUE(a && again && b);
  EXPECT_EQ(a->heads, again->heads);
  EXPECT_NE(a->heads, b->heads);
  EXPECT_EQ(a->ranks, 2);
}

TEST(Hub, APipeThatCouldNotBeMadeIsTriedAgain) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  const auto impossible = hub.pipe(kKey, 8, uint64_t{1} << 59);
  ASSERT_FALSE(impossible);
  EXPECT_EQ(impossible.error().code(), Code::SystemError);
  EXPECT_TRUE(hub.pipe(kKey, 8, 64));
  EXPECT_FALSE(hub.window(Rank(0), uint64_t{1} << 60));
  EXPECT_TRUE(hub.window(Rank(0), 64));
}

TEST(Hub, ThreadsThatAskAtOnceGetTheSamePipe) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  constexpr int kThreads = 4;
  SlotHead* heads[kThreads] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int32_t c = 0; c < 50; ++c) {
        const auto pipe = hub.pipe({ChannelId(c), 0, Rank(0), Rank(1)}, 2, 64);
        ASSERT_TRUE(pipe);
        heads[t] = pipe->heads;
      }
    });
  }
  for (auto& t : threads) t.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(heads[t], heads[0]);
}

TEST(Hub, FailAllTripsEveryLatchOnce) {
  const auto owner = *Hub::make(3);
  Hub& hub = *owner;
  EXPECT_TRUE(hub.enter(Rank(1)));
  hub.leave(Rank(1));
  (void)hub.latch(Rank(2)).trip(error(Code::InvalidUsage, "rank 2 was first"));
  hub.failAll(error(Code::RemoteError, "then all"));
  EXPECT_EQ(hub.latch(Rank(0)).status().text(), "then all");
  EXPECT_EQ(hub.latch(Rank(1)).code(), Code::RemoteError);
  EXPECT_EQ(hub.latch(Rank(2)).status().text(), "rank 2 was first") << "the first error wins";
  for (int32_t r = 0; r < 3; ++r) EXPECT_FALSE(hub.enter(Rank(r)));
  hub.waitQuiet();  // a refused enter() leaves nobody inside
}

TEST(Hub, WaitQuietWaitsForTheThreadThatIsInside) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  ASSERT_TRUE(hub.enter(Rank(1)));
  hub.failAll(error(Code::RemoteError, "over"));
  std::atomic<bool> left{false};
  std::thread waiter([&] {
    hub.waitQuiet();
    EXPECT_TRUE(left.load());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  left.store(true);
  hub.leave(Rank(1));
  waiter.join();
}

/// What invariant 3 promises: after failAll() and waitQuiet() no other thread touches this rank's memory, without an atomic
/// operation of that thread in between. Several rounds, since the window is short.
TEST(Hub, AfterWaitQuietNobodyTouchesTheMemory) {
  for (int round = 0; round < 60; ++round) {
    const auto owner = *Hub::make(3);
    Hub& hub = *owner;
    std::vector<uint64_t> memory(64);  // of rank 0; the peers write to it by turns while they are inside
    std::atomic<int> started{0};
    std::vector<std::thread> peers;
    std::mutex turns;
    for (int32_t r = 1; r < 3; ++r) {
      peers.emplace_back([&, r] {
        started.fetch_add(1);
        while (hub.enter(Rank(r))) {
          {
            const std::lock_guard lock(turns);
            for (uint64_t& word : memory) ++word;
          }
          hub.leave(Rank(r));
        }
      });
    }
    while (started.load() < 2) std::this_thread::yield();
    hub.failAll(error(Code::RemoteError, "over"));
    hub.waitQuiet();
    const std::vector<uint64_t> seen = memory;
    std::this_thread::yield();
    EXPECT_EQ(seen, memory);
    for (uint64_t& word : memory) word = 0;  // ours again: under the thread sanitizer a late peer is a race
    for (auto& t : peers) t.join();
    for (const uint64_t word : memory) ASSERT_EQ(word, 0U);
  }
}

TEST(Hub, AForgottenBlockLivesUntilNobodyUsesIt) {
  const auto owner = *Hub::make(2);
  const Hub::Name name = {1, 2, 3, 4};
  std::byte* const first = *owner->block(name, Bytes(64));
  ASSERT_EQ(owner->existing(name), first);
  owner->forget(name);
  EXPECT_EQ(owner->existing(name), nullptr);
  first[0] = std::byte{7};  // a fault, had it been given back
  owner->release(name);
  first[1] = std::byte{8};
  EXPECT_EQ(first[0], std::byte{7});
  owner->release(name);
  std::byte* const again = *owner->block(name, Bytes(64));
  EXPECT_EQ(again[0], std::byte{0}) << "made anew";
  owner->release(name);
}

TEST(Hub, AChildIsKeptUntilAllRanksOfTheProcessHaveCome) {
  const auto parent = *Hub::make(3);
  auto child = *Hub::make(3);
  const std::weak_ptr<Hub> weak = child;
  parent->keepChild(4096, 3, child);
  child.reset();
  EXPECT_FALSE(weak.expired()) << "two have not come";
  parent->keepChild(4096, 3, nullptr);
  EXPECT_FALSE(weak.expired());
  parent->keepChild(4096, 3, weak.lock());
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace tutti::transport::local::hub_test
