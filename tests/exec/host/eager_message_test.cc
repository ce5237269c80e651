#include "exec/host/eager_message.h"

#include <gtest/gtest.h>

#include <string>

#include "interleaved.h"

namespace tutti::exec::host::eager_message_test {
namespace {

using observe::FlightKind;

constexpr uint32_t kSlots = 3;

/// Rank 0 sends to rank 1; both have counted a message before, as a work does.
struct Pair {
  explicit Pair(uint64_t slotBytes = kEagerBytes) : planned(2, settingsOf(kSlots, slotBytes)) {
    for (int32_t r = 0; r < 2; ++r) {
      turns.push_back(planned.makeTurn(r));
      flights.emplace_back(64, Rank(r), 0);
      turns.back()->recorder = flights.back().recorder();
      (void)turns.back()->numberMessage(1 - r, r == 1);
    }
  }
  PlannedCall send(const std::string& text) { return planned.call(0, messageShape(text.size(), 1, false), text.data(), nullptr); }
  PlannedCall receive(std::string& text) { return planned.call(1, messageShape(text.size(), 0, true), nullptr, text.data()); }
  bool pass(const PlannedCall& call) {
    Turn& turn = *turns[call.call.receives ? 1 : 0];
    const EagerEnd end = eagerEndOf(*call.plan, turn);
    EXPECT_EQ(end.send != nullptr, !call.call.receives);
    EXPECT_EQ(end.receive != nullptr, call.call.receives);
    return passEagerly(turn, end, call);
  }
  std::vector<observe::FlightEvent> events(size_t rank) const {
    const auto log = observe::FlightLog::attach(flights[rank].bytes());
    return log ? log->read().events : std::vector<observe::FlightEvent>();
  }

  PlannedRanks planned;
  std::vector<std::shared_ptr<Turn>> turns;
  std::vector<observe::FlightMemory> flights;
};

std::string textOf(size_t bytes, int salt) {
  std::string text(bytes, ' ');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i * 7 + static_cast<size_t>(salt)) % 26);
  return text;
}

TEST(EagerMessage, ArrivesWhateverItsLength) {
  Pair pair;
  int salt = 0;
  for (const size_t bytes : {0U, 1U, 8U, 31U, 96U, 97U, 255U, 256U, 257U, 1000U, 4096U, 8U, 300U, 0U})
    for (int again = 0; again < 5; ++again) {
      const std::string sent = textOf(bytes, ++salt);
      std::string received(bytes, '-');
      ASSERT_TRUE(pair.pass(pair.send(sent))) << bytes;
      ASSERT_TRUE(pair.pass(pair.receive(received))) << bytes;
      ASSERT_EQ(received, sent) << bytes;
    }
}

TEST(EagerMessage, WaitsForNobody) {
  Pair pair;
  std::string received(300, '-');
  EXPECT_FALSE(pair.pass(pair.receive(received))) << "nothing has come";
  for (uint32_t i = 0; i < kSlots; ++i) EXPECT_TRUE(pair.pass(pair.send(textOf(300, static_cast<int>(i)))));
  EXPECT_FALSE(pair.pass(pair.send(textOf(300, 9)))) << "no slot is free";
  for (uint32_t i = 0; i < kSlots; ++i) {
    EXPECT_TRUE(pair.pass(pair.receive(received)));
    EXPECT_EQ(received, textOf(300, static_cast<int>(i)));
  }
  EXPECT_FALSE(pair.pass(pair.receive(received))) << "what was not sent does not come";
  EXPECT_TRUE(pair.pass(pair.send(textOf(300, 10))));
  EXPECT_TRUE(pair.pass(pair.receive(received)));
  EXPECT_EQ(received, textOf(300, 10));
}

TEST(EagerMessage, MeetsTheOnesThatOperationsPass) {
  Pair pair;
  for (const size_t bytes : {8U, 200U, 2000U})
    for (const bool isSentEagerly : {true, false}) {
      const std::string sent = textOf(bytes, static_cast<int>(bytes));
      std::string received(bytes, '-');
      Interleaved rest;
      const bool isSent = !isSentEagerly || pair.pass(pair.send(sent));
      ASSERT_TRUE(isSent);
      rest.add(isSentEagerly ? pair.receive(received) : pair.send(sent));
      ASSERT_TRUE(rest.run());
      const bool isReceived = isSentEagerly || pair.pass(pair.receive(received));
      EXPECT_TRUE(isReceived);
      EXPECT_EQ(received, sent);
    }
}

