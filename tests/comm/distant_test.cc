#include "comm/distant.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>

#include "comm/meeting.h"
#include "comm/news.h"
#include "exec/host/verdict.h"
#include "observe/capture_log.h"
#include "two_hosts.h"

namespace tutti::comm::distant_test {
namespace {

using transport::local::PipeKey;
using transport::local::RecvEnd;
using transport::local::SendEnd;

constexpr uint32_t kSlots = 4;
constexpr uint64_t kSlotBytes = 4096;
const PipeKey kPipe{ChannelId(0), 0, Rank(0), Rank(1)};

void push(SendEnd& end, uint64_t word, uint64_t signature) {
  auto& head = end.head();
  head.signature = signature;
  head.bytes = sizeof word;
  head.lent = 0;
  std::memcpy(head.inlineData, &word, sizeof word);
  end.push(false);
}

uint64_t take(RecvEnd& end) {
  uint64_t word = 0;
  std::memcpy(&word, end.head().inlineData, sizeof word);
  end.release();
  return word;
}

TEST(Distant, HalvesFindEachOtherWhicheverIsAskedForFirst) {
  for (const bool receiverFirst : {true, false}) {
    TwoHosts hosts;
    const auto left = hosts.introduce(0), right = hosts.introduce(1);
    auto early = receiverFirst ? right->pipe(kPipe, kSlots, kSlotBytes) : left->pipe(kPipe, kSlots, kSlotBytes);
    ASSERT_TRUE(early);
    (void)hosts.deliver();
    auto late = receiverFirst ? left->pipe(kPipe, kSlots, kSlotBytes) : right->pipe(kPipe, kSlots, kSlotBytes);
    ASSERT_TRUE(late);
    SendEnd send(receiverFirst ? *late : *early);
    RecvEnd recv(receiverFirst ? *early : *late);
    for (uint64_t i = 0; i < 20; ++i) {
      push(send, i, 1000 + i);
      ASSERT_TRUE(hosts.driveUntil([&] { return recv.ready() && send.ready(sizeof(uint64_t)); }));
      EXPECT_EQ(take(recv), i);
      EXPECT_EQ(right->remote()->lastHeard(Rank(0)), 1000 + i);
    }
  }
}

TEST(Distant, AFailureIsHeardOnTheOtherHostWithItsVerdict) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0), right = hosts.introduce(1);
  const Status cause = error(Code::InvalidUsage, "calls do not match");
  exec::host::conclude(*left, Rank(0), {transport::local::Ending::Mismatch, cause, {}}, {}, 12);
  left->failAll(cause);
  (void)hosts.deliver();
  EXPECT_EQ(right->latch(Rank(1)).status().text(), "calls do not match");
  EXPECT_EQ(right->latch(Rank(1)).code(), Code::InvalidUsage);
  EXPECT_NE(exec::host::verdictJson(*right).find("\"kind\":\"mismatch\""), std::string::npos) << exec::host::verdictJson(*right);
  EXPECT_TRUE(hosts.post.letters.empty()) << "it is not told back";
}

TEST(Distant, WhoIsBlamedForAFailureIsKnownOnTheOtherHost) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0), right = hosts.introduce(1);
  left->blame(Rank(2));
  left->failAll(error(Code::RemoteError, "rank 2 on right is gone"));
  (void)hosts.deliver();
  exec::host::conclude(*right, Rank(1), {transport::local::Ending::Aborted, right->latch(Rank(1)).status(), {}}, {}, 0);
  const std::string json = exec::host::verdictJson(*right);
  EXPECT_NE(json.find(R"("suspects":[{"rank":2,"host":)"), std::string::npos) << json;
}

