#include "comm/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <future>
#include <limits>
#include <thread>

#include "core/allocations.h"
#include "joined_ranks.h"

namespace tutti::comm::group_test {
namespace {

using exec::host::Stream;
using Ints = std::vector<int32_t>;

std::shared_ptr<Stream> makeStream() {
  auto stream = std::make_shared<Stream>();
  EXPECT_TRUE(stream->start().ok());
  return stream;
}

TEST(Group, EndWithoutStartIsAnError) {
  Group group;
  const Status status = group.end();
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  EXPECT_NE(status.text().find("ncclGroupStart"), std::string::npos) << status.text();
  EXPECT_FALSE(group.isOpen());
}

TEST(Group, AnEmptyGroupIsNoWork) {
  Group group;
  group.start();
  group.start();
  EXPECT_TRUE(group.end().ok());
  EXPECT_TRUE(group.isOpen());
  EXPECT_TRUE(group.end().ok());
  EXPECT_FALSE(group.isOpen());
}

TEST(Group, OneThreadCallsForSeveralRanks) {
  JoinedRanks ranks(3);
  Ints in[3] = {Ints(100, 1), Ints(100, 10), Ints(100, 100)};
  Ints out[3] = {Ints(100), Ints(100), Ints(100)};
  Group group;
  group.start();
  for (size_t r = 0; r < 3; ++r) ASSERT_TRUE(call(group, ranks[r], allReduce(in[r], out[r])).ok());
  EXPECT_EQ(out[0], Ints(100)) << "nothing runs before the end";
  EXPECT_TRUE(group.end().ok());
  for (const Ints& result : out) EXPECT_EQ(result, Ints(100, 111));
}

TEST(Group, OnlyTheOutermostEndLaunches) {
  JoinedRanks ranks(1);
  const Ints in(4, 7);
  Ints out(4);
  Group group;
  group.start();
  group.start();
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out)).ok());
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(out, Ints(4));
  group.start();
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(out, Ints(4));
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(out, in);
}

TEST(Group, OutsideAGroupACallRunsAtOnce) {
  JoinedRanks ranks(1);
  const Ints in(4, 7);
  Ints out(4);
  Group group;
  EXPECT_TRUE(call(group, ranks[0], allReduce(in, out)).ok());
  EXPECT_EQ(out, in);
}

TEST(Group, AnErrorInBetweenLaunchesNothingAndComesBackOnce) {
  JoinedRanks ranks(1);
  const Ints in(4, 7);
  Ints out(4);
  Group group;
  group.start();
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out)).ok());
  CallRequest wrong = allReduce(in, out);
  wrong.type = 99;
  EXPECT_EQ(call(group, ranks[0], wrong).code(), Code::InvalidArgument);
  group.fail(error(Code::InvalidUsage, "a second one"));
  EXPECT_TRUE(group.hasFailed());
  const Status status = group.end();
  EXPECT_EQ(status.code(), Code::InvalidArgument) << "the first error";
  EXPECT_EQ(out, Ints(4)) << "nothing of the group was launched";
  EXPECT_FALSE(group.hasFailed());

  group.start();  // the communicator and the group go on
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out)).ok());
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(out, in);
}

TEST(Group, AFailureOutsideAGroupIsNotRemembered) {
  Group group;
  group.fail(error(Code::InvalidArgument, "a call of its own"));
  group.start();
  EXPECT_TRUE(group.end().ok());
}

TEST(Group, SimulateForgetsTheCalls) {
  JoinedRanks ranks(1);
  const Ints in(4, 7);
  Ints out(4);
  Group group;
  group.start();
  group.start();
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out)).ok());
  std::optional<float> us;
  EXPECT_TRUE(group.simulate(us).ok());
  EXPECT_TRUE(group.isOpen());
  EXPECT_FALSE(us) << "an inner group";
  EXPECT_TRUE(group.simulate(us).ok());
  ASSERT_TRUE(us);
  EXPECT_GT(*us, 0);
  EXPECT_FALSE(group.isOpen());
  group.start();
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(out, Ints(4));
}

