// What communicators cost that do nothing yet: their set-up, and their idling.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "faults/process_ranks.h"

namespace tutti::faults::cost_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
using Self = ProcessRanks::Self;

double processorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// A communicator that has worked and is left alone: the share of a core that it takes.
double expectIdle(ncclComm_t comm, int ranks) {
  for (const size_t count : {size_t{1}, size_t{300'000}}) EXPECT_EQ(sumOnce(comm, ranks, count), ok) << ncclGetLastError(comm);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  constexpr double kSeconds = 2;
  const double before = processorSeconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  const double share = (processorSeconds() - before) / kSeconds;
  EXPECT_LT(share, 0.005 * kSlow) << "of a core";
  return share;
}

/// `network`: of ranks that are on hosts of their own.
void expectIdleProcesses(const char* network) {
  ProcessRanks children(2, [=](Self& self) {
    if (network != nullptr) {
      setenv("NCCL_HOSTID", std::to_string(self.index()).c_str(), 1);
      setenv("NCCL_NET_PLUGIN", "example", 1);
      setenv("NCCL_NET", network, 1);  // without it there is no communicator
    }
    ncclComm_t comm = joinAll(self);
    self.note(0, static_cast<int64_t>(1e9 * expectIdle(comm, 2)));
    EXPECT_EQ(ncclCommDestroy(comm), ok);
  });
  children.expectAllWell();
  for (int child = 0; child < 2; ++child) std::printf("%.3f%% of a core\n", 1e-7 * static_cast<double>(children.number(child, 0)));
}

TEST(Cost, InitOfTwoProcesses) {
  ProcessRanks children(2, [](Self& self) {
    constexpr int kRounds = 11;
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) {
      const ncclUniqueId id = self.freshId();
      self.meet(100 + round);
      const Stopwatch watch;
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 2, id, self.index()), ok) << ncclGetLastError(nullptr);
      seconds.push_back(watch.seconds());
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    }
    std::sort(seconds.begin(), seconds.end());
    self.note(0, static_cast<int64_t>(1e9 * seconds[kRounds / 2]));
    EXPECT_LT(seconds[kRounds / 2], 0.03 * kSlow);
  });
  children.expectAllWell();
  for (int child = 0; child < 2; ++child) std::printf("median %.1f ms\n", 1e-6 * static_cast<double>(children.number(child, 0)));
}

/// Of processes that have done nothing before, ascending.
std::vector<double> firstInits(int rounds) {
  std::vector<double> seconds;
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    ProcessRanks children(2, [](Self& self) {
      const ncclUniqueId id = self.freshId();
      self.meet(1);
      const Stopwatch watch;
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 2, id, self.index()), ok) << ncclGetLastError(nullptr);
      self.note(0, static_cast<int64_t>(1e9 * watch.seconds()));
      EXPECT_EQ(ncclCommDestroy(comm), ok);
    });
    children.expectAllWell();
    seconds.push_back(1e-9 * static_cast<double>(std::max(children.number(0, 0), children.number(1, 0))));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

/// The median of nine is below 30 ms, and the best of them below 15: on two cores they are 8 to 11 and 7 to 8. Where the machine is busy
/// with something else, the best of up to three medians counts.
TEST(Cost, FirstInitOfTwoProcesses) {
  constexpr int kRounds = 9, kTries = 3;
  double best = 1e9, median = 1e9;
  for (int i = 0; i < kTries && (median >= 0.03 * kSlow || best >= 0.015 * kSlow); ++i) {
    const std::vector<double> seconds = firstInits(kRounds);
    ASSERT_EQ(seconds.size(), static_cast<size_t>(kRounds));
    std::printf("%.1f to %.1f, median %.1f ms\n", 1e3 * seconds.front(), 1e3 * seconds.back(), 1e3 * seconds[kRounds / 2]);
    best = std::min(best, seconds.front());
    median = std::min(median, seconds[kRounds / 2]);
  }
  EXPECT_LT(median, 0.03 * kSlow);
  EXPECT_LT(best, 0.015 * kSlow);  // 18 ms where the kernel makes the process wait before it takes barriers
}

TEST(Cost, IdleProcesses) { expectIdleProcesses(nullptr); }
TEST(Cost, IdleHosts) { expectIdleProcesses("Socket"); }
TEST(Cost, IdleHostsOverAPlugin) { expectIdleProcesses("Example"); }

// Behind those that fork.
TEST(Cost, IdleThreads) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
  std::thread other([&] {
    for (const size_t count : {size_t{1}, size_t{300'000}}) EXPECT_EQ(sumOnce(comms[1], 2, count), ok);
  });
  std::printf("%.3f%% of a core\n", 100 * expectIdle(comms[0], 2));
  other.join();
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
}

/// Seconds until all of them have their communicator.
double initAllAsThreads(int ranks) {
  ncclUniqueId id;
  const Stopwatch watch;
  EXPECT_EQ(ncclGetUniqueId(&id), ok);
  std::vector<ncclComm_t> comms(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] { EXPECT_EQ(ncclCommInitRank(&comms[static_cast<size_t>(r)], ranks, id, r), ok); });
  for (auto& thread : threads) thread.join();
  const double seconds = watch.seconds();
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok);
  std::printf("%d threads: %.2f s\n", ranks, seconds);
  return seconds;
}

/// As above, the best of up to three.
TEST(Cost, InitOf512Threads) {
  constexpr int kTries = 3;
  double best = 1e9;
  for (int i = 0; i < kTries && best >= 3 * kSlow && !HasFailure(); ++i) best = std::min(best, initAllAsThreads(512));
  EXPECT_LT(best, 3 * kSlow);
}

}  // namespace
}  // namespace tutti::faults::cost_test
