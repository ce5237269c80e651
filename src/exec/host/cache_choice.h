// Whether calls like one another store their results past the cache, by how long such calls have lately taken.
//
// Owner: a HostPlan; used by the thread that runs the rank's plans.
// How much of the last-level cache a call has depends on who else uses it, on a virtual machine also on others that it does not see: of
// calls whose buffers take a half to twice of it, one way takes twice as long on some days, the other 1.4 times on others (decision 0083).
// So both are tried.
// 1. Ranks wait for each other, so that they try the same way at the same calls: all make these, and count them. Where the plan of one rank
//    is made anew, and its count begins again, trials say less. What it concludes is a rank's own affair.
// 2. The first call of a trial meets lines where the other way has left them, and does not count. Of the others the fastest does: whatever
//    else happens makes a call longer.
// 3. Nothing that is computed depends on it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace tutti::exec::host {

class CacheChoice {
 public:
  static constexpr uint64_t kTries = 4;     ///< calls of a trial of one way
  static constexpr uint64_t kPeriod = 512;  ///< from one trial of both ways to the next, in calls
  /// Past the cache a call has to take less than this part of its time through it: whoever reads the result then fetches it from memory,
  /// which is a part of what the call saves. A guess, not measured.
  static constexpr double kWorth = 0.9;

  struct Call {
    uint64_t number = 0;
    bool isPast = false;  ///< how to store its results
  };

  Call begin() {
    const uint64_t at = calls_ % kPeriod;
    if (at == 0) shortestNs_ = {kUnknown, kUnknown};
    if (at == 2 * kTries) conclude();
    const bool isPast = at < 2 * kTries ? at >= kTries : prefersPast_;
    return {calls_++, isPast};
  }
  /// A call that failed is not told of.
  void end(const Call& call, int64_t tookNs) {
    const uint64_t at = call.number % kPeriod;
    if (at >= 2 * kTries || at % kTries == 0) return;
    int64_t& shortest = shortestNs_[call.isPast ? 1 : 0];
    shortest = std::min(shortest, tookNs);
  }
  bool prefersPast() const { return prefersPast_; }

 private:
  static constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

  void conclude() {
    const auto [through, past] = shortestNs_;
    if (through == kUnknown || past == kUnknown) return;
    prefersPast_ = static_cast<double>(past) < kWorth * static_cast<double>(through);
  }

  uint64_t calls_ = 0;
  std::array<int64_t, 2> shortestNs_{kUnknown, kUnknown};  // of the latest trials: through the cache, past it
  bool prefersPast_ = false;
};

}  // namespace tutti::exec::host