TEST(Group, ACommunicatorDestroyedMeanwhileIsNoticed) {
  JoinedRanks ranks(2);
  const Ints in(4, 7);
  Ints out(4);
  Group group;
  group.start();
  for (size_t r = 0; r < 2; ++r) ASSERT_TRUE(call(group, ranks[r], allReduce(in, out)).ok());
  ASSERT_TRUE(endComm(ranks[1]).ok());
  const Status status = group.end();
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  EXPECT_NE(status.text().find("destroyed"), std::string::npos) << status.text();
  EXPECT_EQ(out, Ints(4));
}

TEST(Group, TheOnlyCommunicatorDestroyedMeanwhileIsNoticed) {
  JoinedRanks ranks(1);
  const Ints in(4, 1);
  Ints out(4);
  Group group;
  group.start();
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out)).ok());
  ASSERT_TRUE(endComm(ranks[0], true).ok());
  EXPECT_FALSE(group.end().ok());
  EXPECT_EQ(out, Ints(4));
}

TEST(Group, AStreamDestroyedMeanwhileIsNoticed) {
  JoinedRanks ranks(1);
  const Ints in(4, 7);
  Ints out(4);
  auto stream = makeStream();
  Group group;
  group.start();
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out), stream).ok());
  stream->stop();
  const Status status = group.end();
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  EXPECT_NE(status.text().find("stream"), std::string::npos) << status.text();
  EXPECT_EQ(out, Ints(4));
  EXPECT_TRUE(ranks.use(0)->finalize().ok()) << "nothing is left to wait for";
}

TEST(Group, EndingsComeAfterTheCalls) {
  JoinedRanks ranks(1);
  const Ints in(4, 7);
  Ints out(4);
  bool ended = false;
  Group group;
  group.start();
  ASSERT_TRUE(group
                  .addEnding([&] {
                    ended = true;
                    EXPECT_EQ(out, in);
                    return error(Code::SystemError, "from the ending");
                  })
                  .ok());
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out)).ok());
  EXPECT_FALSE(ended);
  EXPECT_EQ(group.end().text(), "from the ending");
  EXPECT_TRUE(ended);
  EXPECT_TRUE(group.addEnding([] { return Status(); }).ok()) << "outside a group at once";
}

TEST(Group, MessagesOfAllPairsInAnyOrder) {
  JoinedRanks ranks(3);
  std::vector<std::vector<Ints>> sent(3, std::vector<Ints>(3));
  std::vector<std::vector<Ints>> received(3, std::vector<Ints>(3, Ints(5000)));
  Group group;
  group.start();
  for (int32_t r = 0; r < 3; ++r) {
    for (int32_t peer = 0; peer < 3; ++peer) {
      Ints& out = sent[static_cast<size_t>(r)][static_cast<size_t>(peer)];
      out.assign(5000, 10 * r + peer);
      ASSERT_TRUE(call(group, ranks[static_cast<size_t>(r)], message(out, peer, false)).ok());
    }
    for (int32_t peer = 2; peer >= 0; --peer)
      ASSERT_TRUE(
          call(group, ranks[static_cast<size_t>(r)], message(received[static_cast<size_t>(r)][static_cast<size_t>(peer)], peer, true))
              .ok());
  }
  EXPECT_TRUE(group.end().ok());
  for (size_t r = 0; r < 3; ++r)
    for (size_t peer = 0; peer < 3; ++peer) EXPECT_EQ(received[r][peer], sent[peer][r]);
}