TEST(Distant, ARankOnAnotherHostIsReachedOverTheNetwork) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0), right = hosts.introduce(1);
  const std::string network(hosts.courier(0).engine().network().name());
  EXPECT_EQ(left->wayTo(Rank(1)).host, "right");
  EXPECT_EQ(left->wayTo(Rank(1)).link, network + " (none open here; bootstrap at ?)");
  auto recv = right->pipe(kPipe, kSlots, kSlotBytes);
  (void)hosts.deliver();
  auto sending = left->pipe(kPipe, kSlots, kSlotBytes);
  ASSERT_TRUE(recv && sending);
  ASSERT_TRUE(hosts.driveUntil([&] { return left->wayTo(Rank(1)).link.find("127.0.0.1:") != std::string::npos; }))
      << left->wayTo(Rank(1)).link;
  EXPECT_EQ(left->wayTo(Rank(1)).link.rfind(network + " 127.0.0.1:", 0), 0U);
  EXPECT_EQ(left->wayTo(Rank(0)).link.rfind("shared memory of ", 0), 0U);
}

TEST(Distant, ARankThatDepartsFromWhatHasFailedSaysWhy) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0), right = hosts.introduce(1);
  left->failAll(error(Code::RemoteError, "rank 0 aborted"), false);  // as one who heard of it from another process of its host
  left->depart(Rank(0), 4);
  (void)hosts.deliver();
  EXPECT_EQ(right->latch(Rank(1)).status().text(), "rank 0 aborted");
  EXPECT_EQ(right->departed(Rank(0)), 4U);
}

/// The receiver asks for the pipe when the sender is on its way out.
TEST(Distant, WhatWasSentBeforeTheDepartureArrives) {
  TwoHosts hosts;
  auto left = hosts.introduce(0);
  const auto right = hosts.introduce(1);
  SendEnd send(*left->pipe(kPipe, kSlots, kSlotBytes));
  push(send, 41, 1);
  push(send, 42, 2);
  EXPECT_FALSE(left->remote()->isSending(Rank(0))) << "nobody has asked for it";
  std::thread leaving([&] {
    left->depart(Rank(0), 0);  // waits for the receiver
    left.reset();
  });
  const auto half = right->pipe(kPipe, kSlots, kSlotBytes);
  ASSERT_TRUE(half);
  RecvEnd recv(*half);
  EXPECT_TRUE(right->remote()->owes(Rank(0)));
  ASSERT_TRUE(hosts.driveUntil([&] { return recv.ready(); }));
  EXPECT_EQ(take(recv), 41U);
  ASSERT_TRUE(hosts.driveUntil([&] { return recv.ready(); }));
  leaving.join();
  EXPECT_EQ(take(recv), 42U);
  (void)hosts.deliver();
  EXPECT_EQ(right->departed(Rank(0)), 0U);
  EXPECT_FALSE(right->remote()->owes(Rank(0))) << "all has come";
}

TEST(Distant, WhoHasSentNothingOwesNothing) {
  TwoHosts hosts;
  auto left = hosts.introduce(0);
  const auto right = hosts.introduce(1);
  left->depart(Rank(0), 0);
  left.reset();
  (void)hosts.deliver();
  ASSERT_TRUE(right->pipe(kPipe, kSlots, kSlotBytes));
  EXPECT_TRUE(right->remote()->owes(Rank(0))) << "nobody knows yet";
  (void)hosts.deliver();
  EXPECT_FALSE(right->remote()->owes(Rank(0)));
}

/// One host knows that all have come to a split, and makes the communicator; the other gives up before it hears of the last of them.
TEST(Distant, ASplitThatOneHostGivesUpFailsForTheOtherThatHasIt) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0), right = hosts.introduce(1);
  const auto there = *Meeting::arrive(right, {}, 3, Rank(1), {});
  const auto company = *Meeting::arrive(right, {}, 3, Rank(2), {});
  (void)hosts.deliver();
  const auto here = *Meeting::arrive(left, {}, 3, Rank(0), {});
  const auto late = hosts.post.takeAll();
  const auto outcome = here->poll();
  ASSERT_TRUE(outcome && *outcome);
  EXPECT_FALSE(there->poll());
  there->end(error(Code::RemoteError, "rank 1 has waited too long"));
  (void)hosts.deliver();
  EXPECT_EQ((*outcome)->hub->latch(Rank(0)).status().text(), "rank 1 has waited too long");
  for (const Letter& letter : late) hosts.courier(letter.to).hear(letter.from, letter.message);
  const auto theirs = there->poll();
  EXPECT_TRUE(theirs && !*theirs) << "it stays given up";
}

