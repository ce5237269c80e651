// Which launches go to the kernel of lone messages, and what it is told.
#include "exec/cuda/lone_message.h"

#include <gtest/gtest.h>

#include "exec/record/catalog.h"

namespace tutti::exec::cuda::lone_message_test {
namespace {

Work message(uint64_t bytes, uint8_t peer, bool sends, int32_t channels = 1) {
  Work work;
  work.geometry = algo::makeGeometry(algo::Division::Shares, bytes / 4, 1, DataType::F32, channels, 1 << 20);
  work.algorithm = placeAmong<algo::Message>(algo::AllAlgorithms{});
  work.root = peer;
  work.firstLane = sends ? 0 : 1;
  return work;
}

Launch launchOf(std::initializer_list<Work> works) {
  Launch launch;
  launch.comm.ranks = 4;
  for (const Work& work : works) launch.work[launch.works++] = work;
  return launch;
}

TEST(LoneMessage, IsEveryFewMessagesAndNothingElse) {
  EXPECT_FALSE(areLoneMessages(launchOf({}))) << "nothing to do";
  EXPECT_TRUE(areLoneMessages(launchOf({message(8, 1, true)})));
  EXPECT_TRUE(areLoneMessages(launchOf({message(8, 1, true), message(0, 3, false)})));
  Work broadcast = message(8, 1, true);
  broadcast.algorithm = placeAmong<algo::ChainBroadcast>(algo::AllAlgorithms{});
  EXPECT_FALSE(areLoneMessages(launchOf({message(8, 1, true), broadcast})));
  Launch many;
  many.comm.ranks = 4;
  for (; many.works < kMostLoneMessages; ++many.works) many.work[many.works] = message(8, 1, true);
  EXPECT_TRUE(areLoneMessages(many));
  many.work[many.works++] = message(8, 1, true);
  EXPECT_FALSE(areLoneMessages(many)) << "more than it holds";
  Launch large = launchOf({message(8, 1, true)});
  large.comm.ranks = kMaxLocalRanks + 1;
  EXPECT_FALSE(areLoneMessages(large)) << "a work has no room for the peer";
}

TEST(LoneMessage, KeepsWhatTheWorkSays) {
  Work sent = message(4000, 2, true, 3);
  Work received = message(8, 3, false);
  std::byte memory[8];
  sent.in = memory;
  received.out = memory + 4;
  received.firstBlock = 3;
  const LoneMessages messages = makeMessages(launchOf({sent, received}));
  ASSERT_EQ(messages.count, 2);
  EXPECT_EQ(messages.comm.ranks, 4);
  EXPECT_TRUE(messages.message[0].sends);
  EXPECT_EQ(messages.message[0].in, memory);
  EXPECT_EQ(messages.message[0].peer, 2);
  EXPECT_EQ(messages.message[0].elementBytes, 4U);
  EXPECT_EQ(messages.message[0].geometry.channels, 3);
  EXPECT_FALSE(messages.message[1].sends);
  EXPECT_EQ(messages.message[1].out, memory + 4);
  EXPECT_EQ(messages.message[1].firstBlock, 3);
}

TEST(LoneMessage, ThreadsFollowTheLongestPiece) {
  const auto threads = [](std::initializer_list<Work> works) { return messageThreads(launchOf(works), Protocol::Cells); };
  EXPECT_EQ(threads({message(8, 1, true)}), kLeastLoneThreads);
  EXPECT_EQ(threads({message(0, 1, true)}), kLeastLoneThreads);
  EXPECT_EQ(threads({message(8, 1, true), message(8 * 100, 1, false)}), 128);
  EXPECT_EQ(threads({message(1 << 20, 1, true)}), mostLoneThreads(Protocol::Cells));
}

}  // namespace
}  // namespace tutti::exec::cuda::lone_message_test
