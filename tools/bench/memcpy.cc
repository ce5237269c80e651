#include "bench/memcpy.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/barrier.h"
#include "bench/buffer.h"
#include "bench/percentile.h"

namespace tutti::bench {
namespace {

constexpr int kPasses = 9;  // the first one is not counted: it touches the pages
constexpr uint64_t kLeastTotal = uint64_t{256} << 20;
constexpr uint64_t kMostTotal = uint64_t{1} << 30;
constexpr uint64_t kCachesWorth = 8;

/// Cores that this process may use.
int countCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Bytes of all sources and destinations together.
uint64_t chooseTotal() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const uint64_t wanted = std::clamp(kCachesWorth * static_cast<uint64_t>(std::max(cache, 0L)), kLeastTotal, kMostTotal);
  const uint64_t available = availableMemory();
  return available == 0 ? wanted : std::min(wanted, available / 2);
}

struct Copier {
  Buffer source;
  Buffer destination;
  std::vector<double> seconds;
};

void copyRepeatedly(Copier& copier, uint64_t bytes, Barrier& barrier) {
  std::memset(copier.source.data(), 1, bytes);
  for (int pass = 0; pass < kPasses; ++pass) {
    if (!barrier.meet() || !barrier.meet()) return;
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(copier.destination.data(), copier.source.data(), bytes);
    copier.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}

}  // namespace

Result<MemcpyRate> measureMemcpy() {
  MemcpyRate rate;
  rate.threads = countCores();
  rate.bytesPerThread = chooseTotal() / 2 / static_cast<uint64_t>(rate.threads) / 4096 * 4096;
  std::vector<Copier> copiers(static_cast<size_t>(rate.threads));
  for (Copier& copier : copiers) {
    Result<Buffer> source = Buffer::map(rate.bytesPerThread);
    Result<Buffer> destination = Buffer::map(rate.bytesPerThread);
    if (!source || !destination) return tl::unexpected((source ? destination : source).error());
    copier.source = std::move(*source);
    copier.destination = std::move(*destination);
  }
  Barrier barrier(rate.threads);
  std::vector<std::thread> threads;
  for (Copier& copier : copiers) {
    threads.emplace_back([&copier, &barrier, bytes = rate.bytesPerThread] { copyRepeatedly(copier, bytes, barrier); });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<double> slowest;
  for (size_t pass = 1; pass < static_cast<size_t>(kPasses); ++pass) {
    double seconds = 0;
    for (const Copier& copier : copiers) seconds = std::max(seconds, copier.seconds[pass]);
    slowest.push_back(seconds);
  }
  std::sort(slowest.begin(), slowest.end());
  const double bytes = 2.0 * static_cast<double>(rate.bytesPerThread) * rate.threads;
  rate.gigabytesPerSecond = bytes / percentile(slowest, 50) / 1e9;
  return rate;
}

}  // namespace tutti::bench
