// Whether a writer stores a value through its cache or past it, by what each has lately taken.
//
// Owner: the Connections of a rank, one for each peer and one for results; used by the thread that runs the rank's plans.
// Where reader and writer share a cache, a value is best stored through it: the reader finds it there. Where they do not, as on two
// chiplets or sockets, every line that is written again has to come back from the reader's side first, and a value takes four to five times
// as long as when it goes straight to memory. Which of the two it is shows in the writer's own time alone: on an EPYC to store 16 to 256
// KiB past the cache is 0.9 to 3.5 times as fast near a reader, and 5 to 20 times as fast far from it. Virtual cores move, so it is found
// out on the way:
// 1. Values of a size class (powers of two) are compared with each other. Of each way the faster of the last two counts: a writer that lost
//    its core for a moment has learned nothing.
// 2. The way that is not in use is tried again from time to time, twice in a row: soon after a change, as memory is slow when it is used
//    first, and less and less often when nothing changes.
// 3. Nothing that is computed depends on it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

namespace tutti::transport::local {

class StoreChoice {
 public:
  /// How many times as fast must be what goes past the cache, or its reader loses more than that: of values below 64 KiB, and of others.
  using Worth = std::array<float, 2>;
  static constexpr Worth kWorthOfValues{5.F, 2.5F};
  /// Of results, whose time is also that of combining them: seen 0.7 to 1.2 near the others, 2.5 to 4 far from them.
  static constexpr Worth kWorthOfResults{1.6F, 1.6F};
  static constexpr uint64_t kLeastBytes = 8192;  ///< shorter values have their lines fetched ahead of time
  static constexpr int64_t kTrySoonNs = 1'000'000;
  static constexpr int64_t kTryAgainNs = 64'000'000;

  /// A clock for it.
  static int64_t nowNs() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

  explicit StoreChoice(const Worth& worth = kWorthOfValues) : worth_(worth) {}

  /// Whether the next value, of kLeastBytes or more, is to go past the cache. `nowNs`: a clock that never goes back.
  bool isPast(uint64_t bytes, int64_t nowNs) {
    Class& of = classOf(bytes);
    if (of.triesLeft == 0 && nowNs >= of.tryAtNs) of.triesLeft = kTries;
    return of.prefersPast != (of.triesLeft > 0);
  }
  /// The same of a value whose storing is not measured.
  bool prefersPast(uint64_t bytes) { return bytes >= kLeastBytes && classOf(bytes).prefersPast; }
  /// The value that isPast() was asked about last took so long to store.
  void took(uint64_t bytes, bool isPast, int64_t beganNs, int64_t endedNs) {
    Class& of = classOf(bytes);
    std::array<float, kTries>& latest = isPast ? of.past : of.through;
    std::copy_backward(latest.begin(), latest.end() - 1, latest.end());
    latest.front() = static_cast<float>(endedNs - beganNs) / static_cast<float>(bytes);
    const bool endsTries = of.triesLeft == 1;
    if (of.triesLeft > 0 && --of.triesLeft > 0) return;
    const bool prefersPast = fastest(of.through) > worth_[bytes < 65536 ? 0 : 1] * fastest(of.past);
    const bool changes = std::exchange(of.prefersPast, prefersPast) != prefersPast;
    if (changes) of.pauseNs = kTrySoonNs;
    if (changes || endsTries) of.tryAtNs = endedNs + of.pauseNs;
    if (endsTries && !changes) of.pauseNs = std::min(2 * of.pauseNs, kTryAgainNs);
  }

 private:
  static constexpr int kTries = 2;
  static constexpr int kClasses = 8;

  struct Class {
    std::array<float, kTries> through{};  // the last values: nanoseconds a byte; 0: none yet
    std::array<float, kTries> past{kNever, kNever};
    int64_t tryAtNs = std::numeric_limits<int64_t>::min();
    int64_t pauseNs = kTrySoonNs;
    int triesLeft = 0;
    bool prefersPast = false;
  };
  static constexpr float kNever = std::numeric_limits<float>::max();

  static float fastest(const std::array<float, kTries>& latest) { return *std::min_element(latest.begin(), latest.end()); }
  Class& classOf(uint64_t bytes) {
    constexpr int kFirst = std::bit_width(kLeastBytes);
    return classes_[static_cast<size_t>(std::clamp(static_cast<int>(std::bit_width(bytes)) - kFirst, 0, kClasses - 1))];
  }

  Worth worth_;
  std::array<Class, kClasses> classes_;
};

}  // namespace tutti::transport::local
