// Streams of the fake driver that have work to do: their order, events between them, and that all ends.
#include <dirent.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <semaphore>
#include <thread>
#include <vector>

#include "play.h"

namespace tutti::driver::cuda::fake_queues_test {
namespace {

using namespace play;

/// Threads of this process.
size_t countThreads() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') ++count;
  closedir(folder);
  return count;
}

class FakeQueuesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(fake.devicePrimaryCtxRetain(&context, 0), Error::Success);
    ASSERT_EQ(fake.ctxPushCurrent(context), Error::Success);
    ASSERT_EQ(fake.streamCreate(&a, kStreamNonBlocking), Error::Success);
    ASSERT_EQ(fake.streamCreate(&b, kStreamNonBlocking), Error::Success);
    ASSERT_EQ(fake.eventCreate(&event, kEventDisableTiming), Error::Success);
  }
  void TearDown() override {
    EXPECT_EQ(fake.streamDestroy(a), Error::Success);
    EXPECT_EQ(fake.streamDestroy(b), Error::Success);
    EXPECT_EQ(fake.eventDestroy(event), Error::Success);
    EXPECT_EQ(fake.ctxPopCurrent(&context), Error::Success);
    EXPECT_EQ(fake.devicePrimaryCtxRelease(0), Error::Success);
    EXPECT_TRUE(fake.idle());
  }
  /// Work that lasts until open() is called.
  void block(Stream stream) {
    ASSERT_EQ(fake.enqueue(stream, [this] { gate_.acquire(); }), Error::Success);
  }
  void open() { gate_.release(); }

  World world;
  FakeApi& fake = *world.fake;
  Context context = nullptr;
  Stream a = nullptr;
  Stream b = nullptr;
  Event event = nullptr;

 private:
  std::counting_semaphore<> gate_{0};
};

TEST_F(FakeQueuesTest, OperationsOfAStreamFollowOneAnotherAndWaitForTheirWords) {
  alignas(4096) static uint64_t words[512] = {};
  std::memset(words, 0, sizeof words);
  ASSERT_EQ(fake.memHostRegister(words, sizeof words, kHostRegisterDeviceMap), Error::Success);
  DevicePtr at = 0;
  ASSERT_EQ(fake.memHostGetDevicePointer(&at, words, 0), Error::Success);
  StreamOp ops[] = {
      {StreamOpKind::Write, at, 5}, {StreamOpKind::Wait, at + 8, 7, kWaitEqual}, {StreamOpKind::WriteWide, at, uint64_t{9} << 32}};
  ASSERT_EQ(fake.streamBatchMemOp(a, 3, ops, 0), Error::Success);
  while (std::atomic_ref(words[0]).load() == 0) std::this_thread::yield();
  EXPECT_EQ(std::atomic_ref(words[0]).load(), 5u);
  EXPECT_EQ(fake.streamQuery(a), Error::NotReady) << "its word has not come";
  StreamOp other{StreamOpKind::Write, at + 8, 7};
  ASSERT_EQ(fake.streamBatchMemOp(b, 1, &other, 0), Error::Success);
  ASSERT_EQ(fake.streamSynchronize(a), Error::Success);
  EXPECT_EQ(words[0], uint64_t{9} << 32);
  StreamOp wrong{StreamOpKind::Wait, at + 8, 7};
  EXPECT_EQ(fake.streamBatchMemOp(a, 1, &wrong, 0), Error::InvalidValue) << "another comparison";
  wrong = {StreamOpKind::WriteWide, at + 4, 1};
  EXPECT_EQ(fake.streamBatchMemOp(a, 1, &wrong, 0), Error::InvalidValue) << "not aligned";
  wrong = {StreamOpKind::Write, at + sizeof words, 1};
  EXPECT_EQ(fake.streamBatchMemOp(a, 1, &wrong, 0), Error::InvalidValue) << "nobody's memory";
  EXPECT_EQ(fake.streamBatchMemOp(a, 0, ops, 0), Error::InvalidValue);
  ASSERT_EQ(fake.streamSynchronize(b), Error::Success);
  EXPECT_EQ(fake.memHostUnregister(words), Error::Success);
}