TEST(EagerMessage, LeavesWhatIsNotItsOwn) {
  Pair pair;
  ASSERT_TRUE(pair.pass(pair.send(textOf(8, 1))));
  std::string other(12, '-');
  EXPECT_FALSE(pair.pass(pair.receive(other)));
  EXPECT_EQ(other, std::string(12, '-'));
  std::string right(8, '-');
  EXPECT_TRUE(pair.pass(pair.receive(right)));
  EXPECT_EQ(right, textOf(8, 1));
}

TEST(EagerMessage, SaysWhatAWorkSays) {
  Pair pair;
  std::string received(8, '-');
  EXPECT_FALSE(pair.pass(pair.receive(received)));
  EXPECT_TRUE(pair.events(1).empty()) << "nothing has been done";
  EXPECT_FALSE(pair.planned.hub().member(Rank(1)).lastMessage.find());
  ASSERT_TRUE(pair.pass(pair.send(textOf(8, 1))));
  ASSERT_TRUE(pair.pass(pair.receive(received)));
  for (int32_t r = 0; r < 2; ++r) {
    const auto last = pair.planned.hub().member(Rank(r)).lastMessage.find();
    ASSERT_TRUE(last);
    EXPECT_EQ(last->root, 1 - r);
    EXPECT_EQ(last->receives, r == 1);
    EXPECT_EQ(last->count, 8U);
    EXPECT_EQ(last->sequence, 1U) << "the second of the pair";
    const auto events = pair.events(static_cast<size_t>(r));
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].kind, FlightKind::Finished);
    EXPECT_FALSE(pair.planned.hub().member(Rank(r)).inside.load()) << "it has left the hub";
  }
}

TEST(EagerMessage, IsNoneAfterAFailure) {
  for (const bool checks : {true, false}) {
    Pair pair;
    for (const auto& turn : pair.turns) turn->checks = checks;
    pair.planned.hub().failAll(error(Code::RemoteError, "told by a test"));
    std::string received(8, '-');
    EXPECT_FALSE(pair.pass(pair.send(textOf(8, 1))));
    EXPECT_FALSE(pair.pass(pair.receive(received)));
    EXPECT_FALSE(pair.planned.hub().member(Rank(0)).inside.load());
  }
}

TEST(EagerMessage, TheFirstOneOfADirectionIsCountedByAWork) {
  Pair pair;
  const auto fresh = pair.planned.makeTurn(0);
  const std::string sent = "12345678";
  const PlannedCall call = pair.send(sent);
  const EagerEnd end = eagerEndOf(*call.plan, *fresh);
  EXPECT_FALSE(passEagerly(*fresh, end, call));
  (void)fresh->numberMessage(1, false);
  EXPECT_TRUE(passEagerly(*fresh, end, call));
}

TEST(EagerMessage, WithoutChecksNothingIsCounted) {
  Pair pair;
  std::shared_ptr<Turn> turns[2] = {pair.planned.makeTurn(0), pair.planned.makeTurn(1)};
  const std::string sent = "12345678";
  std::string received(8, '-');
  const PlannedCall calls[2] = {pair.send(sent), pair.receive(received)};
  for (size_t r = 0; r < 2; ++r) {
    turns[r]->checks = false;
    EXPECT_TRUE(passEagerly(*turns[r], eagerEndOf(*calls[r].plan, *turns[r]), calls[r]));
  }
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(turns[0]->sent.empty());
}

TEST(EagerMessage, LongOnesAndCollectivesHaveNoEnd) {
  Pair pair;
  const auto isEager = [&](const PlannedCall& call) { return static_cast<bool>(eagerEndOf(*call.plan, *pair.turns[0])); };
  std::string out(kEagerBytes + 1, '-');
  EXPECT_TRUE(isEager(pair.send(textOf(kEagerBytes, 0))));
  EXPECT_FALSE(isEager(pair.send(textOf(kEagerBytes + 1, 0))));
  EXPECT_FALSE(isEager(pair.receive(out)));
  std::vector<int32_t> in(2), sum(2);
  EXPECT_FALSE(isEager(pair.planned.call(0, shapeOf(Collective::AllReduce, DataType::I32, 2), in.data(), sum.data())));
  Pair narrow(64);  // in slices
  EXPECT_FALSE(static_cast<bool>(eagerEndOf(*narrow.send(textOf(100, 0)).plan, *narrow.turns[0])));
}

}  // namespace
}  // namespace tutti::exec::host::eager_message_test
