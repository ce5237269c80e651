#include "comm/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <set>
#include <thread>
#include <vector>

namespace tutti::comm {
namespace {

UniqueIdBytes newId(Rendezvous& rendezvous) {
  auto id = rendezvous.makeId();
  EXPECT_TRUE(id);
  return id ? *id : UniqueIdBytes{};
}

Result<std::shared_ptr<Meeting>> arrive(Rendezvous& rendezvous, const UniqueIdBytes& id, int32_t ranks, int32_t rank, int32_t minCtas = 1,
                                        int32_t maxCtas = 64) {
  return rendezvous.arrive(id, ranks, Rank(rank), {0, rank, minCtas, maxCtas});
}

/// Asks until everybody has come, as a set-up does.
Result<Meeting::Outcome> wait(const Meeting& meeting, int32_t rank = 0) {
  for (;;) {
    if (auto outcome = meeting.poll(Rank(rank))) return *outcome;
    std::this_thread::yield();
  }
}

TEST(Rendezvous, EveryIdIsNew) {
  Rendezvous rendezvous;
  std::set<UniqueIdBytes> ids;
  std::set<uint64_t> hashes;
  for (int i = 0; i < 100; ++i) {
    const UniqueIdBytes id = newId(rendezvous);
    EXPECT_TRUE(ids.insert(id).second);
    EXPECT_TRUE(hashes.insert(Rendezvous::hashOf(id)).second);
  }
}

TEST(Rendezvous, ARankAloneMeetsAtOnce) {
  Rendezvous rendezvous;
  const auto meeting = arrive(rendezvous, newId(rendezvous), 1, 0);
  ASSERT_TRUE(meeting);
  const auto outcome = wait(**meeting);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->hub->ranks(), 1);
}

TEST(Rendezvous, OneThreadMayBringEverybody) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (int32_t r = 2; r >= 0; --r) {
    const auto meeting = arrive(rendezvous, id, 3, r);
    ASSERT_TRUE(meeting);
    meetings.push_back(*meeting);
  }
  const auto hub = wait(*meetings[0])->hub;
  for (const auto& meeting : meetings) EXPECT_EQ(wait(*meeting)->hub, hub);
}

TEST(Rendezvous, ThreadsMeetAndShareOneHub) {
  Rendezvous rendezvous;
  constexpr int32_t kRanks = 8;
  for (int round = 0; round < 20; ++round) {
    const UniqueIdBytes id = newId(rendezvous);
    std::vector<std::shared_ptr<transport::local::Hub>> hubs(kRanks);
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        const auto meeting = arrive(rendezvous, id, kRanks, r);
        ASSERT_TRUE(meeting);
        const auto outcome = wait(**meeting);
        ASSERT_TRUE(outcome);
        hubs[static_cast<size_t>(r)] = outcome->hub;
      });
    }
    for (auto& t : threads) t.join();
    for (const auto& hub : hubs) EXPECT_EQ(hub, hubs[0]);
    EXPECT_EQ(hubs[0].use_count(), kRanks) << "nobody else holds it: it is freed with the last communicator";
  }
}

TEST(Rendezvous, MeetingsAtDifferentIdsDoNotMix) {
  Rendezvous rendezvous;
  const UniqueIdBytes a = newId(rendezvous);
  const UniqueIdBytes b = newId(rendezvous);
  const auto a0 = arrive(rendezvous, a, 2, 0);
  const auto b0 = arrive(rendezvous, b, 2, 0);
  const auto b1 = arrive(rendezvous, b, 2, 1);
  const auto a1 = arrive(rendezvous, a, 2, 1);
  ASSERT_TRUE(a0 && a1 && b0 && b1);
  EXPECT_EQ(wait(**a0)->hub, wait(**a1)->hub);
  EXPECT_EQ(wait(**b0)->hub, wait(**b1)->hub);
  EXPECT_NE(wait(**a0)->hub, wait(**b0)->hub);
}

