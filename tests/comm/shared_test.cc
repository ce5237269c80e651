#include "comm/shared.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/process.h"

namespace tutti::comm::shared_test {
namespace {

using transport::local::Hub;

TEST(Shared, FailsAllThatStillLive) {
  Shared shared;
  const auto a = *Hub::make(2), b = *Hub::make(3);
  shared.add(a);
  shared.add(b);
  shared.add(*Hub::make(1));  // gone at once
  shared.failAll(error(Code::RemoteError, "aborted"));
  for (const auto& hub : {a, b})
    for (int32_t r = 0; r < hub->ranks(); ++r) EXPECT_EQ(hub->latch(Rank(r)).status().text(), "aborted");
}

TEST(Shared, ItsWorkerRunsInOrderAndEndsWithIt) {
  std::atomic<int> ran{0};
  std::weak_ptr<exec::host::Stream> worker;
  {
    Shared shared;
    const auto first = shared.worker();
    ASSERT_TRUE(first);
    EXPECT_EQ(*first, *shared.worker()) << "one for all";
    worker = *first;
    for (int i = 0; i < 10; ++i) (*first)->push([&ran, i] { EXPECT_EQ(ran++, i); });
  }
  EXPECT_EQ(ran, 10);
  EXPECT_TRUE(worker.expired());
}

TEST(RetiredWorkers, DoesNotWaitForWhatIsStuck) {
  RetiredWorkers retired;
  std::atomic<bool> go{false};
  auto stuck = std::make_shared<exec::host::Stream>();
  ASSERT_TRUE(stuck->start().ok());
  stuck->push([&go] {
    while (!go) std::this_thread::yield();
  });
  retired.add(stuck);
  EXPECT_EQ(retired.size(), 1U) << "kept, not waited for";
  go = true;
  stuck->synchronize();
  while (!stuck->idle()) std::this_thread::yield();
  auto idle = std::make_shared<exec::host::Stream>();
  ASSERT_TRUE(idle->start().ok());
  retired.add(std::move(idle));
  EXPECT_EQ(retired.size(), 0U) << "both have ended";
  EXPECT_TRUE(stuck->isStopped());
}

}  // namespace
}  // namespace tutti::comm::shared_test
