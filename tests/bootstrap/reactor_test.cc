#include "bootstrap/reactor.h"

#include <atomic>
#include <string>
#include <thread>

#include "bootstrap/alarm.h"
#include "play.h"

namespace tutti::bootstrap::reactor_test {
namespace {

using namespace play;

TEST(Reactor, RunsWhatIsPostedInOrderOnOneThread) {
  Reactor reactor;
  ASSERT_TRUE(reactor.hold().ok());
  std::vector<int> seen;
  std::atomic<int> count{0};
  for (int i = 0; i < 1000; ++i) {
    reactor.post([&, i] {
      seen.push_back(i);
      ++count;
    });
  }
  ASSERT_TRUE(becomes([&] { return count == 1000; }));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  reactor.release();
}

/// A connection's first message is posted there, and the one behind it by whoever gives up meanwhile.
TEST(Reactor, KeepsTheOrderOfItsOwnPostsAndThoseOfOthers) {
  Reactor reactor;
  ASSERT_TRUE(reactor.hold().ok());
  std::string order;
  std::atomic<int> stage{0};
  reactor.post([&] {
    reactor.post([&] { order += "a"; });
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    reactor.post([&] {
      order += "c";
      stage = 3;
    });
  });
  ASSERT_TRUE(becomes([&] { return stage == 1; }));
  reactor.post([&] { order += "b"; });
  stage = 2;
  ASSERT_TRUE(becomes([&] { return stage == 3; }));
  EXPECT_EQ(order, "abc");
  reactor.release();
}

TEST(Reactor, EndsWhenNobodyHoldsItAndStartsAgain) {
  Reactor reactor;
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(reactor.hold().ok());
    ASSERT_TRUE(reactor.hold().ok());
    reactor.release();
    std::this_thread::sleep_for(milliseconds(150));
    EXPECT_TRUE(reactor.isRunning()) << "one hold is left";
    std::atomic<bool> ran{false};
    reactor.post([&] { ran = true; });
    EXPECT_TRUE(becomes([&] { return ran.load(); }));
    reactor.release();
    EXPECT_TRUE(becomes([&] { return !reactor.isRunning(); }));
  }
}

TEST(Reactor, AHoldInTheLastMomentKeepsIt) {
  Reactor reactor;
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(reactor.hold().ok());
    std::atomic<bool> ran{false};
    reactor.post([&] { ran = true; });
    ASSERT_TRUE(becomes([&] { return ran.load(); }));
    reactor.release();
    if (round % 30 == 0) std::this_thread::sleep_for(milliseconds(100) + std::chrono::microseconds(round));
  }
}

TEST(Reactor, StopsForGoodWhoeverHoldsIt) {
  Reactor reactor;
  ASSERT_TRUE(reactor.hold().ok());
  std::atomic<int> ran{0};
  reactor.post([&] { reactor.post([&] { ++ran; }); });
  reactor.stop();
  EXPECT_EQ(ran, 1) << "what came of what was posted before";
  EXPECT_FALSE(reactor.isRunning());
  EXPECT_EQ(reactor.hold().code(), Code::InvalidUsage);
  reactor.post([&] { ++ran; });
  reactor.release();
  EXPECT_EQ(ran, 1);
}

TEST(Alarm, CallsOnceUnlessItIsCancelled) {
  Reactor reactor;
  ASSERT_TRUE(reactor.hold().ok());
  std::atomic<int> calls{0};
  const Alarm due(reactor, milliseconds(20), [&] { ++calls; });
  {
    const Alarm gone(reactor, milliseconds(20), [&] { calls += 100; });
    Alarm moved(reactor, milliseconds(20), [&] { calls += 100; });
    moved = Alarm(reactor, milliseconds(3600'000), [&] { calls += 100; });
  }
  ASSERT_TRUE(becomes([&] { return calls > 0; }));
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(calls, 1);
  reactor.stop();
}

}  // namespace
}  // namespace tutti::bootstrap::reactor_test