/// Like none of its neighbours.
Call callOf(uint64_t sequence) {
  Call call;
  call.count = 100 + sequence;
  call.sequence = sequence;
  return call;
}

/// One-way calls are compared late: all that a rank owes must be there to be compared with.
TEST(Distant, ARankSaysAsManyOfItsCallsAsAnotherMayOwe) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0), right = hosts.introduce(1);
  for (uint64_t i = 0; i < 40; ++i) left->board(Rank(0)).post(callOf(i));
  left->remote()->stands(Rank(0), nullptr, 0);
  (void)hosts.deliver();
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(right->board(Rank(0)).find(i), callOf(i)) << i;
}

/// Two threads say where a rank stands; who looked first may come last.
TEST(Distant, WhatIsOlderThanWhatIsKnownChangesNothing) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0), right = hosts.introduce(1);
  const auto sayOnce = [&](uint64_t from, uint64_t until) {
    for (uint64_t i = from; i < until; ++i) left->board(Rank(0)).post(callOf(i));
    left->remote()->stands(Rank(0), nullptr, 0);
    return hosts.post.takeAll();
  };
  const auto early = sayOnce(0, 10), late = sayOnce(10, 100);
  for (const auto& letters : {late, early})
    for (const Letter& letter : letters)
      if (letter.to == 1) hosts.courier(1).hear(letter.from, letter.message);
  const auto& board = right->board(Rank(0));
  EXPECT_EQ(board.begun(), 100U);
  for (uint64_t i = 40; i < 100; ++i) EXPECT_EQ(board.find(i), callOf(i)) << i;
  Call other = callOf(99);
  ++other.count;
  EXPECT_FALSE(board.hasNothingBut(other)) << "the disagreement is seen";
}

/// By a peer that is out of its mind.
TEST(Distant, CallsThatNoRankMakesAreNotPosted) {
  const auto impossible = {+[](Call& call) { call.sequence = std::numeric_limits<uint64_t>::max(); },
                           +[](Call& call) { call.collective = Collective::SendRecv; },
                           +[](Call& call) { call.collective = static_cast<Collective>(200); },
                           +[](Call& call) { call.type = static_cast<DataType>(200); }};
  for (const auto& spoil : impossible) {
    TwoHosts hosts;
    const auto left = hosts.introduce(0), right = hosts.introduce(1);
    left->board(Rank(0)).post(callOf(0));
    left->remote()->stands(Rank(0), nullptr, 0);
    for (Letter letter : hosts.post.takeAll()) {
      if (letter.to != 1) continue;
      Call call = callOf(0);
      spoil(call);
      const std::vector<std::byte> body = encodeStanding({Rank(0), 0, false, false, {call}, {}});
      ASSERT_GT(letter.message.size(), body.size());
      std::copy(body.begin(), body.end(), letter.message.end() - static_cast<ptrdiff_t>(body.size()));
      hosts.courier(1).hear(letter.from, letter.message);
    }
    EXPECT_EQ(right->board(Rank(0)).endOfLatest(), nullptr);
    left->remote()->stands(Rank(0), nullptr, 0);
    (void)hosts.deliver();
    EXPECT_EQ(right->board(Rank(0)).find(0), callOf(0)) << "what comes after is believed";
  }
}

/// A receiver that has departed wants nothing any more: its sender does not wait for it.
TEST(Distant, NobodyWaitsForAReceiverThatHasDeparted) {
  TwoHosts hosts;
  auto left = hosts.introduce(0);
  const auto right = hosts.introduce(1);
  SendEnd send(*left->pipe(kPipe, kSlots, kSlotBytes));
  push(send, 41, 1);
  right->depart(Rank(1), 0);
  (void)hosts.deliver();
  const auto since = std::chrono::steady_clock::now();
  left->depart(Rank(0), 0);
  left.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::milliseconds(500));
}