/// What one thread calls for a rank of two, group after group: as many messages each way as `lengths` has, and a collective between them.
void exchange(Group& group, ncclComm* rank, int32_t self, const std::vector<size_t>& lengths, int32_t salt) {
  std::vector<Ints> sent;
  std::vector<Ints> received;
  for (const size_t length : lengths) {
    sent.emplace_back(length, 1000 * self + salt + static_cast<int32_t>(sent.size()));
    received.emplace_back(length);
  }
  const Ints in(8, salt);
  Ints sum(8);
  group.start();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const bool receivesFirst = i % 2 == 0;
    for (const bool receives : {receivesFirst, !receivesFirst})
      ASSERT_TRUE(call(group, rank, message(receives ? received[i] : sent[i], 1 - self, receives)).ok());
    const Status summed = i == 0 ? call(group, rank, allReduce(in, sum)) : Status();
    ASSERT_TRUE(summed.ok());
  }
  ASSERT_TRUE(group.end().ok());
  for (size_t i = 0; i < lengths.size(); ++i)
    ASSERT_EQ(received[i], Ints(lengths[i], 1000 * (1 - self) + salt + static_cast<int32_t>(i))) << "message " << i;
  ASSERT_EQ(sum, Ints(8, 2 * salt));
}

TEST(Group, ManyOfOneRankOneAfterTheOther) {
  JoinedRanks ranks(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&ranks, r] {
      Group group;
      int32_t salt = 0;
      const Ints in(3, 1);
      Ints out(3);
      for (const auto& lengths : {std::vector<size_t>{5}, {1, 2, 3, 4}, {5}, {70000, 3, 70000}, {2, 1}, {2, 1}}) {
        ASSERT_NO_FATAL_FAILURE(exchange(group, ranks[r], static_cast<int32_t>(r), lengths, ++salt));
        ASSERT_TRUE(call(group, ranks[r], allReduce(in, out)).ok()) << "a lone one between them";
        ASSERT_EQ(out, Ints(3, 2));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// What 20 groups of each of two ranks allocate, after as many that do not count. `calls` makes those of one group.
template <class Calls>
uint64_t allocationsOf(const Calls& calls) {
  JoinedRanks ranks(2);
  std::barrier together(2);
  uint64_t before = 0;
  uint64_t after = 0;
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Group group;
      std::array<Ints, 2> buffers = {Ints(2000, r), Ints(2000)};
      const auto meet = [&](uint64_t& count) {
        together.arrive_and_wait();
        if (r == 0) count = allocations.load();
        together.arrive_and_wait();
      };
      for (int i = 0; i < 40; ++i) {
        if (i == 20) meet(before);
        group.start();
        calls(group, ranks[static_cast<size_t>(r)], r, buffers);
        EXPECT_TRUE(group.end().ok());
      }
      meet(after);
    });
  for (std::thread& thread : threads) thread.join();
  return after - before;
}

TEST(Group, GroupsThatComeAgainAllocateNothing) {
  const auto exchangeSome = [](size_t length) {
    return [length](Group& group, ncclComm* rank, int32_t self, std::array<Ints, 2>& buffers) {
      buffers[0].resize(length);
      buffers[1].resize(length);
      EXPECT_TRUE(call(group, rank, message(buffers[0], 1 - self, false)).ok());
      EXPECT_TRUE(call(group, rank, message(buffers[1], 1 - self, true)).ok());
    };
  };
  // Who waits for a millisecond says so, which may take memory: not in every one of several tries.
  const auto leastOf = [&](size_t length) {
    uint64_t least = allocationsOf(exchangeSome(length));
    for (int tries = 1; tries < 5 && least > 0; ++tries) least = std::min(least, allocationsOf(exchangeSome(length)));
    return least;
  };
  EXPECT_LT(leastOf(4), 20U) << "short ones: one that has to wait for the first time makes room for its work";
  EXPECT_EQ(leastOf(2000), 0U) << "those that take a work";
}

// Of them no calls are made, however many there are.
TEST(Group, MessagesLikeEarlierOnesAreOnlyNoted) {
  for (const int messages : {1, 3, 70}) {
    std::atomic<int> noted{0};
    const auto exchangeAgain = [&](Group& group, ncclComm* rank, int32_t self, std::array<Ints, 2>& buffers) {
      buffers[1].assign(4, -1);
      buffers[0].assign(4, self);
      for (const bool receives : {false, true})
        for (int i = 0; i < messages; ++i) {
          const CallRequest request = message(buffers[receives ? 1 : 0], 1 - self, receives);
          const bool isNoted = group.addAgain(rank, *rank->comm.load(), request);
          if (isNoted) ++noted;
          if (!isNoted) {
            EXPECT_TRUE(call(group, rank, request).ok());
          }
        }
    };
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (int tries = 0; tries < 5 && least > 0; ++tries) {
      noted = 0;
      least = std::min(least, allocationsOf(exchangeAgain));
      EXPECT_EQ(noted, 2 * 2 * (messages * 40 - 1)) << "all but the first, each way on each of two ranks";
    }
    if (messages < 64) {
      EXPECT_LT(least, 20U) << messages << " messages";
    }
  }
}

// In which nothing is kept.
TEST(Group, LargeGroups) {
  JoinedRanks ranks(2);
  for (const size_t messages : {Communicator::kMostKept / 2, Communicator::kMostKept / 2 + 1, Communicator::kMostKept + 1, size_t{3}}) {
    std::vector<std::vector<Ints>> in(2);
    std::vector<std::vector<Ints>> out(2, std::vector<Ints>(messages, Ints(3)));
    Group group;
    group.start();
    for (int32_t r = 0; r < 2; ++r)
      for (size_t i = 0; i < messages; ++i) {
        const auto self = static_cast<size_t>(r);
        in[self].emplace_back(3, 1000 * r + static_cast<int32_t>(i));
        ASSERT_TRUE(call(group, ranks[self], message(in[self].back(), 1 - r, false)).ok());
        ASSERT_TRUE(call(group, ranks[self], message(out[self][i], 1 - r, true)).ok());
      }
    ASSERT_TRUE(group.end().ok());
    EXPECT_EQ(out[0], in[1]);
    EXPECT_EQ(out[1], in[0]);
  }
}

TEST(Group, AMessageToOneselfNeedsBothHalves) {
  JoinedRanks ranks(1);
  Ints a(4, 1);
  Ints b(4);
  Ints longer(5);
  Group group;
  EXPECT_EQ(call(group, ranks[0], message(a, 0, false)).code(), Code::InvalidUsage) << "alone it could never complete";
  group.start();
  ASSERT_TRUE(call(group, ranks[0], message(a, 0, false)).ok());
  ASSERT_TRUE(call(group, ranks[0], message(longer, 0, true)).ok());
  const Status unequal = group.end();
  EXPECT_EQ(unequal.code(), Code::InvalidUsage);
  EXPECT_NE(unequal.text().find("16 bytes"), std::string::npos) << unequal.text();
  group.start();
  ASSERT_TRUE(call(group, ranks[0], message(b, 0, true)).ok());
  ASSERT_TRUE(call(group, ranks[0], message(a, 0, false)).ok());
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(b, a);
}

TEST(Group, CallsOnStreamsRunThere) {
  JoinedRanks ranks(2);
  auto first = makeStream();
  auto second = makeStream();
  const Ints in(1000, 3);
  Ints out[2] = {Ints(1000), Ints(1000)};
  std::promise<void> gate;
  first->push([&] { gate.get_future().wait(); });
  Group group;
  group.start();
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out[0]), first).ok());
  ASSERT_TRUE(call(group, ranks[1], allReduce(in, out[1]), second).ok());
  EXPECT_TRUE(group.end().ok()) << "does not wait";
  EXPECT_EQ(out[0], Ints(1000));
  gate.set_value();
  first->synchronize();
  second->synchronize();
  EXPECT_EQ(out[0], Ints(1000, 6));
  EXPECT_EQ(out[1], Ints(1000, 6));
}

