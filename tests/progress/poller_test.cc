#include "progress/poller.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>

namespace tutti::progress::poller_test {
namespace {

struct Counter final : Watcher {
  int events = 0;
  void onEvent() override { ++events; }
};

TEST(Poller, TellsAnEventOnceAndWaitConsumesNothing) {
  Poller poller;
  Bell bell;
  Counter counter;
  ASSERT_TRUE(poller.open().ok() && bell.open().ok());
  ASSERT_TRUE(poller.add(bell.descriptor(), &counter).ok());
  poller.harvest();
  const int before = counter.events;  // an eventfd is writable from the beginning, which is an event
  bell.ring();
  const std::array<int, 1> fds{poller.descriptor()};
  EXPECT_EQ(waitFor(fds, std::chrono::seconds(5)), 1U);
  EXPECT_EQ(waitFor(fds, std::chrono::seconds(5)), 1U);
  poller.harvest();
  EXPECT_EQ(counter.events, before + 1);
  EXPECT_EQ(waitFor(fds, std::chrono::milliseconds(1)), 0U);
  poller.harvest();
  EXPECT_EQ(counter.events, before + 1);
  bell.ring();
  poller.harvest();
  EXPECT_EQ(counter.events, before + 2) << "told again, although it was never silenced";
  poller.remove(bell.descriptor());
  bell.ring();
  poller.harvest();
  EXPECT_EQ(counter.events, before + 2);
}

TEST(Poller, SaysWhatIsReady) {
  Bell first;
  Bell second;
  ASSERT_TRUE(first.open().ok() && second.open().ok());
  const std::array<int, 3> fds{first.descriptor(), -1, second.descriptor()};
  EXPECT_EQ(waitFor(fds, Nanoseconds(0)), 0U);
  second.ring();
  EXPECT_EQ(waitFor(fds, Nanoseconds(-1)), 4U);
  first.ring();
  EXPECT_EQ(waitFor(fds, Nanoseconds(-1)), 5U);
  first.silence();
  second.silence();
  EXPECT_EQ(waitFor(fds, Nanoseconds(0)), 0U);
}

TEST(Poller, RefusesWhatIsNoDescriptor) {
  Poller poller;
  Counter counter;
  ASSERT_TRUE(poller.open().ok());
  EXPECT_EQ(poller.add(-1, &counter).code(), Code::SystemError);
}

}  // namespace
}  // namespace tutti::progress::poller_test
