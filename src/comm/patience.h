// How long this process waits for other ranks, and what it says meanwhile.
//
// Owner: whoever waits; one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/params.h"
#include "core/clock.h"
#include "core/format.h"
#include "core/status.h"
#include "observe/log.h"

namespace tutti::comm {

/// The longest that a wait may last, and what set that.
struct WaitLimit {
  int64_t ms = 0;  ///< 0: for ever
  std::string_view setBy = "TUTTI_TIMEOUT_MS or tuttiCommSetTimeout";
};

class Patience {
 public:
  /// `call`: what waits, for the warning; whoever gets the error knows. Outlives it.
  explicit Patience(Clock& clock, std::string_view call = {}) : clock_(clock), call_(call) {}
  void begin() { since_ = clock_.now(); }

  /// RemoteError once a wait that began with begin() has lasted longer than it may. When it has lasted for
  /// TUTTI_WARN_MS, a warning, once. `who` says who waits, `describeMissing()` what for.
  template <class DescribeMissing>
  Status look(std::string_view who, WaitLimit limit, DescribeMissing&& describeMissing) {
    const int64_t waitedMs = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - since_).count();
    if (limit.ms > 0 && waitedMs >= limit.ms)
      return error(Code::RemoteError, "{} has waited for {} ms, longer than {} allows: {}", who, waitedMs, limit.setBy, describeMissing());
    const int64_t silenceMs = config::get<config::Param::TuttiWarnMs>();
    if (warned_ || silenceMs <= 0 || waitedMs < silenceMs) return {};
    warned_ = true;
    observe::warn("{}{}{} has waited for {} s: {}", call_, call_.empty() ? "" : ": ", who, waitedMs / 1000, describeMissing());
    return {};
  }

 private:
  Clock& clock_;
  const std::string_view call_;
  Nanoseconds since_{0};
  bool warned_ = false;
};

}  // namespace tutti::comm