TEST(Group, WithANullStreamItIsCompleteOnReturn) {
  JoinedRanks ranks(1);
  auto stream = makeStream();
  const Ints in(10, 3);
  Ints a(10);
  Ints b(10);
  std::promise<void> gate;
  stream->push([&] { gate.get_future().wait(); });
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.set_value();
  });
  Group group;
  group.start();
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, a), stream).ok());
  ASSERT_TRUE(call(group, ranks[0], allReduce(a, b)).ok());
  EXPECT_TRUE(group.end().ok());
  EXPECT_EQ(b, in);
  opener.join();
  stream->synchronize();
}

TEST(Group, JoinsAndCallsOfTwoThreads) {
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  ncclComm* handles[3] = {};
  Ints out[3] = {Ints(50), Ints(50), Ints(50)};
  const Ints in(50, 5);
  const auto bring = [&](std::vector<int32_t> mine) {
    Group group;
    group.start();
    for (const int32_t r : mine) ASSERT_TRUE(group.add(joinRequest(*id, 3, r, &handles[r])).ok());
    ASSERT_TRUE(group.end().ok());
    group.start();
    for (const int32_t r : mine) ASSERT_TRUE(call(group, handles[r], allReduce(in, out[r])).ok());
    ASSERT_TRUE(group.end().ok());
  };
  std::thread other(bring, std::vector<int32_t>{2, 0});
  bring({1});
  other.join();
  for (const Ints& result : out) EXPECT_EQ(result, Ints(50, 15));
  for (ncclComm* handle : handles) EXPECT_TRUE(endComm(handle).ok());
}

