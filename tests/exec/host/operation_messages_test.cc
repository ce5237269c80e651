// Messages: what a send and its receive owe each other.
#include <gtest/gtest.h>

#include <algorithm>

#include "algo/sendrecv.h"
#include "interleaved.h"

namespace tutti::exec::host::operation_messages_test {
namespace {

TEST(Messages, ASmallMessageLeavesAtOnce) {
  PlannedRanks planned(2);
  std::vector<int32_t> out(16, -1);
  std::vector<int32_t> in = numbers(0, 16);
  Interleaved all;
  all.add(planned.call(0, messageShape(64, 1, false), in.data(), nullptr));
  all.add(planned.call(1, messageShape(64, 0, true), nullptr, out.data()));
  EXPECT_EQ(all.advance(1), Poll::Pending);
  EXPECT_EQ(all[1].describeWait(), "waits for rank 0, slice 0 step 0");
  EXPECT_EQ(all.advance(0), Poll::Ready);
  in.assign(16, 0);  // the sender's buffer is free again
  EXPECT_EQ(all.advance(1), Poll::Ready);
  EXPECT_EQ(out, numbers(0, 16));
}

TEST(Messages, ALargeMessageEndsWhenItHasBeenRead) {
  PlannedRanks planned(2);
  const std::vector<int32_t> in = numbers(0, 5000);
  std::vector<int32_t> out(5000, -1);
  Interleaved all;
  all.add(planned.call(0, messageShape(20000, 1, false), in.data(), nullptr));
  all.add(planned.call(1, messageShape(20000, 0, true), nullptr, out.data()));
  EXPECT_EQ(all.advance(0), Poll::Pending) << "the receiver reads the sender's buffer";
  EXPECT_EQ(all[0].describeWait(), "waits until rank 1 has read its last messages");
  EXPECT_EQ(all.advance(1), Poll::Ready);
  EXPECT_EQ(all.advance(0), Poll::Ready);
  EXPECT_TRUE(all[0].moved());
  EXPECT_EQ(out, in);
}

TEST(Messages, WhatACallOnlyCopiesIsReadWhereItWas) {
  constexpr size_t kCount = 5000;
  PlannedRanks planned(2, settingsOf(2, 262144, "ring"));
  const Buffers in = filled(2, kCount);
  Buffers out = empty(2, 2 * kCount);
  Interleaved all;
  for (int32_t r = 0; r < 2; ++r) {
    const auto at = static_cast<size_t>(r);
    all.add(planned.call(r, shapeOf(Collective::AllGather, DataType::I32, kCount), in[at].data(), out[at].data()));
  }
  EXPECT_EQ(all.advance(0), Poll::Pending);
  ASSERT_TRUE(std::equal(in[0].begin(), in[0].end(), out[0].begin())) << "the own part has its place";
  std::fill(out[0].begin(), out[0].begin() + kCount, -7);  // lines of the output that nobody else has
  ASSERT_TRUE(all.run());
  EXPECT_TRUE(std::equal(in[0].begin(), in[0].end(), out[1].begin()));
  EXPECT_TRUE(std::equal(in[1].begin(), in[1].end(), out[0].begin() + kCount));
}

/// The head of a long message had the bytes of a short one before.
TEST(Messages, ASlotIsFreshWhateverItsHeadHeld) {
  PlannedRanks planned(2);
  const auto view = planned.hub().pipe({ChannelId(0), algo::kUserPort, Rank(0), Rank(1)}, plan::Settings().slots, 4096);
  ASSERT_TRUE(view);
  const std::vector<std::byte> in(1000, std::byte{0xff});
  std::vector<std::byte> out(1000);
  for (uint64_t i = 0; i < 2 * view->numHeads; ++i) {
    const uint64_t bytes = i < view->numHeads ? 64 : 1000;
    Interleaved all;
    all.add(planned.call(0, messageShape(bytes, 1, false), in.data(), nullptr));
    all.add(planned.call(1, messageShape(bytes, 0, true), nullptr, out.data()));
    EXPECT_EQ(all.advance(0), Poll::Ready);
    ASSERT_EQ(view->head(i).filled.load(), i + 1) << "the pipe is another one";
    EXPECT_EQ(view->head(i).isFresh(), bytes == 1000);
    EXPECT_EQ(all.advance(1), Poll::Ready);
  }
}

TEST(Messages, ASenderWaitsForAFreeSlot) {
  PlannedRanks planned(2, settingsOf(2, 512));
  const std::vector<int32_t> in = numbers(0, 400);
  std::vector<int32_t> out(400, -1);
  Interleaved all;
  all.add(planned.call(0, messageShape(1600, 1, false), in.data(), nullptr));
  all.add(planned.call(1, messageShape(1600, 0, true), nullptr, out.data()));
  EXPECT_EQ(all.advance(0), Poll::Pending);
  EXPECT_EQ(all[0].describeWait(), "waits for a free slot of rank 1, slice 2 step 0");
  ASSERT_TRUE(all.run());
  EXPECT_EQ(out, in);
}

TEST(Messages, ShortSlicesNeedNoSlots) {
  PlannedRanks planned(2, settingsOf(2, 64));
  const std::vector<int32_t> in = numbers(0, 100);
  std::vector<int32_t> out(100, -1);
  Interleaved all;
  all.add(planned.call(0, messageShape(400, 1, false), in.data(), nullptr));
  all.add(planned.call(1, messageShape(400, 0, true), nullptr, out.data()));
  EXPECT_EQ(all.advance(0), Poll::Ready);
  EXPECT_EQ(all.advance(1), Poll::Ready);
  EXPECT_EQ(out, in);
}

TEST(Messages, AMessageOfNoBytesStillMeetsItsPartner) {
  PlannedRanks planned(2);
  Interleaved all;
  all.add(planned.call(1, messageShape(0, 0, true), nullptr, nullptr));
  all.add(planned.call(0, messageShape(0, 1, false), nullptr, nullptr));
  EXPECT_EQ(all.advance(0), Poll::Pending);
  EXPECT_EQ(all.advance(1), Poll::Ready);
  EXPECT_EQ(all.advance(0), Poll::Ready);

  Interleaved unequal;
  std::vector<int32_t> out(1);
  unequal.add(planned.call(1, messageShape(4, 0, true), nullptr, out.data()));
  unequal.add(planned.call(0, messageShape(0, 1, false), nullptr, nullptr));
  EXPECT_EQ(unequal.advance(1), Poll::Ready);
  EXPECT_EQ(unequal.advance(0), Poll::Failed);
}

TEST(Messages, MessagesOfBothDirectionsNeedNoOrder) {
  PlannedRanks planned(2, settingsOf(2, 64));
  const Buffers in = filled(2, 1000);
  Buffers out = empty(2, 1000);
  Interleaved all;
  for (int32_t r = 0; r < 2; ++r) {
    const auto i = static_cast<size_t>(r);
    all.add(planned.call(r, messageShape(4000, 1 - r, false), in[i].data(), nullptr));
    all.add(planned.call(r, messageShape(4000, 1 - r, true), nullptr, out[i].data()));
  }
  ASSERT_TRUE(all.run());
  EXPECT_EQ(out[0], in[1]);
  EXPECT_EQ(out[1], in[0]);
}

}  // namespace
}  // namespace tutti::exec::host::operation_messages_test
