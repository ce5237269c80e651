#include "comm/process.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "observe/log.h"

namespace tutti::comm::process_test {
namespace {

TEST(StreamTable, KnowsItsLiveStreams) {
  StreamTable table;
  const auto handle = table.create();
  ASSERT_TRUE(handle);
  const auto stream = table.find(*handle);
  ASSERT_NE(stream, nullptr);
  bool ran = false;
  stream->push([&] { ran = true; });
  stream->synchronize();
  EXPECT_TRUE(ran);
  EXPECT_EQ(table.remove(*handle), stream);
  EXPECT_EQ(table.find(*handle), nullptr);
  EXPECT_EQ(table.remove(*handle), nullptr) << "twice";
  stream->stop();
}

TEST(StreamTable, RefusesWhatIsNone) {
  StreamTable table;
  int local = 0;
  for (void* value : {static_cast<void*>(nullptr), static_cast<void*>(&local), reinterpret_cast<void*>(2)}) {
    EXPECT_EQ(table.find(value), nullptr);
    EXPECT_EQ(table.remove(value), nullptr);
  }
}

/// Asks for the thread's state when thread-local objects are destroyed: after it, where it was made before it.
struct AsksLate {
  AsksLate() = default;
  ~AsksLate() {
    if (told == nullptr) return;
    ThreadState& state = thisThread();
    *told = state.hostDevice;
    state.hostDevice = 7;
    state.group.start();
    if (thisThread().hostDevice != 7 || !thisThread().group.isOpen()) *told = -2;
  }
  int* told = nullptr;
};

TEST(Process, AThreadThatEndsMayStillAsk) {
  int told = 5;
  std::thread([&told] {
    thread_local AsksLate late;
    late.told = &told;  // constructed before the state, so destroyed after it
    thisThread().hostDevice = 3;
    noteLoneCall();
  }).join();
  EXPECT_EQ(told, -1) << "a state of its own, which no earlier call has touched";
}

TEST(Process, IsOneForAllThreads) {
  Process* other = nullptr;
  std::thread thread([&] { other = &process(); });
  thread.join();
  EXPECT_EQ(other, &process());
}

TEST(Process, SaysOnceWhatIsSetInVain) {
  setenv("NCCL_NTHREADS", "256", 1);
  Process one;
  one.tellEffects();
  EXPECT_NE(std::string(observe::lastErrorText()).find("NCCL_NTHREADS=256 has no effect"), std::string::npos) << observe::lastErrorText();
  observe::warn("another one");
  one.tellEffects();
  EXPECT_EQ(std::string(observe::lastErrorText()), "another one");
  unsetenv("NCCL_NTHREADS");
}

TEST(ThreadState, EveryThreadHasItsOwn) {
  thisThread().hostDevice = 5;
  thisThread().group.start();
  std::thread thread([] {
    EXPECT_EQ(thisThread().hostDevice, -1);
    EXPECT_FALSE(thisThread().group.isOpen());
  });
  thread.join();
  EXPECT_EQ(thisThread().hostDevice, 5);
  EXPECT_TRUE(thisThread().group.end().ok());
}

}  // namespace
}  // namespace tutti::comm::process_test
