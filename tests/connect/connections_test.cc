#include "connect/connections.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace tutti::connect::connections_test {
namespace {

using transport::local::CellHead;
using transport::local::Hub;
using transport::local::RecvEnd;
using transport::local::SendEnd;
using transport::local::WindowView;

constexpr PipeSize kSize{2, 64};
constexpr ChannelId kChannel{0};

void push(SendEnd& end, uint64_t word) {
  ASSERT_TRUE(end.ready(sizeof word));
  end.head().lent = 0;
  end.head().bytes = sizeof word;
  std::memcpy(end.head().inlineData, &word, sizeof word);
  end.push(false);
}

/// What waits at the end, taken from it; 0 when nothing does.
uint64_t take(RecvEnd& end) {
  if (!end.ready()) return 0;
  uint64_t word = 0;
  std::memcpy(&word, end.payload(), sizeof word);
  end.release();
  return word;
}

TEST(Connections, WhatOneRankSendsTheOtherReceives) {
  const auto hubOwner = *Hub::make(2);
  Hub& hub = *hubOwner;
  Connections left(hub, Rank(0)), right(hub, Rank(1));
  const auto there = left.sendEnd(kChannel, 0, Rank(1), kSize);
  const auto here = right.recvEnd(kChannel, 0, Rank(0), kSize);
  const auto back = right.sendEnd(kChannel, 0, Rank(0), kSize);
  const auto home = left.recvEnd(kChannel, 0, Rank(1), kSize);
  ASSERT_TRUE(there && here && back && home);
  push(**there, 11);
  push(**back, 22);
  EXPECT_EQ(take(**here), 11U);
  EXPECT_EQ(take(**home), 22U);
  EXPECT_EQ(take(**here), 0U) << "each direction is a pipe of its own";
}

TEST(Connections, ARankSendsToItself) {
  const auto hubOwner = *Hub::make(1);
  Hub& hub = *hubOwner;
  Connections alone(hub, Rank(0));
  const auto there = alone.sendEnd(kChannel, 0, Rank(0), kSize);
  const auto here = alone.recvEnd(kChannel, 0, Rank(0), kSize);
  ASSERT_TRUE(there && here);
  push(**there, 5);
  EXPECT_EQ(take(**here), 5U);
}

TEST(Connections, AnEndIsOpenedOnceAndStaysWhereItIs) {
  constexpr int32_t kRanks = 40;
  const auto hubOwner = *Hub::make(kRanks);
  Hub& hub = *hubOwner;
  Connections mine(hub, Rank(0));
  SendEnd* const send = *mine.sendEnd(kChannel, 0, Rank(1), kSize);
  RecvEnd* const recv = *mine.recvEnd(kChannel, 0, Rank(1), kSize);
  push(*send, 1);
  for (int32_t peer = 1; peer < kRanks; ++peer)
    for (int32_t channel = 0; channel < 4; ++channel) {
      ASSERT_TRUE(mine.sendEnd(ChannelId(channel), 0, Rank(peer), kSize));
      ASSERT_TRUE(mine.recvEnd(ChannelId(channel), 0, Rank(peer), kSize));
    }
  EXPECT_EQ(*mine.sendEnd(kChannel, 0, Rank(1), kSize), send);
  EXPECT_EQ(*mine.recvEnd(kChannel, 0, Rank(1), kSize), recv);
  EXPECT_EQ(send->sent(), 1U) << "the cursor of the first opening";
}

TEST(Connections, ChannelPortAndPeerTellEndsApart) {
  const auto hubOwner = *Hub::make(3);
  Hub& hub = *hubOwner;
  Connections sender(hub, Rank(0)), near(hub, Rank(1)), far(hub, Rank(2));
  struct Key {
    ChannelId channel;
    uint8_t port;
    Rank peer;
  };
  const Key keys[] = {{kChannel, 0, Rank(1)}, {ChannelId(1), 0, Rank(1)}, {kChannel, 1, Rank(1)}, {kChannel, 0, Rank(2)}};
  std::set<SendEnd*> sends;
  uint64_t word = 100;
  for (const Key& key : keys) {
    SendEnd* const end = *sender.sendEnd(key.channel, key.port, key.peer, kSize);
    sends.insert(end);
    push(*end, word++);
  }
  EXPECT_EQ(sends.size(), std::size(keys));
  word = 100;
  for (const Key& key : keys) {
    Connections& receiver = key.peer == Rank(1) ? near : far;
    EXPECT_EQ(take(**receiver.recvEnd(key.channel, key.port, Rank(0), kSize)), word++);
  }
}

TEST(Connections, BothSidesSeeOneWindowAndItsViewStays) {
  constexpr int32_t kRanks = 33;
  const auto hubOwner = *Hub::make(kRanks);
  Hub& hub = *hubOwner;
  Connections owner(hub, Rank(0)), peer(hub, Rank(1));
  const auto own = owner.window(Rank(0), 256);
  const auto seen = peer.window(Rank(0), 256);
  ASSERT_TRUE(own && seen);
  EXPECT_EQ((*own)->heads, (*seen)->heads);
  (*seen)->payload(1, Rank(1), 256)[255] = std::byte{7};
  EXPECT_EQ((*own)->payload(1, Rank(1), 256)[255], std::byte{7});
  std::set<const CellHead*> heads;
  for (int32_t r = 0; r < kRanks; ++r) heads.insert((*owner.window(Rank(r), 256))->heads);
  EXPECT_EQ(heads.size(), static_cast<size_t>(kRanks));
  EXPECT_EQ(*owner.window(Rank(0), 256), *own);
}

TEST(Connections, AThirdRankReadsWhatTwoOthersPass) {
  const auto hub = *Hub::make(3);
  Connections zero(*hub, Rank(0));
  Connections one(*hub, Rank(1));
  Connections two(*hub, Rank(2));
  const PipeSize size{2, 1024};
  const auto lead = two.lead(ChannelId(0), 7, Rank(0), Rank(1), size);  // before those
  ASSERT_TRUE(lead);
  SendEnd* const send = *zero.sendEnd(ChannelId(0), 7, Rank(1), size);
  RecvEnd* const receive = *one.recvEnd(ChannelId(0), 7, Rank(0), size);
  for (uint64_t message = 0; message < 5; ++message) {
    std::byte* const space = send->staging(1000);
    space[999] = std::byte(message + 1);
    send->head().bytes = 1000;
    send->head().lent = 0;
    send->push(false);
    EXPECT_EQ((*lead)->staging(message, 1000)[999], std::byte(message + 1));
    EXPECT_EQ(receive->payload()[999], std::byte(message + 1));
    receive->release();
  }
  EXPECT_EQ(*two.lead(ChannelId(0), 7, Rank(0), Rank(1), size), *lead) << "it keeps its address";
  EXPECT_NE(*two.lead(ChannelId(0), 8, Rank(0), Rank(1), size), *lead);
}

TEST(Connections, WhatCannotBeOpenedIsAnErrorAndCanBeTriedAgain) {
  const auto hubOwner = *Hub::make(2);
  Hub& hub = *hubOwner;
  Connections mine(hub, Rank(0));
  const PipeSize huge{4, UINT64_MAX / 8};
  const auto send = mine.sendEnd(kChannel, 0, Rank(1), huge);
  const auto recv = mine.recvEnd(kChannel, 0, Rank(1), huge);
  const auto window = mine.window(Rank(1), UINT64_MAX / 8);
  ASSERT_FALSE(send || recv || window);
  EXPECT_FALSE(send.error().text().empty());
  EXPECT_TRUE(mine.sendEnd(kChannel, 0, Rank(1), kSize));
  EXPECT_TRUE(mine.recvEnd(kChannel, 0, Rank(1), kSize));
  EXPECT_TRUE(mine.window(Rank(1), 64));
}

}  // namespace
}  // namespace tutti::connect::connections_test
