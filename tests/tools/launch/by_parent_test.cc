// The exchange under `tutti run`: a Post as the keeper drives it, ranks as threads.
#include "launch/by_parent.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "tools/launch/ids.h"

namespace tutti::launch::by_parent_test {
namespace {

using std::chrono::milliseconds;

/// A Post with a thread that serves it until it goes out of scope.
class Served {
 public:
  explicit Served(int ranks) : post_(static_cast<size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      Result<Descriptor> end = post_.open(static_cast<size_t>(rank));
      EXPECT_TRUE(end);
      ends_.push_back(*std::move(end));
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~Served() { stop(); }
  void stop() {
    isOver_ = true;  // the serving thread looks every few milliseconds
    if (thread_.joinable()) thread_.join();
    for (size_t rank = 0; rank < ends_.size(); ++rank) post_.close(rank);
  }
  Result<ncclUniqueId> exchange(int rank, const MakeId& makeId, milliseconds timeout = milliseconds(20000)) {
    Standing standing = standingOf(Launcher::TuttiRun, rank, static_cast<int>(ends_.size()));
    standing.descriptor = ends_[static_cast<size_t>(rank)].get();
    return exchangeByParent(standing, makeId, Deadline::after(timeout));
  }
  void leave(int rank) { ends_[static_cast<size_t>(rank)].reset(); }
  int end(int rank) const { return ends_[static_cast<size_t>(rank)].get(); }

 private:
  void serve() {
    while (!isOver_) {
      std::vector<pollfd> polls;
      for (size_t rank = 0; rank < ends_.size(); ++rank) polls.push_back({post_.descriptor(rank), POLLIN, 0});
      (void)poll(polls.data(), polls.size(), 5);
      for (size_t rank = 0; rank < polls.size(); ++rank) {
        if (polls[rank].revents != 0) post_.serve(rank);
      }
    }
  }
  Post post_;
  std::vector<Descriptor> ends_;
  std::atomic<bool> isOver_{false};
  std::thread thread_;
};

TEST(ByParent, EveryRankGetsTheIdWhoeverComesFirst) {
  for (const bool isRootLate : {false, true}) {
    Served job(5);
    std::vector<std::thread> ranks;
    for (int rank = 1; rank < 5; ++rank) {
      ranks.emplace_back([&job, rank] { EXPECT_TRUE(isId(job.exchange(rank, makeNone), 7)) << rank; });
    }
    if (isRootLate) std::this_thread::sleep_for(milliseconds(50));
    EXPECT_TRUE(isId(job.exchange(0, makerOf(7)), 7));
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(ByParent, ProgramsOneAfterAnotherGetAnIdEach) {
  Served job(2);
  std::thread other([&job] {
    for (int number = 1; number <= 50; ++number) EXPECT_TRUE(isId(job.exchange(1, makeNone), number)) << number;
  });
  for (int number = 1; number <= 50; ++number) {
    EXPECT_TRUE(isId(job.exchange(0, makerOf(number)), number));
    // As a communicator would: the next program of rank 0 begins when the others have used the id.
    std::this_thread::sleep_for(milliseconds(20));
  }
  other.join();
}

TEST(ByParent, TheLatestIdCounts) {
  Served job(2);
  EXPECT_TRUE(isId(job.exchange(0, makerOf(1)), 1));
  EXPECT_TRUE(isId(job.exchange(0, makerOf(2)), 2));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(isId(job.exchange(1, makeNone), 2));
  const Result<ncclUniqueId> again = job.exchange(1, makeNone, milliseconds(50));
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().text().find("rank 0 has not given"), std::string::npos);
}

TEST(ByParent, NobodyWaitsForARankThatHasEnded) {
  Served job(4);
  std::atomic<int> refused{0};
  const auto expectNone = [&](int rank) {
    const Result<ncclUniqueId> id = job.exchange(rank, makeNone);
    ASSERT_FALSE(id);
    EXPECT_NE(id.error().text().find("rank 0 has ended"), std::string::npos) << id.error().text();
    ++refused;
  };
  std::thread early([&] { expectNone(1); });
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(refused, 0) << "it may still come";
  job.leave(0);
  early.join();
  expectNone(2);
  EXPECT_EQ(refused, 2);
}

TEST(ByParent, AnIdOutlivesRank0) {
  Post post(3);
  Result<Descriptor> root = post.open(0);
  Result<Descriptor> prompt = post.open(1);
  Result<Descriptor> late = post.open(2);
  ASSERT_TRUE(root && prompt && late);
  Standing standing = standingOf(Launcher::TuttiRun, 0, 3);
  standing.descriptor = root->get();
  EXPECT_TRUE(isId(exchangeByParent(standing, makerOf(3), Deadline::never()), 3));
  EXPECT_EQ(send(prompt->get(), "G", 1, 0), 1);
  root->reset();
  post.serve(1);
  post.close(0);  // before anybody has read what it sent
  EXPECT_EQ(send(late->get(), "G", 1, 0), 1);
  post.serve(2);
  for (const Descriptor* end : {&*prompt, &*late}) {
    char id[sizeof(ncclUniqueId) + 1];
    EXPECT_EQ(recv(end->get(), id, sizeof id, MSG_DONTWAIT), static_cast<ssize_t>(sizeof(ncclUniqueId)));
  }
  EXPECT_EQ(send(late->get(), "G", 1, 0), 1);
  post.serve(2);
  char more = 0;
  EXPECT_EQ(recv(late->get(), &more, 1, MSG_DONTWAIT), 0) << "another one will not come";
}

/// As they close their sockets, whichever is seen to have ended first; also one whose question is answered by closing its socket here.
TEST(ByParent, WhoLeftFirstIsKnown) {
  Post post(3);
  Result<Descriptor> root = post.open(0);
  Result<Descriptor> asks = post.open(1);
  Result<Descriptor> silent = post.open(2);
  ASSERT_TRUE(root && asks && silent);
  EXPECT_EQ(send(asks->get(), "G", 1, 0), 1);
  post.serve(1);
  root->reset();
  post.serve(0);
  EXPECT_EQ(post.descriptor(1), -1) << "no id will come";
  EXPECT_EQ(post.orderOf(1), 0u) << "its process may go on";
  post.close(1);
  post.close(0);
  post.close(2);
  EXPECT_EQ(post.orderOf(0), 1u);
  EXPECT_EQ(post.orderOf(1), 2u);
  EXPECT_EQ(post.orderOf(2), 3u);
}

TEST(ByParent, AnIdCountsAlsoWhereRank0LeavesSomethingUnread) {
  Post post(2);
  Result<Descriptor> root = post.open(0);
  Result<Descriptor> other = post.open(1);
  ASSERT_TRUE(root && other);
  Standing standing = standingOf(Launcher::TuttiRun, 0, 2);
  standing.descriptor = root->get();
  EXPECT_TRUE(isId(exchangeByParent(standing, makerOf(1), Deadline::never()), 1));
  EXPECT_EQ(send(root->get(), "G", 1, 0), 1);
  post.serve(0);
  post.serve(0);  // it has its own id now, which it will not read
  EXPECT_TRUE(isId(exchangeByParent(standing, makerOf(2), Deadline::never()), 2));
  root->reset();
  post.close(0);
  EXPECT_EQ(send(other->get(), "G", 1, 0), 1);
  post.serve(1);
  ncclUniqueId id{};
  EXPECT_EQ(recv(other->get(), &id, sizeof id, MSG_DONTWAIT), static_cast<ssize_t>(sizeof id));
  EXPECT_TRUE(isId(Result<ncclUniqueId>(id), 2));
}

TEST(ByParent, AParentThatHasGoneIsAnError) {
  Served job(2);
  job.stop();
  EXPECT_FALSE(job.exchange(0, makerOf(1)));
  EXPECT_FALSE(job.exchange(1, makeNone));
}

TEST(ByParent, ADescriptorThatIsNotTheSocketIsToldSo) {
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int descriptor : {null.get(), 999999}) {
    Standing standing = standingOf(Launcher::TuttiRun, 1, 2);
    standing.descriptor = descriptor;
    const Result<ncclUniqueId> id = exchangeByParent(standing, makeNone, Deadline::never());
    ASSERT_FALSE(id);
    EXPECT_NE(id.error().text().find("TUTTI_RUN_FD"), std::string::npos);
  }
}

TEST(ByParent, OddMessagesAreIgnored) {
  Served job(3);
  const std::string junk(500, 'P');
  for (const size_t size : {size_t{1}, size_t{2}, size_t{128}, size_t{129}, size_t{130}, size_t{500}}) {
    EXPECT_EQ(send(job.end(1), junk.data(), size, 0), static_cast<ssize_t>(size));  // also an id that is not rank 0's to give
  }
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_FALSE(job.exchange(2, makeNone, milliseconds(30)));
  EXPECT_TRUE(isId(job.exchange(0, makerOf(4)), 4));
  EXPECT_TRUE(isId(job.exchange(1, makeNone), 4));
}

TEST(ByParent, WhatTheMakerFailsWithComesBack) {
  Served job(2);
  const Result<ncclUniqueId> id = job.exchange(0, [] { return Result<ncclUniqueId>(fail(Code::SystemError, "no network")); });
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().text(), "no network");
}

}  // namespace
}  // namespace tutti::launch::by_parent_test