/// The longest wait of a call bounds an end as well, for as long as nothing moves: the receiver never asks for the pipe.
TEST(Distant, AnEndWaitsForTheNetworkNoLongerThanACallMay) {
  const observe::play::CaptureLog log;
  TwoHosts hosts;
  auto left = hosts.introduce(0);
  const auto right = hosts.introduce(1);
  left->waitAtMost(std::chrono::milliseconds(200));
  SendEnd send(*left->pipe(kPipe, kSlots, kSlotBytes));
  push(send, 41, 1);
  const auto since = std::chrono::steady_clock::now();
  left->depart(Rank(0), 0);
  left.reset();
  const auto waited = std::chrono::steady_clock::now() - since;
  EXPECT_GE(waited, std::chrono::milliseconds(200));
  EXPECT_LT(waited, std::chrono::seconds(2));
  EXPECT_EQ(log.count("sent to rank 1 has been taken"), 1U) << log.text();
}

/// The place where a receiver listens never reaches the sender, which gives up: so does the receiver.
TEST(Distant, WhoWaitsForWhatWasGivenUpHearsOfIt) {
  TwoHosts hosts;
  auto left = hosts.introduce(0);
  const auto right = hosts.introduce(1);
  left->waitAtMost(std::chrono::milliseconds(100));
  ASSERT_TRUE(right->pipe(kPipe, kSlots, kSlotBytes));
  EXPECT_FALSE(hosts.post.takeAll().empty());
  SendEnd send(*left->pipe(kPipe, kSlots, kSlotBytes));
  push(send, 41, 1);
  left->depart(Rank(0), 0);
  left.reset();
  (void)hosts.deliver();
  EXPECT_EQ(right->departed(Rank(0)), 0U);
  EXPECT_FALSE(right->remote()->owes(Rank(0))) << "nothing will come";
}

/// More than sockets and receiver hold is taken bit by bit, each in less time than is allowed, all in more.
TEST(Distant, AnEndThatMovesOnMayLast) {
  constexpr uint32_t kMessages = 48;
  constexpr uint64_t kBytes = 1 << 20;
  constexpr std::chrono::milliseconds kAllowed(1000), kBetween(50);
  const observe::play::CaptureLog log;
  TwoHosts hosts;
  auto left = hosts.introduce(0);
  const auto right = hosts.introduce(1);
  left->waitAtMost(kAllowed);
  SendEnd send(*left->pipe(kPipe, kMessages, kBytes));
  for (uint64_t i = 0; i < kMessages; ++i) {
    auto& head = send.head();
    head.signature = i + 1;
    head.bytes = kBytes;
    head.lent = 0;
    std::memcpy(send.staging(kBytes), &i, sizeof i);
    send.push(false);
  }
  const auto half = right->pipe(kPipe, 2, kBytes);
  ASSERT_TRUE(half);
  RecvEnd recv(*half);
  std::chrono::nanoseconds waited{0};
  std::thread leaving([&] {
    const auto since = std::chrono::steady_clock::now();
    left->depart(Rank(0), 0);
    waited = std::chrono::steady_clock::now() - since;
    left.reset();
  });
  uint64_t received = 0;
  for (uint64_t i = 0; i < kMessages; ++i) {
    if (!hosts.driveUntil([&] { return recv.ready(); })) break;
    received = i + 1;
    uint64_t word = 0;
    std::memcpy(&word, recv.payload(), sizeof word);
    EXPECT_EQ(word, i);
    recv.release();
    std::this_thread::sleep_for(kBetween);
  }
  leaving.join();
  EXPECT_EQ(received, kMessages);
  EXPECT_GT(waited, kAllowed) << "sockets and receiver held it all";
  EXPECT_EQ(log.text(), "");
}

}  // namespace
}  // namespace tutti::comm::distant_test
