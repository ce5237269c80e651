#include "comm/process.h"

#include <gtest/gtest.h>

#include <thread>

namespace tutti::comm {
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

TEST(Process, IsOneForAllThreads) {
  Process* other = nullptr;
  std::thread thread([&] { other = &process(); });
  thread.join();
  EXPECT_EQ(other, &process());
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
}  // namespace tutti::comm
