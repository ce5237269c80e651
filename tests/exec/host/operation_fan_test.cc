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
using transport::local::WindowView;

/// The pipe from `root` to the rank `places` after it; from here on its reader says that it can read nothing else.
PipeView closedPipe(PlannedRanks& planned, int32_t root, int32_t places) {
  const int32_t to = (root + places) % planned.ranks();
  const auto view = planned.hub().pipe({ChannelId(0), kFanPorts, Rank(root), Rank(to)}, 2, 1024);
  if (!view) ADD_FAILURE() << view.error().text();
  view->freed->reach.store(transport::local::kReachesNothing, std::memory_order_release);
  return *view;
}

bool isWritten(const std::byte* memory, uint64_t bytes) {
  return std::any_of(memory, memory + bytes, [](std::byte b) { return b != std::byte{0}; });
}

Interleaved broadcasts(PlannedRanks& planned, int32_t root, const Buffers& in, Buffers& out) {
  Interleaved all;
  for (int32_t r = 0; r < planned.ranks(); ++r) {
    const auto i = static_cast<size_t>(r);
    all.add(planned.call(r, shapeOf(Collective::Broadcast, DataType::I32, in[i].size(), root), in[i].data(), out[i].data()));
  }
  return all;
}

std::vector<size_t> order(int32_t ranks, bool isBackwards) {
  std::vector<size_t> all;
  for (size_t i = 0; i < static_cast<size_t>(ranks); ++i) all.insert(isBackwards ? all.begin() : all.end(), i);
  return all;
}

/// Of processes whose cells are of 4 KiB.
plan::Settings settingsOfProcesses(std::string_view algorithm) {
  plan::Settings settings = settingsOf(2, 4096, algorithm);
  settings.spansProcesses = true;
  settings.sharedBytes = settings.copiedBytes = 4096;
  return settings;
}

class Star : public testing::TestWithParam<std::tuple<int32_t, size_t>> {};