TEST_F(FakeQueuesTest, WorkOfAStreamRunsInOrderOnAnotherThread) {
  std::vector<int> order;
  block(a);
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(fake.enqueue(a,
                           [&order, i, caller = std::this_thread::get_id()] {
                             if (std::this_thread::get_id() != caller) order.push_back(i);
                           }),
              Error::Success);
  EXPECT_EQ(fake.streamQuery(a), Error::NotReady);
  EXPECT_EQ(fake.streamQuery(b), Error::Success) << "another stream";
  EXPECT_EQ(fake.alive().working, 1u);
  EXPECT_FALSE(fake.idle());
  open();
  EXPECT_EQ(fake.streamSynchronize(a), Error::Success);
  EXPECT_EQ(fake.streamQuery(a), Error::Success);
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(FakeQueuesTest, CopiesAndFillsStayInOrder) {
  DevicePtr memory = 0;
  ASSERT_EQ(fake.memAlloc(&memory, 64), Error::Success);
  auto* const bytes = reinterpret_cast<volatile uint8_t*>(memory);
  ASSERT_EQ(fake.memsetD8Async(memory, 1, 64, a), Error::Success);
  EXPECT_EQ(bytes[0], 1) << "at once, where nothing is before it";
  block(a);
  ASSERT_EQ(fake.memsetD8Async(memory, 2, 32, a), Error::Success);
  ASSERT_EQ(fake.memcpyAsync(memory + 32, memory, 32, a), Error::Success);
  EXPECT_EQ(bytes[0], 1);
  open();
  ASSERT_EQ(fake.streamSynchronize(a), Error::Success);
  EXPECT_EQ(bytes[0], 2);
  EXPECT_EQ(bytes[63], 2);
  EXPECT_EQ(fake.memFree(memory), Error::Success);
}

TEST_F(FakeQueuesTest, ZerosReachNothingBesideThem) {
  constexpr size_t kRoom = 6 * 4096;
  DevicePtr memory = 0;
  ASSERT_EQ(fake.memAlloc(&memory, kRoom), Error::Success);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(memory);
  for (const auto& [first, count] :
       {std::pair<size_t, size_t>{100, 3 * 4096}, {4096, 8192}, {1, 4095}, {4095, 2}, {0, kRoom}, {5, 0}, {kRoom - 5000, 5000}}) {
    ASSERT_EQ(fake.memsetD8Async(memory, 0x5a, kRoom, a), Error::Success);
    ASSERT_EQ(fake.memsetD8Async(memory + first, 0, count, a), Error::Success);
    for (size_t i = 0; i < kRoom; ++i)
      ASSERT_EQ(bytes[i], i >= first && i < first + count ? 0 : 0x5a) << i << " of " << first << " and " << count;
  }
  EXPECT_EQ(fake.memFree(memory), Error::Success);
}

TEST_F(FakeQueuesTest, EventsAreOverWhenWhatWasBeforeThemIs) {
  EXPECT_EQ(fake.eventQuery(event), Error::Success) << "never recorded";
  block(a);
  ASSERT_EQ(fake.eventRecord(event, a), Error::Success);
  block(a);  // behind it
  EXPECT_EQ(fake.eventQuery(event), Error::NotReady);
  open();
  EXPECT_EQ(fake.eventSynchronize(event), Error::Success);
  EXPECT_EQ(fake.eventQuery(event), Error::Success);
  EXPECT_EQ(fake.streamQuery(a), Error::NotReady);
  ASSERT_EQ(fake.eventRecord(event, b), Error::Success);
  EXPECT_EQ(fake.eventQuery(event), Error::Success) << "recorded anew, where nothing is before it";
  open();
  EXPECT_EQ(fake.streamSynchronize(a), Error::Success);
}

TEST_F(FakeQueuesTest, AStreamWaitsForAnEventOfAnother) {
  std::atomic<int> done = 0;
  block(a);
  ASSERT_EQ(fake.enqueue(a, [&] { done = 1; }), Error::Success);
  ASSERT_EQ(fake.eventRecord(event, a), Error::Success);
  ASSERT_EQ(fake.streamWaitEvent(b, event, 0), Error::Success);
  int seen = -1;
  ASSERT_EQ(fake.enqueue(b, [&] { seen = done; }), Error::Success);
  ASSERT_EQ(fake.eventRecord(event, b), Error::Success) << "what waits has its own copy";
  EXPECT_EQ(fake.streamQuery(b), Error::NotReady);
  EXPECT_EQ(fake.alive().working, 2u);
  open();
  EXPECT_EQ(fake.eventSynchronize(event), Error::Success);
  EXPECT_EQ(seen, 1);
}

// Two devices' default streams are two; the driver's own calls go on while work waits, from the work as well.
TEST_F(FakeQueuesTest, NoLockIsHeldWhileWorkRuns) {
  Context other = nullptr;
  ASSERT_EQ(fake.devicePrimaryCtxRetain(&other, 1), Error::Success);
  std::binary_semaphore first{0};
  ASSERT_EQ(fake.enqueue(nullptr,
                         [&] {
                           first.acquire();
                           (void)fake.alive();
                           (void)fake.enqueue(a, [] {});
                         }),
            Error::Success);
  ASSERT_EQ(fake.ctxPushCurrent(other), Error::Success);
  ASSERT_EQ(fake.enqueue(nullptr, [&] { first.release(); }), Error::Success);
  ASSERT_EQ(fake.streamSynchronize(nullptr), Error::Success);
  ASSERT_EQ(fake.ctxPopCurrent(&other), Error::Success);
  ASSERT_EQ(fake.streamSynchronize(nullptr), Error::Success);
  EXPECT_EQ(fake.devicePrimaryCtxRelease(1), Error::Success);
}

TEST_F(FakeQueuesTest, AStreamThatIsDestroyedRunsItsWorkToTheEnd) {
  Stream gone = nullptr;
  std::atomic<bool> ran = false;
  ASSERT_EQ(fake.streamCreate(&gone, 0), Error::Success);
  block(gone);
  ASSERT_EQ(fake.enqueue(gone, [&] { ran = true; }), Error::Success);
  ASSERT_EQ(fake.eventRecord(event, gone), Error::Success);
  ASSERT_EQ(fake.streamDestroy(gone), Error::Success);
  EXPECT_EQ(fake.enqueue(gone, [] {}), Error::InvalidHandle);
  EXPECT_FALSE(fake.idle());
  open();
  EXPECT_EQ(fake.eventSynchronize(event), Error::Success);
  EXPECT_TRUE(ran);
}

TEST(FakeQueues, NoThreadIsLeft) {
  const size_t before = countThreads();
  std::atomic<int> ran = 0;
  {
    World world;
    Context context = nullptr;
    ASSERT_EQ(world.fake->devicePrimaryCtxRetain(&context, 0), Error::Success);
    ASSERT_EQ(world.fake->ctxPushCurrent(context), Error::Success);
    for (int i = 0; i < 10; ++i) {
      Stream stream = nullptr;
      ASSERT_EQ(world.fake->streamCreate(&stream, 0), Error::Success);
      ASSERT_EQ(world.fake->enqueue(stream,
                                    [&] {
                                      std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                      ++ran;
                                    }),
                Error::Success);
    }
  }
  EXPECT_EQ(ran, 10) << "the fake waits for all";
  EXPECT_EQ(countThreads(), before);
}

TEST(FakeQueues, WithoutAContextThereIsNoStream) {
  World world;
  EXPECT_EQ(world.fake->enqueue(nullptr, [] {}), Error::InvalidContext);
}

}  // namespace
}  // namespace tutti::driver::cuda::fake_queues_test
