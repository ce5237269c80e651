#include "transport/local/waits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace tutti::transport::local::waits_test {
namespace {

/// Two views of the same memory, as two processes have them.
struct Both {
  explicit Both(int32_t ranks)
      : memory(static_cast<std::byte*>(std::calloc(1, Waits::bytesFor(ranks)))),
        a(ranks, lockOf(), patience, memory),
        b(ranks, mutex, patience, memory) {}
  ~Both() { std::free(memory); }
  SharedMutex& lockOf() {
    mutex.init();
    return mutex;
  }
  SharedMutex mutex;
  Patience patience;
  std::byte* memory;
  Waits a, b;
};

RankWait waitFor(int32_t rank) {
  RankWait wait;
  wait.chains.emplace_back().words = "waits for rank " + std::to_string(rank);
  return wait;
}

TEST(Waits, WhatOneProcessPublishesTheOtherSees) {
  Both both(3);
  both.a.publish(Rank(1), waitFor(2));
  both.b.look([](Waits::State& state) {
    EXPECT_FALSE(state.ranks[0].waits);
    ASSERT_TRUE(state.ranks[1].waits);
    EXPECT_EQ(state.ranks[1].wait.chains[0].words, "waits for rank 2");
    EXPECT_EQ(state.ranks[1].episode, 1U);
    EXPECT_EQ(state.ranks[1].inspections, 0U);
  });
  both.a.confirm(Rank(1));
  both.b.look([](Waits::State& state) { EXPECT_EQ(state.ranks[1].inspections, 1U); });
  both.a.withdraw(Rank(1));
  both.b.look([](Waits::State& state) { EXPECT_FALSE(state.ranks[1].waits); });
}

/// Somebody was stopped while he had the lock.
TEST(Waits, WithoutTheLockWhatWasSeenLastIsThere) {
  Both both(2);
  both.a.publish(Rank(1), waitFor(0));
  both.a.look([](Waits::State&) {});
  ASSERT_TRUE(both.mutex.tryLock());
  const auto begin = std::chrono::steady_clock::now();
  both.a.withdraw(Rank(1));
  EXPECT_FALSE(both.a.publish(Rank(0), waitFor(1)));
  both.a.conclude([](Waits::State& state) {
    EXPECT_TRUE(state.ranks[1].waits);
    Verdict verdict;
    verdict.cause = error(Code::RemoteError, "aborted");
    verdict.ranks.resize(2);
    state.verdict = std::move(verdict);
    return 0;
  });
  both.a.look([](Waits::State& state) { EXPECT_EQ(state.verdict->cause.text(), "aborted"); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500)) << "it explains, and nothing waits for that";
  both.mutex.unlock();
  both.b.look([](Waits::State& state) { EXPECT_FALSE(state.verdict) << "it was said without the lock"; });
}

TEST(Waits, AVerdictIsEverybodys) {
  Both both(2);
  both.a.conclude([](Waits::State& state) {
    Verdict verdict;
    verdict.cause = error(Code::InvalidUsage, "calls differ");
    verdict.ranks.resize(2);
    state.verdict = std::move(verdict);
    return 0;
  });
  both.b.conclude([](Waits::State& state) {
    EXPECT_EQ(state.verdict->cause.text(), "calls differ");
    state.verdict->ranks[1].begunCollectives = 7;
    return 0;
  });
  both.a.look([](Waits::State& state) { EXPECT_EQ(state.verdict->ranks[1].begunCollectives, 7U); });
}

TEST(Waits, AWaitTooLongForItsPlaceIsNotTold) {
  Both both(2);
  RankWait wait = waitFor(1);
  wait.chains[0].words.assign(1 << 20, 'x');
  both.a.publish(Rank(0), wait);
  both.b.look([](Waits::State& state) { EXPECT_FALSE(state.ranks[0].waits); });
}

}  // namespace
}  // namespace tutti::transport::local::waits_test