/// A group that joins rank 0 of `id` and something that cannot be joined.
Status joinInVain(const UniqueIdBytes& id, int32_t ranks) {
  ncclComm* handles[2] = {};
  UniqueIdBytes foreign = id;
  foreign[0] ^= 1;
  Group group;
  group.start();
  EXPECT_TRUE(group.add(joinRequest(id, ranks, 0, &handles[0])).ok());
  EXPECT_TRUE(group.add(joinRequest(foreign, 2, 0, &handles[1])).ok());
  Status status = group.end();
  EXPECT_EQ(handles[0], nullptr);
  EXPECT_EQ(handles[1], nullptr);
  return status;
}

std::shared_ptr<Encounter> join(const UniqueIdBytes& id, int32_t ranks, int32_t rank) {
  return process().foundations.join(process().bootstrap, {&id, 1}, ranks, Rank(rank), {0, rank});
}

TEST(Group, AJoinThatFailsLeavesNoRankWaiting) {
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  const size_t before = process().handles.live();
  const auto other = join(*id, 3, 1);
  const Status status = joinInVain(*id, 3);
  EXPECT_EQ(status.code(), Code::InvalidArgument);
  EXPECT_NE(status.text().find("unique id"), std::string::npos) << status.text();
  const auto outcome = other->poll();
  ASSERT_TRUE(outcome && !*outcome) << "everybody knows before the call returns";
  EXPECT_NE(outcome->error().text().find("ncclGetUniqueId"), std::string::npos) << "the reason: " << outcome->error().text();
  EXPECT_EQ(process().handles.live(), before) << "no communicator is left behind";
}

TEST(Group, AJoinThatFailsAfterAllHaveComeFailsTheirCalls) {
  const auto id = process().bootstrap.makeId();
  ASSERT_TRUE(id);
  const auto other = join(*id, 2, 1);
  EXPECT_FALSE(joinInVain(*id, 2).ok());
  const auto outcome = other->poll();
  ASSERT_TRUE(outcome);
  if (*outcome) {  // it may believe in the communicator, but not wait for the rank that is not there
    EXPECT_TRUE((*outcome)->hub->latch(Rank(1)).tripped());
  }
}

TEST(Group, ALateErrorOfTheGroupUndoesItsJoins) {
  const auto a = process().bootstrap.makeId();
  const auto b = process().bootstrap.makeId();
  ASSERT_TRUE(a && b);
  const size_t before = process().handles.live();
  ncclComm* handles[2] = {};
  Group group;
  group.start();
  ASSERT_TRUE(group.add(joinRequest(*a, 1, 0, &handles[0])).ok());
  UniqueIdBytes foreign = *b;
  foreign[0] ^= 1;
  ASSERT_TRUE(group.add(joinRequest(foreign, 1, 0, &handles[1])).ok());
  EXPECT_FALSE(group.end().ok());
  EXPECT_EQ(handles[0], nullptr);
  EXPECT_EQ(process().handles.live(), before);
}

}  // namespace
}  // namespace tutti::comm::group_test
