// Without memory nothing is thrown into a stream's thread, and nobody is left waiting.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "exec/host/launch.h"
#include "exec/host/signature.h"
#include "planned_ranks.h"

namespace {

/// How many allocations of this thread succeed before they fail; negative: all.
thread_local int64_t allowed = -1;

void* allocate(size_t bytes) {
  if (allowed == 0) throw std::bad_alloc();
  if (allowed > 0) --allowed;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace tutti::exec::host::out_of_memory_test {
namespace {

struct Ranks {
  explicit Ranks(int32_t ranks) : planned(ranks, settingsOf(2, 64, "ring")) {
    for (int32_t r = 0; r < ranks; ++r) turns.push_back(planned.makeTurn(r));
  }
  std::vector<std::unique_ptr<Work>> works(int32_t rank, std::vector<int32_t>& data) {
    std::vector<std::unique_ptr<Work>> works;
    works.push_back(std::make_unique<Work>(turns[static_cast<size_t>(rank)]));
    works.back()->reset(0);
    works.back()->beginChain();
    works.back()->add(planned.call(rank, shapeOf(Collective::AllReduce, DataType::I32, data.size()), data.data(), data.data()));
    return works;
  }
  PlannedRanks planned;
  std::vector<std::shared_ptr<Turn>> turns;
};

/// One rank of two runs out of memory after so many allocations: it fails, its peer is told unless it has all that it needs by then, and
/// the turns of both go on.
TEST(OutOfMemory, FailsTheWorkAndTellsThePeers) {
  bool succeeded = false;
  int told = 0;
  for (int64_t limit = 0; !succeeded && limit < 200; ++limit) {
    Ranks ranks(2);
    std::vector<int32_t> data[2] = {numbers(0, 300), numbers(1, 300)};
    auto own = ranks.works(0, data[0]);
    auto theirs = ranks.works(1, data[1]);
    Status peer;
    std::thread other([&] { peer = drive(theirs, 5); });
    bool failed = false;
    allowed = limit;
    try {
      failed = !drive(own, 5).ok();
    } catch (const std::bad_alloc&) {  // not even the words of the error
      failed = true;
    }
    allowed = -1;
    other.join();
    if (!peer.ok()) {
      ++told;
      EXPECT_TRUE(failed) << limit;
      EXPECT_EQ(peer.code(), Code::SystemError) << limit << ": " << peer.text();
    }
    if (failed) {
      EXPECT_EQ(ranks.planned.hub().latch(Rank(0)).code(), Code::SystemError);
    }
    for (const auto& turn : ranks.turns) EXPECT_EQ(turn->finished.load(), 1U) << limit;
    succeeded = !failed;
  }
  EXPECT_TRUE(succeeded);
  EXPECT_GT(told, 0);
}

/// A call made again that differs from the peer's, out of memory somewhere in the words for it.
TEST(OutOfMemory, OfACallMadeAgainTellsThePeers) {
  bool succeeded = false;
  for (int64_t limit = 0; !succeeded && limit < 200; ++limit) {
    Ranks ranks(2);
    std::vector<int32_t> data[2] = {numbers(0, 2), numbers(1, 2)};
    auto own = ranks.works(0, data[0]);
    auto theirs = ranks.works(1, data[1]);
    std::thread other([&] { EXPECT_TRUE(drive(theirs, 5).ok()); });
    EXPECT_TRUE(drive(own, 5).ok());
    other.join();
    ASSERT_TRUE(own.front()->canRunAgain());
    std::vector<int32_t> more = numbers(1, 3);
    PlannedCall differs = ranks.planned.call(1, shapeOf(Collective::AllReduce, DataType::I32, 3), more.data(), more.data());
    differs.call.sequence = differs.event.sequence = 1;
    differs.signature = packSignature(differs.call);
    theirs.front()->reset(1);
    theirs.front()->beginChain();
    theirs.front()->add(std::move(differs));
    ASSERT_EQ(theirs.front()->advance(), Poll::Pending);
    Poll poll = Poll::Ready;
    bool threw = false;
    allowed = limit;
    try {
      poll = own.front()->runAgain(data[0].data(), data[0].data(), 1, 1);
      if (poll == Poll::Pending) poll = own.front()->advance();
      for (Nanoseconds now{0}; poll == Poll::Pending && now < std::chrono::seconds(1); now += std::chrono::milliseconds(100)) {
        own.front()->inspect(now);
        poll = own.front()->advance();
      }
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    allowed = -1;
    EXPECT_FALSE(ranks.planned.hub().member(Rank(0)).inside.load()) << limit << ": Abort would wait for ever";
    if (threw && !own.front()->isFinished()) own.front()->abandon();
    EXPECT_TRUE(threw || poll == Poll::Failed) << limit;
    EXPECT_NE(ranks.planned.hub().latch(Rank(1)).code(), Code::Ok) << limit << ": the peer waits for ever";
    EXPECT_EQ(ranks.turns[0]->finished.load(), 2U) << limit;
    succeeded = !threw;
    if (HasFailure()) break;
  }
  EXPECT_TRUE(succeeded);
}

TEST(OutOfMemory, LeavesStreamsRunning) {
  bool succeeded = false;
  for (int64_t limit = 0; !succeeded && limit < 200; ++limit) {
    Ranks ranks(1);
    std::mutex order;
    std::vector<int32_t> data = numbers(0, 300);
    std::vector<std::shared_ptr<Stream>> streams;
    for (int i = 0; i < 2; ++i) {
      streams.push_back(std::make_shared<Stream>());
      ASSERT_TRUE(streams.back()->start().ok());
      streams.back()->push([limit] { allowed = limit; });
    }
    const auto launch = std::make_shared<Launch>(ranks.works(0, data), 5);
    ASSERT_TRUE(launch->submit(streams, false, order).ok());
    std::atomic<int> after{0};
    for (const auto& stream : streams) stream->push([&after] { allowed = -1, ++after; });
    for (const auto& stream : streams) stream->stop();
    EXPECT_EQ(after.load(), 2);
    EXPECT_EQ(ranks.turns[0]->finished.load(), 1U);
    succeeded = ranks.planned.hub().latch(Rank(0)).code() == Code::Ok;
  }
  EXPECT_TRUE(succeeded);
}

TEST(OutOfMemory, WhileALaunchIsQueuedLeavesNoStreamWaiting) {
  bool succeeded = false;
  for (int64_t limit = 0; !succeeded && limit < 200; ++limit) {
    Ranks ranks(1);
    std::mutex order;
    std::vector<int32_t> data = numbers(0, 300);
    std::vector<std::shared_ptr<Stream>> streams;
    for (int i = 0; i < 3; ++i) {
      streams.push_back(std::make_shared<Stream>());
      ASSERT_TRUE(streams.back()->start().ok());
    }
    {
      const auto launch = std::make_shared<Launch>(ranks.works(0, data), 5);
      std::vector<std::shared_ptr<Stream>> targets = streams;
      allowed = limit;
      try {
        succeeded = launch->submit(std::move(targets), false, order).ok();
      } catch (const std::bad_alloc&) {  // not even the words of the error
      }
      allowed = -1;
    }
    for (const auto& stream : streams) stream->stop();
    EXPECT_EQ(ranks.turns[0]->finished.load(), 1U) << limit;
    EXPECT_EQ(ranks.planned.hub().latch(Rank(0)).code(), succeeded ? Code::Ok : Code::SystemError) << limit;
  }
  EXPECT_TRUE(succeeded);
}

}  // namespace
}  // namespace tutti::exec::host::out_of_memory_test
