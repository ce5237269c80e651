// What streams say to each other around copies: that they meet, in graphs too, in calls with one sender and with all; and how the watch
// ends waits that would have no end.
#include "transport/device/stages.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "../../driver/cuda/play.h"

namespace tutti::transport::device::stages_test {
namespace {

using driver::cuda::Error;
using driver::cuda::Graph;
using driver::cuda::Stream;
using driver::cuda::play::World;
using exec::cuda::Verdict;
using exec::cuda::Waiting;
using std::chrono::milliseconds;

constexpr uint32_t bit(int32_t rank) { return uint32_t{1} << rank; }

/// Ranks of one device, each with a stream; the page is zero, as a new one is.
class Stages : public testing::TestWithParam<int32_t> {
 protected:
  void open(int32_t count) {
    ranks = count;
    context = std::make_unique<driver::cuda::PrimaryContext>(world.context(0));
    ASSERT_TRUE(world.driver->pushContext(context->get()).ok());
    const uint64_t bytes = (Page::bytesFor(ranks) + 4095) / 4096 * 4096;
    memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    std::memset(memory, 0, bytes);
    page = Page(memory, ranks);
    ASSERT_TRUE(world.driver->registerHost(memory, Bytes(Page::kernelBytes(ranks))).ok());
    const auto seen = world.driver->devicePointer(memory);
    ASSERT_TRUE(seen);
    for (int32_t r = 0; r < ranks; ++r) {
      rooms.emplace_back(page, *seen, Rank(r));
      streams.push_back(*world.driver->createStream());
    }
  }
  void TearDown() override {
    if (context == nullptr) return;
    for (int32_t r = 0; r < ranks; ++r) drain(r);
    for (const Stream stream : streams) world.driver->destroyStream(stream);
    world.driver->unregisterHost(memory);
    world.driver->popContext();
    context.reset();
    EXPECT_TRUE(world.fake->idle());
    std::free(memory);
  }
  uint32_t others(int32_t rank) const { return (bit(ranks) - 1) & ~bit(rank); }
  /// All write to all.
  StageCall toAll(int32_t rank, uint64_t signature = 7, uint32_t place = 1000) const {
    return {signature, place, others(rank), others(rank)};
  }
  StageCall fromRoot(int32_t rank, int32_t root, uint64_t signature = 9) const {
    return rank == root ? StageCall{signature, 5, 0, others(rank)} : StageCall{signature, 5, bit(root), 0};
  }
  Status begin(int32_t rank, const StageCall& call) { return rooms[static_cast<size_t>(rank)].begin(call, *world.driver, stream(rank)); }
  Status meet(int32_t rank, const StageCall& call, int32_t number) {
    return rooms[static_cast<size_t>(rank)].meet(call, number, *world.driver, stream(rank));
  }
  Stream stream(int32_t rank) const { return streams[static_cast<size_t>(rank)]; }
  bool isIdle(int32_t rank) const { return *world.driver->isIdle(stream(rank)); }
  /// Whether it comes to its end soon.
  bool ends(int32_t rank) {
    const auto until = std::chrono::steady_clock::now() + milliseconds(5000);
    while (!isIdle(rank) && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    return isIdle(rank);
  }
  bool isStuck(int32_t rank) {
    std::this_thread::sleep_for(milliseconds(5));
    return !isIdle(rank);
  }
  /// Whether the stream of `peer` says something to `rank` soon.
  bool hears(int32_t rank, int32_t peer) {
    const auto until = std::chrono::steady_clock::now() + milliseconds(5000);
    const auto isThere = [&] {
      auto& cells = page.cells(rank, peer).of;
      return std::any_of(std::begin(cells), std::end(cells), [](auto& cell) { return std::atomic_ref(cell.word).load() != 0; });
    };
    while (!isThere() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    return isThere();
  }
  bool look(int32_t rank, milliseconds later = milliseconds(0)) { return rooms[static_cast<size_t>(rank)].look(start + later); }
  /// Two looks: the first notes the wait that the second ends.
  void lookTwice(int32_t rank, milliseconds later = milliseconds(0)) {
    (void)look(rank);
    (void)look(rank, later);
  }
  /// Lets everything go on that still waits.
  void drain(int32_t rank) {
    std::atomic_ref(page.kernel().abort).store(1);
    for (int looks = 0; looks < 5000 && !isIdle(rank); ++looks) {
      for (int32_t r = 0; r < ranks; ++r) (void)look(r);
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(isIdle(rank));
  }
  bool isStopped() const { return std::atomic_ref(page.kernel().abort).load() != 0; }
  const Verdict& verdict(int32_t rank) const { return page.rank(rank).endedStage; }
  /// No cell says anything.
  void expectSilence() const {
    for (int32_t r = 0; r < ranks; ++r)
      for (int32_t p = 0; p < ranks; ++p)
        for (const StageCell& cell : page.cells(r, p).of) ASSERT_TRUE(cell.word == 0 && cell.stage == 0) << r << " " << p;
  }
  void note(int32_t rank, const StageCall& call, Collective collective, uint64_t count) {
    Call made;
    made.collective = collective;
    made.count = count;
    page.launches(rank).write(stageName(call.word()), made, false);
  }

  World world;
  std::unique_ptr<driver::cuda::PrimaryContext> context;
  int32_t ranks = 0;
  std::byte* memory = nullptr;
  Page page;
  std::vector<StageRoom> rooms;
  std::vector<Stream> streams;
  const StageRoom::Clock::time_point start = StageRoom::Clock::now();
};

TEST_P(Stages, NobodyGoesOnBeforeAllHaveComeAndNothingIsLeft) {
  open(GetParam());
  for (int turn = 0; turn < 20; ++turn) {
    for (int32_t r = 0; r + 1 < ranks; ++r) ASSERT_TRUE(begin(r, toAll(r, 7, 1000 + static_cast<uint32_t>(turn % 3))).ok());
    if (turn == 0) {
      for (int32_t r = 0; r + 1 < ranks; ++r) EXPECT_TRUE(isStuck(r));
    }
    ASSERT_TRUE(begin(ranks - 1, toAll(ranks - 1, 7, 1000 + static_cast<uint32_t>(turn % 3))).ok());
    for (int32_t r = ranks - 1; r > 0; --r) ASSERT_TRUE(meet(r, toAll(r, 7, 1000 + static_cast<uint32_t>(turn % 3)), 0).ok());
    if (turn == 0) {
      for (int32_t r = 1; r < ranks; ++r) EXPECT_TRUE(isStuck(r)) << "rank 0 is not done";
    }
    ASSERT_TRUE(meet(0, toAll(0, 7, 1000 + static_cast<uint32_t>(turn % 3)), 0).ok());
  }
  for (int32_t r = 0; r < ranks; ++r) EXPECT_TRUE(ends(r));
  expectSilence();
}

TEST_P(Stages, AGraphMeetsAsOftenAsItIsLaunchedAmongOtherCalls) {
  open(GetParam());
  std::vector<Graph> graphs(static_cast<size_t>(ranks));
  for (int32_t r = 0; r < ranks; ++r) {
    ASSERT_EQ(world.fake->beginCapture(stream(r)), Error::Success);
    for (const StageCall& call : {toAll(r), fromRoot(r, 0)}) {
      ASSERT_TRUE(begin(r, call).ok());
      ASSERT_TRUE(meet(r, call, 0).ok());
    }
    ASSERT_EQ(world.fake->endCapture(stream(r), &graphs[static_cast<size_t>(r)]), Error::Success);
  }
  for (int turn = 0; turn < 30; ++turn)
    for (int32_t r = 0; r < ranks; ++r) {
      ASSERT_EQ(world.fake->launchGraph(graphs[static_cast<size_t>(r)], stream(r)), Error::Success);
      const StageCall call = fromRoot(r, turn % ranks, 11);
      ASSERT_TRUE(begin(r, call).ok());
      ASSERT_TRUE(meet(r, call, 0).ok());
    }
  for (int32_t r = 0; r < ranks; ++r) EXPECT_TRUE(ends(r));
  for (const Graph graph : graphs) EXPECT_EQ(world.fake->destroyGraph(graph), Error::Success);
  expectSilence();
}

/// What a broadcast that receivers pass on does: each meets the one before it and the one behind it, once for every part.
TEST_P(Stages, AChainMayRunAheadOfWhoTakes) {
  open(GetParam());
  constexpr int32_t kParts = 30;
  const auto place = [&](int32_t r) { return StageCall{3, 4, r == 0 ? 0 : bit(r - 1), r == ranks - 1 ? 0 : bit(r + 1)}; };
  for (int32_t r = 0; r < ranks; ++r) ASSERT_TRUE(begin(r, place(r)).ok());
  for (int32_t r = 0; r < ranks; ++r)
    for (int32_t part = 0; part < kParts; ++part) ASSERT_TRUE(meet(r, place(r), part).ok());
  for (int32_t r = 0; r < ranks; ++r) EXPECT_TRUE(ends(r));
  expectSilence();
}

INSTANTIATE_TEST_SUITE_P(Ranks, Stages, testing::Values(2, 3, 8));

TEST_F(Stages, ADeadlineNamesWhoHasNotCome) {
  open(3);
  page.waits(0).limitNs = 50'000'000;
  ASSERT_TRUE(begin(0, toAll(0)).ok());
  ASSERT_TRUE(begin(1, toAll(1)).ok());
  ASSERT_TRUE(hears(0, 1));
  EXPECT_TRUE(isStuck(0));
  lookTwice(0, milliseconds(49));
  EXPECT_FALSE(isStopped());
  EXPECT_TRUE(look(0, milliseconds(51)));
  EXPECT_TRUE(isStopped());
  EXPECT_EQ(verdict(0).state, Verdict::Complete);
  EXPECT_EQ(verdict(0).waiting, Waiting::ForLeave);
  EXPECT_EQ(verdict(0).rank, 0);
  EXPECT_EQ(verdict(0).peer, 2) << "rank 1 has come";
  EXPECT_EQ(verdict(0).channel, kChannelOfStream);
  EXPECT_EQ(verdict(0).signature, stageName(toAll(0).word()));
  (void)look(0);
  (void)look(1);
  EXPECT_EQ(verdict(1).state, Verdict::Ended) << "it waited for the same";
  EXPECT_EQ(verdict(1).peer, 2);
  EXPECT_TRUE(ends(0)) << "and is let go on";
}

/// A wait that goes on is another one, however alike: what has been noted of it goes with it.
TEST_F(Stages, AWaitIsAsOldAsItself) {
  open(2);
  page.waits(0).limitNs = 50'000'000;
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(begin(0, toAll(0)).ok());
    EXPECT_TRUE(isStuck(0));
    (void)look(0, milliseconds(40 * turn));
    (void)look(0, milliseconds(40 * turn + 1));
    ASSERT_TRUE(begin(1, toAll(1)).ok());
    for (int32_t r = 0; r < 2; ++r) ASSERT_TRUE(meet(r, toAll(r), 0).ok());
    EXPECT_TRUE(ends(0) && ends(1));
    EXPECT_FALSE(isStopped()) << turn;
  }
  expectSilence();
}

TEST_F(Stages, AMeetingIsWaitedForByWhoTakesAlone) {
  open(2);
  page.waits(1).limitNs = 1'000'000;
  for (int32_t r = 0; r < 2; ++r) ASSERT_TRUE(begin(r, fromRoot(r, 0)).ok());
  EXPECT_TRUE(ends(0)) << "the root has leave";
  ASSERT_TRUE(meet(1, fromRoot(1, 0), 0).ok());
  EXPECT_TRUE(isStuck(1));
  lookTwice(1, milliseconds(2));
  EXPECT_EQ(verdict(1).waiting, Waiting::ForCopies);
  EXPECT_EQ(verdict(1).peer, 0);
  (void)look(1);
  EXPECT_TRUE(ends(1));
}

TEST_F(Stages, AWaitThatLastsIsToldOnce) {
  open(2);
  page.waits(0).silence = 10;  // ticks of some 1 ms
  ASSERT_TRUE(begin(0, toAll(0)).ok());
  EXPECT_TRUE(isStuck(0));
  lookTwice(0, milliseconds(9));
  Verdict& lasting = page.waits(0).lasting;
  EXPECT_EQ(lasting.state, Verdict::Empty);
  (void)look(0, milliseconds(20));
  EXPECT_EQ(lasting.state, Verdict::Complete);
  EXPECT_EQ(lasting.peer, 1);
  EXPECT_GE(lasting.waitedNs, 10'000'000u);
  lasting.state = Verdict::Empty;
  (void)look(0, milliseconds(900));
  EXPECT_EQ(lasting.state, Verdict::Empty);
  EXPECT_FALSE(isStopped());
  EXPECT_EQ(verdict(0).state, Verdict::Empty);
}

TEST_F(Stages, AnotherPlaceAndAnotherCallAreToldApart) {
  for (const bool isOtherCall : {false, true}) {
    open(2);
    const StageCall there = toAll(1, isOtherCall ? 8 : 7, 2000);
    note(0, toAll(0), Collective::AllGather, 100);
    note(1, there, isOtherCall ? Collective::AllToAll : Collective::AllGather, 100);
    ASSERT_TRUE(begin(0, toAll(0)).ok());
    ASSERT_TRUE(begin(1, there).ok());
    EXPECT_TRUE(isStuck(0) && isStuck(1));
    lookTwice(0);
    EXPECT_TRUE(isStopped());
    EXPECT_EQ(verdict(0).waiting, isOtherCall ? Waiting::Mismatch : Waiting::OtherPlace);
    EXPECT_EQ(verdict(0).peer, 1);
    EXPECT_EQ(verdict(0).expected, stageName(toAll(0).word()));
    EXPECT_EQ(verdict(0).seen, stageName(there.word()));
    TearDown();
    rooms.clear();
    streams.clear();
  }
}

/// Two roots that wait for each other's leave have said nothing.
TEST_F(Stages, TwoThatWaitForEachOtherInDifferentCallsAreNoticed) {
  open(3);
  for (int32_t r = 0; r < 2; ++r) ASSERT_TRUE(begin(r, fromRoot(r, r, 20 + static_cast<uint64_t>(r))).ok());
  EXPECT_TRUE(isStuck(0) && isStuck(1));
  (void)look(0);
  (void)look(0);
  EXPECT_FALSE(isStopped()) << "that of rank 1 has not been seen to last";
  (void)look(1);
  (void)look(0);
  EXPECT_TRUE(isStopped());
  EXPECT_EQ(verdict(0).waiting, Waiting::Mismatch);
  EXPECT_EQ(verdict(0).peer, 1);
  EXPECT_EQ(verdict(0).seen, stageName(fromRoot(1, 1, 21).word()));
}

/// A rank waits in the next call for one that is still in this one, for a third.
TEST_F(Stages, WhoIsAheadIsInNoOtherCall) {
  open(3);
  const StageCall pair01{30, 1, bit(1), bit(1)};
  ASSERT_TRUE(begin(1, {31, 1, bit(2), bit(2)}).ok());  // waits for rank 2
  ASSERT_TRUE(begin(0, pair01).ok());                    // waits for rank 1, which waits for somebody else
  EXPECT_TRUE(isStuck(0) && isStuck(1));
  for (int looks = 0; looks < 4; ++looks)
    for (int32_t r = 0; r < 3; ++r) (void)look(r, milliseconds(10 * looks));
  EXPECT_FALSE(isStopped());
}

/// The words of others come while the watch looks, and a third is late: nothing is wrong with them.
TEST_F(Stages, AWordThatComesMeanwhileIsNoOtherOne) {
  open(3);
  ASSERT_TRUE(begin(0, toAll(0)).ok());
  EXPECT_TRUE(isStuck(0));
  (void)look(0);
  std::atomic<bool> isOver = false;
  std::atomic_ref word(page.cells(0, 1).of[0].word);
  std::thread peer([&] {
    while (!isOver) {
      word.store(toAll(0).word());
      word.store(0);
    }
  });
  for (int looks = 0; looks < 200'000 && !isStopped(); ++looks) (void)look(0);
  isOver = true;
  peer.join();
  EXPECT_FALSE(isStopped());
  word.store(0);
}

/// A peer that waits for a third in this call takes its words back when that has come, also that of a rank which is in the next one.
TEST_F(Stages, WordsThatAreTakenBackAreNotLacking) {
  open(3);
  const StageCall next = toAll(1, 40);
  ASSERT_TRUE(begin(1, next).ok());
  EXPECT_TRUE(isStuck(1));
  (void)look(1);
  // Rank 0, in the call before: it waits for ranks 1 and 2, and has the word of rank 1; its wait was seen to last.
  const uint32_t mine = toAll(0).word();
  const uint32_t stage = mine | uint32_t{6} << 22 | uint32_t{1} << 31;
  auto& first = *reinterpret_cast<std::atomic<uint64_t>*>(&page.cells(0, 1).of[1]);
  static_assert(sizeof(StageCell) == sizeof(uint64_t) && std::endian::native == std::endian::little);
  std::atomic<bool> isOver = false;
  std::thread peer([&] {
    for (int turn = 0; turn < 400; ++turn) {
      first.store(uint64_t{stage} << 32 | mine);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      first.store(0);
      std::this_thread::sleep_for(milliseconds(1));  // and is marked again later than a look takes
    }
    isOver = true;
  });
  while (!isOver) (void)look(1);
  peer.join();
  EXPECT_FALSE(isStopped());
  first.store(0);
}

TEST_F(Stages, StoppedAllWaitsEndAndThoseThatFollow) {
  open(2);
  std::atomic_ref(page.kernel().abort).store(1);
  for (int call = 0; call < 2000; ++call) {
    ASSERT_TRUE(begin(0, toAll(0)).ok());
    ASSERT_TRUE(meet(0, toAll(0), 0).ok());
  }
  StageWatch watch;
  const auto seat = watch.add(rooms[0]);
  ASSERT_TRUE(seat);
  EXPECT_TRUE(ends(0));
  ASSERT_TRUE(begin(0, toAll(0)).ok());
  EXPECT_TRUE(ends(0)) << "also of what is launched later";
  EXPECT_EQ(std::atomic_ref(page.rank(0).endedStage.state).load(), Verdict::Ended);
}

TEST_F(Stages, TheWatchIsThereAsLongAsAnybodyHasASeat) {
  open(2);
  page.waits(0).limitNs = 1'000'000;
  StageWatch watch;
  const auto threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
  // The system lists a thread for a moment after it was joined.
  const auto settlesAt = [&](auto count) {
    for (int looks = 0; looks < 1000 && threads() != count; ++looks) std::this_thread::sleep_for(milliseconds(1));
    return threads() == count;
  };
  std::this_thread::sleep_for(milliseconds(20));
  const auto before = threads();
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_TRUE(settlesAt(before));
    auto first = watch.add(rooms[1]);
    auto second = watch.add(rooms[0]);
    ASSERT_TRUE(first && second);
    first->reset();
    EXPECT_TRUE(settlesAt(before + 1));
    if (turn < 2) continue;
    ASSERT_TRUE(begin(0, toAll(0)).ok());
    EXPECT_TRUE(ends(0)) << "past its deadline";
    EXPECT_TRUE(isStopped());
  }
}

}  // namespace
}  // namespace tutti::transport::device::stages_test
