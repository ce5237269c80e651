// One value for several ranks, none of which can read it where it lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "core/format.h"
#include "interleaved.h"
#include "plan/host_sizes.h"

namespace tutti::exec::host::operation_fan_test {
namespace {

using plan::kFanPorts;
using transport::local::kInLead;
using transport::local::PipeView;

/// The pipe from `root` to the rank `places` after it; from here on its reader says that it can read nothing else.
PipeView closedPipe(PlannedRanks& planned, int32_t root, int32_t places) {
  const int32_t to = (root + places) % planned.ranks();
  const auto view = planned.hub().pipe({ChannelId(0), kFanPorts, Rank(root), Rank(to)}, 2, 1024);
  if (!view) ADD_FAILURE() << view.error().text();
  view->freed->reach.store(transport::local::kReachesNothing, std::memory_order_release);
  return *view;
}

Interleaved broadcasts(PlannedRanks& planned, int32_t root, const Buffers& in, Buffers& out) {
  Interleaved all;
  for (int32_t r = 0; r < planned.ranks(); ++r) {
    const auto i = static_cast<size_t>(r);
    all.add(planned.call(r, shapeOf(Collective::Broadcast, DataType::I32, in[i].size(), root), in[i].data(), out[i].data()));
  }
  return all;
}

class Star : public testing::TestWithParam<std::tuple<int32_t, size_t>> {};

TEST_P(Star, IsWrittenOnceAndReadByAll) {
  const auto [ranks, count] = GetParam();
  PlannedRanks planned(ranks, settingsOf(2, 1024, "broadcast:star"));
  const Buffers in = filled(ranks, count);
  for (const bool backwards : {false, true})
    for (int32_t root = 0; root < ranks; ++root) {
      Buffers out = empty(ranks, count);
      Interleaved all = broadcasts(planned, root, in, out);
      std::vector<PipeView> pipes;
      for (int32_t places = 1; places < ranks; ++places) pipes.push_back(closedPipe(planned, root, places));
      std::vector<size_t> order;
      for (size_t i = 0; i < static_cast<size_t>(ranks); ++i) order.insert(backwards ? order.begin() : order.end(), i);
      ASSERT_TRUE(all.run(order)) << "root " << root << ": " << all[static_cast<size_t>(root)].describeWait();
      for (const auto& result : out) ASSERT_EQ(result, in[static_cast<size_t>(root)]) << "root " << root;
      for (size_t p = 1; p < pipes.size(); ++p) {
        const PipeView& pipe = pipes[p];
        const bool isStaged = std::any_of(pipe.memory, pipe.memory + pipe.stagingBytes(), [](std::byte b) { return b != std::byte{0}; });
        EXPECT_FALSE(isStaged && count * 4 > transport::local::kShortBytes) << "a copy for the reader " << p + 1 << " places after " << root;
        if (count * 4 > transport::local::kShortBytes) {
          EXPECT_EQ(pipe.head(0).lent, kInLead);
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Fan, Star,
                         testing::Combine(testing::Values(2, 3, 4, 7), testing::Values(1U, 24U, 50U, 200U, 256U, 3001U)),
                         [](const auto& c) { return format("ranks{}count{}", std::get<0>(c.param), std::get<1>(c.param)); });

TEST(Fan, ASlotIsNotWrittenAgainBeforeTheSlowestHasReadIt) {
  PlannedRanks planned(4, settingsOf(2, 1024, "broadcast:star"));
  const size_t count = 5 * 256;
  const Buffers in = filled(4, count);
  Buffers out = empty(4, count);
  Interleaved all = broadcasts(planned, 0, in, out);
  for (int32_t places = 1; places < 4; ++places) (void)closedPipe(planned, 0, places);
  for (int turn = 0; turn < 10; ++turn)
    for (const size_t i : {0U, 1U, 3U}) (void)all.advance(i);
  EXPECT_EQ(all[0].describeWait(), "waits for a free slot of rank 2, slice 2 step 0");
  EXPECT_EQ(all[1].describeWait(), "waits for rank 0, slice 2 step 0");
  ASSERT_TRUE(all.run({2, 0, 1, 3}));
  for (const auto& result : out) EXPECT_EQ(result, in[0]);
}

/// Some readers are of the root's process, or read what it exported: the first one among them, or not.
TEST(Fan, ReadersThatReachTheValueTakeItWhereItIs) {
  for (const int32_t reaching : {1, 2, 3}) {
    PlannedRanks planned(4, settingsOf(2, 8192, "broadcast:star"));
    const size_t count = 5 * 2048;
    const Buffers in = filled(4, count);
    Buffers out = empty(4, count);
    Interleaved all = broadcasts(planned, 0, in, out);
    for (int32_t places = 1; places < 4; ++places)
      if (places != reaching) (void)closedPipe(planned, 0, places);
    ASSERT_TRUE(all.run()) << reaching;
    for (const auto& result : out) EXPECT_EQ(result, in[0]) << reaching;
    const auto pipe = *planned.hub().pipe({ChannelId(0), kFanPorts, Rank(0), Rank(reaching)}, 2, 1024);
    EXPECT_GT(pipe.head(0).lent, kInLead) << reaching;
  }
}

}  // namespace
}  // namespace tutti::exec::host::operation_fan_test