TEST_P(Star, IsWrittenOnceAndReadByAll) {
  const auto [ranks, count] = GetParam();
  PlannedRanks planned(ranks, settingsOf(2, 1024, "broadcast:star"));
  const Buffers in = filled(ranks, count);
  for (const bool isBackwards : {false, true})
    for (int32_t root = 0; root < ranks; ++root) {
      Buffers out = empty(ranks, count);
      Interleaved all = broadcasts(planned, root, in, out);
      std::vector<PipeView> pipes;
      for (int32_t places = 1; places < ranks; ++places) pipes.push_back(closedPipe(planned, root, places));
      ASSERT_TRUE(all.run(order(ranks, isBackwards))) << "root " << root << ": " << all[static_cast<size_t>(root)].describeWait();
      for (const auto& result : out) ASSERT_EQ(result, in[static_cast<size_t>(root)]) << "root " << root;
      for (size_t p = 1; p < pipes.size(); ++p) {
        const PipeView& pipe = pipes[p];
        EXPECT_FALSE(isWritten(pipe.memory, pipe.stagingBytes()) && count * 4 > transport::local::kShortBytes)
            << "a copy for the reader " << p + 1 << " places after " << root;
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

/// As ranks may have different TUTTI_SLOTS: whoever is behind must not lose what it has not read.
TEST(Fan, SlotsAreSharedOnlyByPipesThatAreNotDeeper) {
  for (const uint32_t first : {2U, 8U}) {
    PlannedRanks planned(3, settingsOf(4, 1024, "broadcast:star"));
    ASSERT_TRUE(planned.hub().pipe({ChannelId(0), kFanPorts, Rank(0), Rank(1)}, first, 1024));
    const size_t count = 12 * 256;
    const Buffers in = filled(3, count);
    Buffers out = empty(3, count);
    Interleaved all = broadcasts(planned, 0, in, out);
    const PipeView second = closedPipe(planned, 0, 2);
    (void)closedPipe(planned, 0, 1);
    for (int turn = 0; turn < 20; ++turn)
      for (const size_t i : {0U, 1U}) (void)all.advance(i);
    EXPECT_EQ(all[0].describeWait(), "waits for a free slot of rank 2, slice 4 step 0");
    EXPECT_EQ(second.head(0).lent, first == 2 ? 0 : kInLead);
    ASSERT_TRUE(all.run({2, 0, 1}));
    for (const auto& result : out) EXPECT_EQ(result, in[0]) << first;
  }
}

TEST(Fan, ProcessesShareFineSlotsOnSeveralChannels) {
  plan::Settings settings = settingsOfProcesses("broadcast:star");
  settings.channels = settings.maxChannels = 3;
  PlannedRanks planned(4, settings);
  const size_t count = 100'003;
  const Buffers in = filled(4, count);
  for (int32_t root = 0; root < 4; ++root) {
    Buffers out = empty(4, count);
    Interleaved all = broadcasts(planned, root, in, out);
    for (int32_t places = 1; places < 4; ++places)
      for (int32_t channel = 0; channel < 3; ++channel) {
        const auto pipe = *planned.hub().pipe({ChannelId(channel), kFanPorts, Rank(root), Rank((root + places) % 4)}, 2, 1024);
        EXPECT_GT(pipe.slots, 16U);
        pipe.freed->reach.store(transport::local::kReachesNothing, std::memory_order_release);
      }
    ASSERT_TRUE(all.run(order(4, root % 2 == 1)));
    for (const auto& result : out) EXPECT_EQ(result, in[static_cast<size_t>(root)]) << root;
  }
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

/// From here on nobody can read what others have in their buffers.
std::vector<WindowView> closedWindows(PlannedRanks& planned) {
  std::vector<WindowView> windows;
  for (int32_t r = 0; r < planned.ranks(); ++r) {
    windows.push_back(*planned.hub().window(Rank(r), 4096));
    for (int32_t writer = 0; writer < planned.ranks(); ++writer)
      windows.back().returned[writer].reach.store(transport::local::kReachesNothing, std::memory_order_release);
  }
  return windows;
}

Interleaved calls(PlannedRanks& planned, Collective collective, size_t count, const Buffers& in, Buffers& out) {
  Interleaved all;
  for (int32_t r = 0; r < planned.ranks(); ++r) {
    const auto i = static_cast<size_t>(r);
    all.add(planned.call(r, shapeOf(collective, DataType::I32, count), in[i].data(), out[i].data()));
  }
  return all;
}

/// Bytes of cells in `window` that anybody but its owner has written.
bool hasCellsOfOthers(const WindowView& window, int32_t owner) {
  for (int32_t writer = 0; writer < window.ranks; ++writer)
    for (const uint64_t epoch : {0U, 1U})
      if (writer != owner && isWritten(window.payload(epoch, Rank(writer), 1000), window.cellBytes)) return true;
  return false;
}

class Windows : public testing::TestWithParam<std::tuple<int32_t, size_t>> {};

TEST_P(Windows, AGatheredBlockIsWrittenOnceFromThreeRanksOn) {
  const auto [ranks, count] = GetParam();
  const auto total = count * static_cast<size_t>(ranks);
  PlannedRanks planned(ranks, settingsOfProcesses("allgather:direct"));
  const Buffers in = filled(ranks, count);
  std::vector<int32_t> expected;
  for (const auto& block : in) expected.insert(expected.end(), block.begin(), block.end());
  for (int call = 0; call < 3; ++call) {
    Buffers out = empty(ranks, total);
    Interleaved all = calls(planned, Collective::AllGather, count, in, out);
    const auto windows = closedWindows(planned);
    ASSERT_TRUE(all.run(order(ranks, call == 1))) << all[0].describeWait();
    for (const auto& result : out) ASSERT_EQ(result, expected) << "call " << call;
    const bool isLong = count * 4 > transport::local::kCellInlineBytes;
    for (int32_t r = 0; r < ranks; ++r)
      EXPECT_EQ(hasCellsOfOthers(windows[static_cast<size_t>(r)], r), ranks == 2 && isLong) << "window of " << r;
  }
}

/// Also past the cache, where results are written to cells before their turn.
TEST_P(Windows, ASumIsWrittenOnceForAllAndSomeMayReadItWhereItIs) {
  const auto [ranks, count] = GetParam();
  const auto expected = sumOfNumbers(ranks, count);
  for (const uint64_t pastCacheBytes : {0, 1})
    for (const int32_t reaching : {-1, 0, ranks - 1}) {
      plan::Settings settings = settingsOfProcesses("allreduce:twoshot");
      settings.pastCacheBytes = pastCacheBytes;
      PlannedRanks planned(ranks, settings);
      const Buffers in = filled(ranks, count);
      for (int call = 0; call < 3; ++call) {
        Buffers out = empty(ranks, count);
        Interleaved all = calls(planned, Collective::AllReduce, count, in, out);
        const auto windows = closedWindows(planned);
        for (int32_t r = 0; r < ranks && reaching >= 0; ++r)  // one can read everybody's buffers
          windows[static_cast<size_t>(reaching)].returned[r].reach.store(transport::local::kReachesAll, std::memory_order_release);
        ASSERT_TRUE(all.run(order(ranks, call == 1))) << all[0].describeWait();
        for (const auto& result : out) ASSERT_EQ(result, expected) << "call " << call << ", past " << pastCacheBytes << ", " << reaching;
      }
    }
}

/// Of a short all-reduce in two flights the second one, of three ranks and more: whose epochs are even here. Also where parts are empty,
/// and of several lengths.
TEST(Fan, TheSecondFlightOfAShortSumIsPublished) {
  for (const int32_t ranks : {2, 3, 5}) {
    PlannedRanks planned(ranks, settingsOfProcesses("allreduce:twoshot"));
    const auto windows = closedWindows(planned);
    for (const size_t count : {1U, 2U, 3U, 5U, 17U, 33U, 129U, 400U}) {
      const auto expected = sumOfNumbers(ranks, count);
      const Buffers in = filled(ranks, count);
      for (int call = 0; call < 3; ++call) {
        Buffers out = empty(ranks, count);
        Interleaved all = calls(planned, Collective::AllReduce, count, in, out);
        ASSERT_TRUE(all.run(order(ranks, call == 1))) << count << ": " << all[0].describeWait();
        for (const auto& result : out) ASSERT_EQ(result, expected) << count << ", call " << call;
      }
    }
    EXPECT_GT(windows[0].head(1, Rank(1)).epoch.load(), 0U);
    EXPECT_EQ(windows[0].head(0, Rank(1)).epoch.load() > 0, ranks == 2) << "rank 1 has arrived in its own window";
    EXPECT_GT(windows[1].head(0, Rank(1)).epoch.load() + (ranks == 2 ? 1 : 0), 0U);
  }
}

TEST(Fan, ACellIsNotWrittenAgainBeforeTheSlowestHasReadIt) {
  PlannedRanks planned(4, settingsOfProcesses("allgather:direct"));
  const size_t count = 4 * 1024;
  const Buffers in = filled(4, count);
  Buffers out = empty(4, 4 * count);
  Interleaved all = calls(planned, Collective::AllGather, count, in, out);
  (void)closedWindows(planned);
  (void)all.advance(2);  // has arrived, and reads nothing before all others have
  for (int turn = 0; turn < 10; ++turn)
    for (const size_t i : {0U, 1U, 3U}) (void)all.advance(i);
  EXPECT_EQ(all[0].describeWait(), "waits for the arrival of rank 2, slice 1") << "others have read slice 0, and written the next";
  ASSERT_TRUE(all.run({2, 0, 1, 3}));
  std::vector<int32_t> expected;
  for (const auto& block : in) expected.insert(expected.end(), block.begin(), block.end());
  for (const auto& result : out) EXPECT_EQ(result, expected);
}

INSTANTIATE_TEST_SUITE_P(Fan, Windows, testing::Combine(testing::Values(2, 3, 5), testing::Values(3U, 100U, 1024U, 5001U)),
                         [](const auto& c) { return format("ranks{}count{}", std::get<0>(c.param), std::get<1>(c.param)); });

}  // namespace
}  // namespace tutti::exec::host::operation_fan_test