TEST(Rendezvous, TheRanksAgreeOnTheirChannels) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  const auto a = arrive(rendezvous, id, 3, 0, 1, 32);
  const auto b = arrive(rendezvous, id, 3, 1, 4, 16);
  const auto c = arrive(rendezvous, id, 3, 2, 2, 20);
  ASSERT_TRUE(a && b && c);
  for (const auto& meeting : {*a, *b, *c}) {
    EXPECT_EQ(wait(*meeting)->minCtas, 4);
    EXPECT_EQ(wait(*meeting)->maxCtas, 16);
  }
}

TEST(Meeting, FormsACommunicatorOfEachColour) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  const Arrival arrivals[] = {{5, 1, 2, 64, 3}, {-9, 0}, {5, -3, 1, 8, 7}, {kNoColor, 0}, {-9, 0}};
  std::shared_ptr<Meeting> meeting;
  for (int32_t r = 4; r >= 0; --r) {
    EXPECT_FALSE(meeting && meeting->poll(Rank(4)));
    meeting = *rendezvous.arrive(id, 5, Rank(r), arrivals[r]);
  }
  const int32_t expectedRank[] = {1, 0, 0, 0, 1};
  for (int32_t r = 0; r < 5; ++r) {
    const auto outcome = wait(*meeting, r);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->hub == nullptr, r == 3);
    EXPECT_EQ(outcome->rank, Rank(expectedRank[r])) << r;
    EXPECT_EQ(outcome->ranks, r == 3 ? 0 : 2);
  }
  EXPECT_EQ(wait(*meeting, 0)->hub, wait(*meeting, 2)->hub);
  EXPECT_EQ(wait(*meeting, 0)->minCtas, 2);
  EXPECT_EQ(wait(*meeting, 2)->maxCtas, 8);
  EXPECT_EQ(wait(*meeting, 0)->cores, 7);
  EXPECT_EQ(wait(*meeting, 2)->cores, 7) << "what an algorithm is chosen by is the same for all";
  meeting->end(Rank(1), error(Code::SystemError, "over"));
  EXPECT_TRUE(wait(*meeting, 4)->hub->latch(Rank(0)).tripped());
  EXPECT_FALSE(wait(*meeting, 0)->hub->latch(Rank(0)).tripped()) << "another colour";
}

TEST(Meeting, NamesWhoIsMissing) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  const auto meeting = *arrive(rendezvous, id, 30, 1);
  EXPECT_EQ(meeting->describeMissing(), "ranks 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 13 more of 30");
  const UniqueIdBytes two = newId(rendezvous);
  EXPECT_EQ((*arrive(rendezvous, two, 2, 0))->describeMissing(), "rank 1 of 2");
}

TEST(Rendezvous, ForeignBytesAreRefused) {
  Rendezvous rendezvous;
  UniqueIdBytes zeros{};
  UniqueIdBytes noise;
  noise.fill(0xa5);
  for (const UniqueIdBytes& id : {zeros, noise}) {
    const auto meeting = arrive(rendezvous, id, 2, 0);
    ASSERT_FALSE(meeting);
    EXPECT_EQ(meeting.error().code(), Code::InvalidArgument);
    EXPECT_NE(meeting.error().text().find("ncclGetUniqueId"), std::string::npos) << meeting.error().text();
  }
}

TEST(Rendezvous, AnIdOfAnotherProcessIsRefusedByName) {
  Rendezvous rendezvous;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const UniqueIdBytes before = newId(rendezvous);
  const pid_t child = fork();
  if (child == 0) {  // a forked child shares the token, but not the number
    Rendezvous own;
    const auto id = own.makeId();
    const bool ok = id && write(pipe[1], id->data(), id->size()) == static_cast<ssize_t>(id->size());
    const bool refused = !own.arrive(before, 1, Rank(0), {});
    _exit(ok && refused ? 0 : 1);
  }
  UniqueIdBytes id{};
  ASSERT_EQ(read(pipe[0], id.data(), id.size()), static_cast<ssize_t>(id.size()));
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the child took an id of its parent for its own";
  close(pipe[0]);
  close(pipe[1]);
  const auto meeting = arrive(rendezvous, id, 1, 0);
  ASSERT_FALSE(meeting);
  EXPECT_EQ(meeting.error().code(), Code::InvalidUsage);
  EXPECT_NE(meeting.error().text().find(std::to_string(child)), std::string::npos) << meeting.error().text();
}

