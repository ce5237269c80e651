#include "comm/founding.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "comm/process.h"

namespace tutti::comm::founding_test {
namespace {

std::shared_ptr<Encounter> join(const UniqueIdBytes& id, int32_t ranks, int32_t rank, const Arrival& arrival = {}) {
  return process().foundations.join(process().bootstrap, {&id, 1}, ranks, Rank(rank), arrival);
}

Result<Outcome> wait(Encounter& encounter, std::chrono::seconds limit = std::chrono::seconds(20)) {
  const auto since = std::chrono::steady_clock::now();
  for (;;) {
    if (auto outcome = encounter.poll()) return *outcome;
    if (std::chrono::steady_clock::now() - since > limit)
      return fail(Code::InternalError, "still missing: {}", encounter.describeMissing({}));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

template <class Condition>
bool eventually(Condition&& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// A child of this process that waits for an id. Forked while there are no other threads here: what they hold at that moment, such as a
/// lock of a sanitizer's allocator, would be held in the child for ever.
class Child {
 public:
  /// `body` runs in the child; whether all was well.
  explicit Child(const std::function<bool(const UniqueIdBytes&)>& body) {
    EXPECT_TRUE(eventually([] { return process().bootstrap.isIdle(); })) << "a thread of an earlier test is still there";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it was the thread that said so, which has yet to end
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[1]);
      UniqueIdBytes id{};
      const bool isThere = read(ends[0], id.data(), id.size()) == static_cast<ssize_t>(id.size());
      const bool isWell = isThere && body(id);
      syscall(SYS_exit_group, isWell ? 0 : 1);  // a sanitizer's own exit takes the library's thread for a leak
    }
    close(ends[0]);
    ids_ = ends[1];
  }
  ~Child() { close(ids_); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void give(const UniqueIdBytes& id) const { EXPECT_EQ(write(ids_, id.data(), id.size()), static_cast<ssize_t>(id.size())); }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int ids_ = -1;
};

/// What a process with one rank of its own does, which ends as `body` says.
std::function<bool(const UniqueIdBytes&)> ofRank(int32_t ranks, int32_t rank, const std::function<bool(const Outcome&)>& body) {
  return [=](const UniqueIdBytes& id) {
    const auto encounter = join(id, ranks, rank, {0, rank});
    const auto outcome = wait(*encounter);
    if (!outcome) std::fprintf(stderr, "rank %d: %s\n", rank, outcome.error().text().c_str());
    return outcome && body(*outcome);
  };
}

bool endedWell(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Foundations, ThreadsOfAProcessShareOneHub) {
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  const auto a = join(*id, 2, 0), b = join(*id, 2, 1);
  const auto first = wait(*a), second = wait(*b);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->hub, second->hub);
  EXPECT_FALSE(first->hub->spansProcesses());
  EXPECT_EQ(second->place.rank, Rank(1));
}

TEST(Foundations, ARankThatLeavesAtOnceLeavesItsHubToTheOthers) {
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  auto a = join(*id, 2, 0);
  const auto b = join(*id, 2, 1);
  {
    const auto first = wait(*a);
    ASSERT_TRUE(first);
    first->hub->depart(Rank(0), 5);
  }
  a.reset();
  const auto second = wait(*b);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->hub->departed(Rank(0)), 5U);
}

TEST(Foundations, ProcessesOfAHostShareMemory) {
  const Child child(ofRank(3, 2, [](const Outcome& outcome) {
    transport::local::Hub& hub = *outcome.hub;
    if (!hub.spansProcesses() || hub.isHere(Rank(0)) || !hub.isHere(Rank(2))) return false;
    hub.depart(Rank(2), 7);
    return eventually([&] { return hub.departed(Rank(0)).has_value(); });
  }));
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  child.give(*id);
  const auto a = join(*id, 3, 0), b = join(*id, 3, 1);
  const auto first = wait(*a), second = wait(*b);
  ASSERT_TRUE(first) << first.error().text();
  ASSERT_TRUE(second) << second.error().text();
  EXPECT_EQ(first->hub, second->hub) << "two ranks of one process";
  EXPECT_TRUE(first->hub->isHere(Rank(1)));
  EXPECT_TRUE(eventually([&] { return first->hub->departed(Rank(2)) == 7U; }));
  first->hub->depart(Rank(0), 1);
  EXPECT_TRUE(endedWell(child.pid()));
}

TEST(Foundations, AProcessThatDiesFailsTheCommunicatorAndIsNamed) {
  const Child child(ofRank(2, 1, [](const Outcome& outcome) {
    outcome.hub->board(Rank(1)).post({Collective::AllReduce, DataType::F32, 0, 0, 77, 0, false});
    for (;;) pause();
    return false;
  }));
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  child.give(*id);
  const auto a = join(*id, 2, 0);
  const auto outcome = wait(*a);
  ASSERT_TRUE(outcome) << outcome.error().text();
  ASSERT_TRUE(eventually([&] { return outcome->hub->board(Rank(1)).begun() == 1; }));
  EXPECT_FALSE(outcome->hub->latch(Rank(0)).tripped());
  const auto killed = std::chrono::steady_clock::now();
  kill(child.pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return outcome->hub->latch(Rank(0)).tripped(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(1));
  const Status status = outcome->hub->latch(Rank(0)).status();
  EXPECT_EQ(status.code(), Code::RemoteError);
  for (const std::string& part : {std::string("rank 1"), "process " + std::to_string(child.pid()), std::string("AllReduce #0 of 77 float")})
    EXPECT_NE(status.text().find(part), std::string::npos) << part << " in: " << status.text();
  waitpid(child.pid(), nullptr, 0);
  EXPECT_FALSE(outcome->hub->isAlive(Rank(1)));
}

TEST(Foundations, AnIdIsGoodOnceAndForeignBytesAreRefused) {
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  const auto a = join(*id, 1, 0);
  ASSERT_TRUE(wait(*a));
  const auto late = join(*id, 1, 0);
  const auto refused = wait(*late);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::InvalidUsage);
  UniqueIdBytes noise{};
  noise.fill(7);
  const auto foreign = join(noise, 2, 0);
  const auto outcome = foreign->poll();
  ASSERT_TRUE(outcome && !*outcome) << "at once";
  EXPECT_EQ(outcome->error().code(), Code::InvalidArgument);
}

/// Who came with another colour, or out of turn, would be in a communicator of its own behind a hub of all.
TEST(Foundations, ARankThatSaysOfItselfWhatMakesNoSenseEndsTheMeeting) {
  for (const Arrival& arrival : {Arrival{1, 1}, Arrival{kNoColor, 1}, Arrival{0, -1}, Arrival{0, 1, 0}}) {
    const auto id = process().bootstrap.makeId();
    ASSERT_TRUE(id);
    const auto a = join(*id, 2, 0, {0, 0});
    const auto b = join(*id, 2, 1, arrival);
    for (const auto& encounter : {a, b}) {
      const auto outcome = wait(*encounter);
      ASSERT_FALSE(outcome);
      EXPECT_NE(outcome.error().text().find("rank 1 says of itself"), std::string::npos) << outcome.error().text();
    }
  }
}

TEST(Foundations, EndTellsTheRanksOfOtherProcesses) {
  const Child child([](const UniqueIdBytes& given) {
    const auto encounter = join(given, 3, 2);
    const auto outcome = wait(*encounter);
    return !outcome && outcome.error().text().find("changed its mind") != std::string::npos;
  });
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  child.give(*id);
  const auto a = join(*id, 3, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  a->end(error(Code::SystemError, "changed its mind"));
  EXPECT_TRUE(endedWell(child.pid()));
}

}  // namespace
}  // namespace tutti::comm::founding_test
