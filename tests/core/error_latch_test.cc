#include "core/error_latch.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tutti::error_latch_test {
namespace {

TEST(ErrorLatch, IsOkUntilItTrips) {
  ErrorLatch latch;
  EXPECT_FALSE(latch.tripped());
  EXPECT_EQ(latch.code(), Code::Ok);
  EXPECT_TRUE(latch.status().ok());
}

TEST(ErrorLatch, TheFirstErrorStays) {
  ErrorLatch latch;
  EXPECT_TRUE(latch.trip(error(Code::RemoteError, "rank {} is gone", 3)));
  EXPECT_FALSE(latch.trip(error(Code::SystemError, "later")));
  EXPECT_TRUE(latch.tripped());
  EXPECT_EQ(latch.code(), Code::RemoteError);
  EXPECT_EQ(latch.status().text(), "rank 3 is gone");
  EXPECT_EQ(latch.status().text(), "rank 3 is gone") << "reading takes nothing away";
}

TEST(ErrorLatch, OneOfManyThreadsIsTheFirst) {
  for (int round = 0; round < 50; ++round) {
    ErrorLatch latch;
    std::atomic<int> firsts{0};
    std::atomic<int> winner{-1};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        if (latch.trip(error(Code::InternalError, "{}", i))) {
          ++firsts;
          winner = i;
        }
        // Whoever sees the code sees the whole text.
        EXPECT_EQ(latch.code(), Code::InternalError);
        EXPECT_EQ(latch.status().text().size(), 1U);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(firsts.load(), 1);
    EXPECT_EQ(latch.status().text(), std::to_string(winner.load()));
  }
}

}  // namespace
}  // namespace tutti::error_latch_test
