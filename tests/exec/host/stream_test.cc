#include "exec/host/stream.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tutti::exec::host::stream_test {
namespace {

TEST(Stream, RunsItemsInOrderOnItsOwnThread) {
  Stream stream;
  ASSERT_TRUE(stream.start().ok());
  std::vector<int> seen;
  std::thread::id where;
  for (int i = 0; i < 100; ++i)
    stream.push([&seen, &where, i] {
      seen.push_back(i);
      where = std::this_thread::get_id();
    });
  stream.synchronize();
  ASSERT_EQ(seen.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(Stream, CarriesTheNameItWasGiven) {
  Stream stream;
  ASSERT_TRUE(stream.start("tutti test").ok());
  char text[16] = {};
  stream.push([&text] { pthread_getname_np(pthread_self(), text, sizeof text); });
  stream.synchronize();
  // The thread may run before it is named, but not for ever.
  for (int i = 0; i < 100 && std::string(text) != "tutti test"; ++i) {
    stream.push([&text] { pthread_getname_np(pthread_self(), text, sizeof text); });
    stream.synchronize();
  }
  EXPECT_STREQ(text, "tutti test");
}

TEST(Stream, SynchronizeWaitsForTheItemThatRuns) {
  Stream stream;
  ASSERT_TRUE(stream.start().ok());
  std::promise<void> go;
  std::atomic<bool> done{false};
  stream.push([&] {
    go.get_future().wait();
    done.store(true);
  });
  EXPECT_FALSE(stream.idle());
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    go.set_value();
  });
  stream.synchronize();
  EXPECT_TRUE(done.load());
  opener.join();
}

TEST(Stream, SynchronizeDoesNotWaitForWhatIsPushedLater) {
  Stream stream;
  ASSERT_TRUE(stream.start().ok());
  std::atomic<bool> over{false};
  std::function<void()> again = [&] {  // there is always something behind
    if (!over.load()) stream.push(again);
  };
  stream.push(again);
  auto synchronized = std::async(std::launch::async, [&] { stream.synchronize(); });
  const bool returned = synchronized.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  EXPECT_FALSE(stream.idle());
  over.store(true);
  EXPECT_TRUE(returned);
  stream.stop();  // before what its items refer to goes
}

TEST(Stream, AnEmptyStreamIsIdleAndSynchronizesAtOnce) {
  Stream stream;
  ASSERT_TRUE(stream.start().ok());
  EXPECT_TRUE(stream.idle());
  stream.synchronize();
}

TEST(Stream, StopRunsEverythingThatWasPushed) {
  std::atomic<int> ran{0};
  Stream stream;
  ASSERT_TRUE(stream.start().ok());
  for (int i = 0; i < 50; ++i) stream.push([&ran] { ++ran; });
  stream.stop();
  EXPECT_EQ(ran.load(), 50);
  EXPECT_TRUE(stream.isStopped());
  stream.stop();  // again is no harm
}

TEST(Stream, StopsWithoutHavingStarted) {
  Stream stream;
  stream.stop();
}

TEST(Stream, ReleasesAnItemBeforeItCountsAsRun) {
  Stream stream;
  ASSERT_TRUE(stream.start().ok());
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  stream.push([item = std::move(held)] { (void)*item; });
  stream.stop();
  EXPECT_TRUE(watch.expired());
}

TEST(Stream, KeepsTheFirstErrorUntilItIsTaken) {
  Stream stream;
  EXPECT_TRUE(stream.takeError().ok());
  stream.fail(error(Code::RemoteError, "first"));
  stream.fail(error(Code::SystemError, "second"));
  const Status taken = stream.takeError();
  EXPECT_EQ(taken.code(), Code::RemoteError);
  EXPECT_EQ(taken.text(), "first");
  EXPECT_TRUE(stream.takeError().ok()) << "taken once";
  stream.fail(error(Code::SystemError, "third"));
  EXPECT_EQ(stream.takeError().text(), "third");
}

TEST(Stream, ManyThreadsPushAndSynchronize) {
  Stream stream;
  ASSERT_TRUE(stream.start().ok());
  int64_t sum = 0;  // touched by the stream's thread alone until the end
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        bool ran = false;
        stream.push([&] {
          ++sum;
          ran = true;
        });
        stream.synchronize();
        ASSERT_TRUE(ran);
      }
    });
  }
  for (auto& t : threads) t.join();
  stream.stop();
  EXPECT_EQ(sum, 1200);
}

}  // namespace
}  // namespace tutti::exec::host::stream_test
