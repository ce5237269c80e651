#include "core/queue.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

namespace tutti::queue_test {
namespace {

template <class Queue>
class QueueTest : public testing::Test {};
using Queues = testing::Types<SpscQueue<std::unique_ptr<int>>, MpscQueue<std::unique_ptr<int>>>;
TYPED_TEST_SUITE(QueueTest, Queues);

TYPED_TEST(QueueTest, KeepsOrderAndSaysWhenFullOrEmpty) {
  TypeParam queue(5);
  ASSERT_EQ(queue.capacity(), 8U);
  EXPECT_FALSE(queue.tryPop());
  for (int lap = 0; lap < 20; ++lap) {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(queue.tryPush(std::make_unique<int>(lap * 8 + i)));
    auto rejected = std::make_unique<int>(99);
    EXPECT_FALSE(queue.tryPush(std::move(rejected)));
    ASSERT_TRUE(rejected) << "a refused element stays with the caller";
    for (int i = 0; i < 8; ++i) {
      auto value = queue.tryPop();
      ASSERT_TRUE(value);
      EXPECT_EQ(**value, lap * 8 + i);
    }
    EXPECT_FALSE(queue.tryPop());
  }
}

TYPED_TEST(QueueTest, DestroysWhatIsLeftOver) {
  auto counted = std::make_shared<int>(0);
  struct Holder { std::shared_ptr<int> hold; };
  {
    SpscQueue<Holder> spsc(4);
    MpscQueue<Holder> mpsc(4);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(spsc.tryPush(Holder{counted}));
      EXPECT_TRUE(mpsc.tryPush(Holder{counted}));
    }
    spsc.tryPop();
    EXPECT_EQ(counted.use_count(), 6);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

TYPED_TEST(QueueTest, SmallestCapacityIsTwo) {
  TypeParam queue(0);
  EXPECT_EQ(queue.capacity(), 2U);
  EXPECT_TRUE(queue.tryPush(std::make_unique<int>(1)));
  EXPECT_TRUE(queue.tryPush(std::make_unique<int>(2)));
  EXPECT_FALSE(queue.tryPush(std::make_unique<int>(3)));
}

// Elements point to plain data, so a missing order is a race that the thread sanitizer reports.
TEST(SpscQueue, PassesEverythingInOrderBetweenTwoThreads) {
  constexpr int kCount = 200'000;
  SpscQueue<std::unique_ptr<int>> queue(16);
  std::thread producer([&] {
    for (int i = 0; i < kCount; ++i) {
      auto value = std::make_unique<int>(i);
      while (!queue.tryPush(std::move(value))) std::this_thread::yield();
    }
  });
  for (int i = 0; i < kCount;) {
    if (auto value = queue.tryPop()) {
      ASSERT_EQ(**value, i++);
    } else {
      std::this_thread::yield();
    }
  }
  producer.join();
  EXPECT_FALSE(queue.tryPop());
}

TEST(MpscQueue, PassesEverythingOfEachProducerInOrder) {
  constexpr int kProducers = 4;
  constexpr int kCount = 50'000;
  struct Item { int producer; std::unique_ptr<int> number; };
  MpscQueue<Item> queue(16);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kCount; ++i) {
        Item item{p, std::make_unique<int>(i)};
        while (!queue.tryPush(std::move(item))) std::this_thread::yield();
      }
    });
  }
  std::array<int, kProducers> next{};
  for (int received = 0; received < kProducers * kCount;) {
    if (auto item = queue.tryPop()) {
      ASSERT_EQ(*item->number, next[item->producer]++);
      ++received;
    } else {
      std::this_thread::yield();
    }
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_FALSE(queue.tryPop());
}

}  // namespace
}  // namespace tutti::queue_test
