// Random schedules of communicators that come, divide, fail and go, on several threads: no hang, no wrong result or code, no leak.
// TUTTI_SCHEDULES=first-last or =seed runs others than the default ones.
#include <dirent.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "faults/schedule_driver.h"

#include <gtest/gtest.h>

namespace tutti::faults::schedules_test {
namespace {

class Runner {
 public:
  Runner(const Plan& plan, uint64_t seed) : world_(plan, seed), running_(plan.threads) {}

  /// True when everything was as it must be. A hang ends the process.
  bool run() {
    std::vector<std::thread> threads;
    for (int t = 0; t < world_.plan.threads; ++t) {
      threads.emplace_back([this, t] {
        Driver(world_, t).run();
        const std::lock_guard lock(mutex_);
        if (--running_ == 0) over_.notify_all();
      });
    }
    std::thread watcher;
    if (world_.plan.watched) watcher = std::thread([this] { watch(); });
    {
      std::unique_lock lock(mutex_);
      if (!over_.wait_for(lock, std::chrono::seconds(conformance::kStuckSeconds), [this] { return running_ == 0; })) endStuck();
    }
    for (std::thread& thread : threads) thread.join();
    done_ = true;
    if (watcher.joinable()) watcher.join();
    return world_.failures == 0;
  }

  /// Where handles lie: they are used again, oldest first, so that a leak makes them spread.
  void widen(uintptr_t& low, uintptr_t& high) const {
    for (const auto& circle : world_.handles) {
      for (const auto& handle : circle) {
        const auto address = reinterpret_cast<uintptr_t>(handle.load());
        if (address == 0) continue;
        low = std::min(low, address);
        high = std::max(high, address);
      }
    }
  }

 private:
  void endStuck() {
    std::fprintf(stderr, "\nSTUCK: schedule %llu, %d ranks on %d threads, %zu events; threads are in",
                 static_cast<unsigned long long>(world_.seed), world_.plan.ranks, world_.plan.threads, world_.plan.events.size());
    for (const auto& at : world_.at) {
      const auto i = static_cast<size_t>(at.load());
      std::fprintf(stderr, " event %zu (kind %d, circle %d)", i, static_cast<int>(world_.plan.events[i].kind),
                   world_.plan.events[i].circle);
    }
    std::fprintf(stderr, "\nlast error: %s\n", ncclGetLastError(nullptr));
    std::fflush(stderr);
    std::abort();
  }

  /// Somebody who only asks, at any time, also for communicators that end meanwhile.
  void watch() {
    Random random(world_.seed ^ 77);
    while (!done_) {
      auto& circle = world_.handles[random.below(world_.handles.size())];
      if (ncclComm_t comm = circle[random.below(circle.size())].load()) {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
        world_.expect(result == ncclSuccess || result == ncclInvalidArgument, "ncclCommGetAsyncError of the watcher", -1, -1, result);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(200)));
    }
  }

  World world_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::condition_variable over_;
  int running_;
};

int64_t entries(const char* folder) {
  DIR* dir = opendir(folder);
  int64_t n = 0;
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}

void runSchedules(uint64_t first, uint64_t last) {
  constexpr uintptr_t kHandleBytes = 16, kResting = 4096, kMostLive = 512;  // comm/handle.h
  int64_t files = 0, tasks = 0;
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const Plan plan = Planner(seed).plan();
    Runner runner(plan, seed);
    ASSERT_TRUE(runner.run()) << "schedule " << seed;
    runner.widen(low, high);
    if (seed == first) files = entries("/proc/self/fd"), tasks = entries("/proc/self/task");
  }
  EXPECT_EQ(entries("/proc/self/fd"), files);
  EXPECT_LE((high - low) / kHandleBytes, kResting + kMostLive) << "communicators that nobody ended";
  // A joined thread may take a moment to leave /proc.
  for (int tries = 0; tries < 100 && entries("/proc/self/task") > tasks; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(entries("/proc/self/task"), tasks);
}

TEST(Schedules, Random) {
  unsigned long long first = 1, last = TUTTI_SCHEDULES_DEFAULT;
  if (const char* text = std::getenv("TUTTI_SCHEDULES"))
    if (std::sscanf(text, "%llu-%llu", &first, &last) == 1) last = first;
  runSchedules(first, last);
}

}  // namespace
}  // namespace tutti::faults::schedules_test