TEST(Rendezvous, ARankThatIsThereAlreadyEndsTheMeeting) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  const auto first = arrive(rendezvous, id, 3, 1);
  ASSERT_TRUE(first);
  auto waiting = std::async(std::launch::async, [&] { return wait(**first); });
  const auto second = arrive(rendezvous, id, 3, 1);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::InvalidUsage);
  EXPECT_NE(second.error().text().find("rank 1"), std::string::npos) << second.error().text();
  const auto outcome = waiting.get();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::InvalidUsage);
  EXPECT_NE(outcome.error().text().find("rank 1 has joined already"), std::string::npos) << "the reason: " << outcome.error().text();
}

TEST(Rendezvous, RanksThatDisagreeAboutTheirNumberAllGetToKnow) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  const auto first = arrive(rendezvous, id, 3, 0);
  ASSERT_TRUE(first);
  auto waiting = std::async(std::launch::async, [&] { return wait(**first); });
  const auto second = arrive(rendezvous, id, 4, 3);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::InvalidArgument);
  EXPECT_NE(second.error().text().find("4 ranks"), std::string::npos) << second.error().text();
  const auto outcome = waiting.get();
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().text().find("4 ranks"), std::string::npos) << outcome.error().text();
}

TEST(Meeting, EndTellsThoseWhoWait) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  const auto meeting = arrive(rendezvous, id, 2, 0);
  ASSERT_TRUE(meeting);
  auto waiting = std::async(std::launch::async, [&] { return wait(**meeting); });
  (*meeting)->end(Rank(0), error(Code::SystemError, "no memory"));
  (*meeting)->end(Rank(0), error(Code::RemoteError, "later"));
  const auto outcome = waiting.get();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().text(), "no memory") << "the first reason counts";
}

TEST(Meeting, EndAfterAllHaveComeFailsTheirCalls) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  const auto a = arrive(rendezvous, id, 2, 0);
  const auto b = arrive(rendezvous, id, 2, 1);
  ASSERT_TRUE(a && b);
  const auto hub = wait(**a)->hub;
  (*b)->end(Rank(1), error(Code::SystemError, "rank 1 found no memory"));
  for (int32_t r = 0; r < 2; ++r) EXPECT_EQ(hub->latch(Rank(r)).status().text(), "rank 1 found no memory");
}

TEST(Rendezvous, AnIdIsGoodOnce) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  const auto ended = arrive(rendezvous, id, 2, 0);
  ASSERT_TRUE(ended);
  (*ended)->end(Rank(0), error(Code::SystemError, "over"));
  rendezvous.forget(id, *ended);
  rendezvous.forget(id, *ended);  // twice is no harm
  const auto late = arrive(rendezvous, id, 2, 1);
  ASSERT_FALSE(late);  // not a meeting that waits for ever
  EXPECT_EQ(late.error().code(), Code::InvalidUsage);

  const UniqueIdBytes served = newId(rendezvous);
  ASSERT_TRUE(arrive(rendezvous, served, 1, 0));
  ASSERT_FALSE(arrive(rendezvous, served, 1, 0));
}

TEST(Rendezvous, RanksThatComeAfterADisagreementAreTold) {
  Rendezvous rendezvous;
  const UniqueIdBytes id = newId(rendezvous);
  ASSERT_TRUE(arrive(rendezvous, id, 3, 0));
  ASSERT_FALSE(arrive(rendezvous, id, 2, 1));
  const auto third = arrive(rendezvous, id, 3, 2);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::InvalidUsage);
}

}  // namespace
}  // namespace tutti::comm
