#include "comm/meeting.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::comm::meeting_test {
namespace {

using transport::local::Arena;
using transport::local::Hub;

std::shared_ptr<Hub> newParent(int32_t ranks) { return *Hub::make(ranks); }

std::shared_ptr<Meeting> arrive(const std::shared_ptr<Hub>& parent, int32_t ranks, int32_t place, const Arrival& arrival,
                                const ChildKey& key = {}) {
  auto meeting = Meeting::arrive(parent, key, ranks, Rank(place), arrival);
  EXPECT_TRUE(meeting) << (meeting ? "" : meeting.error().text());
  return meeting ? *meeting : nullptr;
}

TEST(Meeting, EveryColourGetsAHub) {
  const auto parent = newParent(5);
  const Arrival arrivals[] = {{5, 1}, {-9, 0}, {5, -3}, {kNoColor, 0}, {-9, 0}};
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (int32_t r = 0; r < 5; ++r) {
    for (const auto& waiting : meetings) EXPECT_FALSE(waiting->poll());
    meetings.push_back(arrive(parent, 5, r, arrivals[r]));
  }
  std::vector<Outcome> outcomes;
  for (const auto& meeting : meetings) {
    const auto outcome = meeting->poll();
    ASSERT_TRUE(outcome && *outcome);
    outcomes.push_back(**outcome);
  }
  EXPECT_EQ(outcomes[3].hub, nullptr);
  EXPECT_EQ(outcomes[0].hub, outcomes[2].hub);
  EXPECT_EQ(outcomes[1].hub, outcomes[4].hub);
  EXPECT_NE(outcomes[0].hub, outcomes[1].hub);
  EXPECT_EQ(outcomes[0].hub->ranks(), 2);
  EXPECT_EQ(outcomes[2].place.rank, Rank(0)) << "by key";
  ASSERT_NE(outcomes[0].members, nullptr);
  ASSERT_EQ(outcomes[0].members->size(), 2u);
  EXPECT_EQ((*outcomes[0].members)[0].key, -3) << "what each rank has said, by their new ranks";
  EXPECT_EQ((*outcomes[0].members)[1].key, 1);
  EXPECT_EQ((*meetings[0]->poll())->hub, outcomes[0].hub) << "asking again changes nothing";
}

TEST(Meeting, EndTellsThoseWhoWaitAndThoseWhoComeLater) {
  const auto parent = newParent(3);
  const auto first = arrive(parent, 3, 0, {}), second = arrive(parent, 3, 1, {});
  first->end(error(Code::SystemError, "no memory"));
  first->end(error(Code::RemoteError, "later"));
  for (const auto& meeting : {second, arrive(parent, 3, 2, {})}) {
    const auto outcome = meeting->poll();
    ASSERT_TRUE(outcome && !*outcome);
    EXPECT_EQ(outcome->error().text(), "no memory") << "the first reason counts";
  }
}

TEST(Meeting, EndAfterAllHaveComeFailsTheCallsOfTheColour) {
  const auto parent = newParent(3);
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (int32_t r = 0; r < 3; ++r) meetings.push_back(arrive(parent, 3, r, {r == 2 ? 1 : 0, r}));
  meetings[1]->end(error(Code::SystemError, "rank 1 found no memory"));
  EXPECT_EQ((*meetings[0]->poll())->hub->latch(Rank(0)).status().text(), "rank 1 found no memory");
  EXPECT_FALSE((*meetings[2]->poll())->hub->latch(Rank(0)).tripped()) << "another colour";
}

/// What a stopped process does to the others: somebody has the lock of the parent, at any moment of a meeting.
class Held {
 public:
  explicit Held(Hub& hub) : thread_([this, &hub] {
    const auto lock = hub.lock(std::chrono::seconds(10));
    EXPECT_TRUE(lock);
    has_ = true;
    while (!ends_) std::this_thread::yield();
  }) {
    while (!has_) std::this_thread::yield();
  }
  ~Held() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> has_ = false, ends_ = false;
  std::thread thread_;
};

void meetWhileSomebodyKeepsTheLock(bool hasFailed) {
  const auto parent = newParent(2);
  if (hasFailed) parent->failAll(error(Code::RemoteError, "revoked"));  // as a shrink's parent may have
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Held> held(*parent);
  const auto first = arrive(parent, 2, 0, {});
  EXPECT_FALSE(first->poll());
  EXPECT_TRUE(first->has(Rank(1))) << "nobody is to be blamed for what cannot be seen";
  EXPECT_FALSE(first->isWaiting());
  EXPECT_NE(first->describeMissing({}).find("nobody can name"), std::string::npos);
  EXPECT_TRUE(Meeting::open(parent).empty());
  held.reset();
  EXPECT_NE(first->describeMissing({}).find("nobody can name"), std::string::npos) << "it has no seat yet";
  EXPECT_FALSE(first->poll()) << "it has its seat, and the other has not come";
  const auto second = arrive(parent, 2, 1, {});
  held.emplace(*parent);
  EXPECT_FALSE(first->poll());
  EXPECT_FALSE(second->poll());
  held.reset();
  for (const auto& meeting : {first, second}) {
    const auto outcome = meeting->poll();
    ASSERT_TRUE(outcome && *outcome);
    EXPECT_NE((*outcome)->hub, nullptr);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(Meeting, NothingWaitsForALockThatSomebodyKeeps) {
  for (const bool hasFailed : {false, true}) meetWhileSomebodyKeepsTheLock(hasFailed);
}

TEST(Meeting, WhoGivesUpWhileSomebodyKeepsTheLockLeavesWord) {
  const auto parent = newParent(2);
  const auto first = arrive(parent, 2, 0, {}), second = arrive(parent, 2, 1, {});
  std::optional<Held> held(*parent);
  const auto begin = std::chrono::steady_clock::now();
  first->end(error(Code::RemoteError, "rank 0 aborted"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900));
  held.reset();
  const auto outcome = second->poll();
  ASSERT_TRUE(outcome && !*outcome);
  EXPECT_EQ(outcome->error().text(), "rank 0 aborted");
}

TEST(Meeting, NamesWhoIsMissing) {
  EXPECT_EQ(arrive(newParent(30), 30, 1, {})->describeMissing({}),
            "ranks 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 13 more of 30");
  const std::vector<int32_t> names = {4, 7};
  EXPECT_EQ(arrive(newParent(2), 2, 0, {})->describeMissing(names), "rank 7 of 2");
}

TEST(Meeting, APlaceIsTakenOnce) {
  const auto parent = newParent(3);
  (void)arrive(parent, 3, 1, {});
  const auto again = Meeting::arrive(parent, {}, 3, Rank(1), {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::InvalidUsage);
}

TEST(Meeting, EveryPartOfTheKeyTellsThemApart) {
  const auto parent = newParent(2);
  const ChildKey keys[] = {{false, {}, 0}, {true, {}, 0}, {false, {}, 1}, {false, {0, 1}, 0}, {false, {1, 0}, 0}};
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (const ChildKey& key : keys) {
    meetings.push_back(arrive(parent, 2, 0, {}, key));
    EXPECT_FALSE(meetings.back()->has(Rank(1)));
  }
  for (size_t i = 0; i < meetings.size(); ++i)
    for (size_t k = 0; k < meetings.size(); ++k) EXPECT_EQ(meetings[i]->isSame(*meetings[k]), i == k);
}

TEST(Meeting, ListsTheShrinksThatAreNotOver) {
  const auto parent = newParent(4);
  (void)arrive(parent, 4, 0, {});
  const auto open = arrive(parent, 2, 0, {}, {false, {0, 3}, 0});
  const auto over = arrive(parent, 1, 0, {}, {false, {2}, 0});
  const auto seen = Meeting::open(parent);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen[0]->isSame(*open));
  EXPECT_EQ(seen[0]->members(), (std::vector<int32_t>{0, 3}));
  EXPECT_TRUE(seen[0]->has(Rank(0)));
  EXPECT_FALSE(seen[0]->has(Rank(1)));
  seen[0]->end(error(Code::InvalidUsage, "other lists"));
  EXPECT_TRUE(open->poll());
  EXPECT_TRUE(Meeting::open(parent).empty());
}

/// A thousand splits leave nothing mapped but what their hubs take, and that goes with them.
TEST(Meeting, ThreadsMeetAgainAndAgain) {
  constexpr int32_t kRanks = 4;
  const auto parent = newParent(kRanks);
  for (uint64_t round = 0; round < 100; ++round) {
    std::vector<std::thread> threads;
    std::vector<std::shared_ptr<Hub>> hubs(kRanks);
    for (int32_t r = 0; r < kRanks; ++r)
      threads.emplace_back([&, r] {
        const auto meeting = arrive(parent, kRanks, r, {0, r}, {false, {}, round});
        for (;;) {
          if (const auto outcome = meeting->poll()) {
            ASSERT_TRUE(*outcome);
            hubs[static_cast<size_t>(r)] = (*outcome)->hub;
            return;
          }
          std::this_thread::yield();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const auto& hub : hubs) EXPECT_EQ(hub, hubs[0]);
  }
}

/// Who is missing may wait for a process that was stopped with the lock of another communicator: that is the one to look at.
TEST(Meeting, SaysWhoIsMissingAndWhoWasStoppedWithALock) {
  const auto file = Arena::createFile();
  ASSERT_TRUE(file) << file.error().text();
  const auto arena = *Arena::attach(file->get(), nullptr, {0, 1}, 0);
  const int32_t both[] = {0, 1}, alone[] = {0, 0};
  const uint64_t place = *Hub::format(*arena, 7, both);
  const auto other = *Hub::attach(arena, place, 2);
  const auto parent = *Hub::attach(arena, *Hub::format(*arena, 8, alone), 2);
  const pid_t holder = fork();
  if (holder == 0) {
    const auto own = *Arena::attach(file->get(), nullptr, {0, 1}, 1);
    own->announce(4711, -1);
    const auto theirs = *Hub::attach(own, place, 2);
    const auto held = theirs->lock(std::chrono::seconds(1));
    (void)raise(SIGSTOP);
    _exit(held ? 0 : 1);
  }
  ASSERT_EQ(waitpid(holder, nullptr, WUNTRACED), holder);
  const auto meeting = arrive(parent, 2, 0, {});
  EXPECT_FALSE(meeting->poll());
  const std::string stopped = " was stopped while it had the lock of what ranks share)";
  EXPECT_EQ(meeting->describeMissing({}), "rank 1 of 2 (process " + std::to_string(holder) + stopped);
  ASSERT_EQ(kill(holder, SIGCONT), 0);
  int status = 0;
  ASSERT_EQ(waitpid(holder, &status, 0), holder);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(meeting->describeMissing({}), "rank 1 of 2");
}

}  // namespace
}  // namespace tutti::comm::meeting_test
