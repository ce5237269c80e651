// The engine's own thread.

#include <array>

#include "core/thread.h"
#include "progress/engine.h"

namespace tutti::progress {
namespace {

constexpr int64_t kLongestTickMs = 16;
constexpr Nanoseconds kNap{50'000};
constexpr Nanoseconds kForEver{-1};

}  // namespace

Status Engine::startThread(bool isNamed) {
  auto started = tutti::startThread(isNamed ? "tutti progress" : nullptr, "that moves data between hosts", [this] { run(); });
  if (!started) return std::move(started).error();
  thread_ = std::move(*started);
  return {};
}

void Engine::kick() {
  // seq_cst: pairs with threadSleeps_ in watchQuietly(): either the thread sees the kick or it is seen asleep.
  kicks_.fetch_add(1, std::memory_order_seq_cst);
  if (threadSleeps_.load(std::memory_order_seq_cst)) threadBell_.ring();
}

/// Passes until nothing moves. The first one begins after the kick, whoever else makes one: so nothing that was left is missed.
bool Engine::runKicked() {
  bool moved = true;
  bool any = false;
  while (moved && !stop_.load(std::memory_order_relaxed)) {
    const Exclusive lock(*this);
    moved = pass();
    any = any || moved;
  }
  return any;
}

/// One sleep. While others drive, their passes are counted rarely; else it sleeps on the descriptors, for as long as nothing happens.
void Engine::watchQuietly(uint64_t& seenPasses, int64_t& tickMs) {
  const bool others = passes() != seenPasses || sleeping_.load(std::memory_order_relaxed) > 0;
  seenPasses = passes();
  if (others) {
    tickMs = std::min(tickMs * 2, kLongestTickMs);
    const std::array<int, 1> bell{threadBell_.descriptor()};
    (void)waitFor(bell, std::chrono::milliseconds(tickMs));
    return;
  }
  tickMs = 1;
  const std::array<int, 2> both{threadBell_.descriptor(), poller_.descriptor()};
  Nanoseconds most = kForEver;
  if (blindWork_.load(std::memory_order_relaxed)) most = kNap;
  if (settingUp_.load(std::memory_order_relaxed) > 0) most = blind_ ? kNap : std::chrono::milliseconds(20);
  const uint32_t ready = waitFor(both, most);
  if (passes() != seenPasses || ready == 1) return;  // others drive; or the bell alone
  if ((ready & 2) != 0) eventsWait_.store(true, std::memory_order_relaxed);
  while (progress()) {
  }
  seenPasses = passes();
}

void Engine::run() {
  uint64_t seenKicks = 0;
  uint64_t seenPasses = 0;
  int64_t tickMs = 1;
  while (!stop_.load(std::memory_order_seq_cst)) {
    const uint64_t kicks = kicks_.load(std::memory_order_seq_cst);
    if (kicks != seenKicks) {
      seenKicks = kicks;
      (void)runKicked();
      seenPasses = passes();
      network_->speak();  // the sleep may be long
    }
    threadSleeps_.store(true, std::memory_order_seq_cst);  // pairs with kick()
    if (kicks_.load(std::memory_order_seq_cst) == seenKicks && !stop_.load(std::memory_order_seq_cst)) watchQuietly(seenPasses, tickMs);
    threadSleeps_.store(false, std::memory_order_seq_cst);
    threadBell_.silence();
    network_->speak();
  }
  network_->speak();
}

}  // namespace tutti::progress
