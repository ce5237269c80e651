#include "exec/host/drive.h"

#include <chrono>

#include "exec/host/wait.h"

namespace tutti::exec::host {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr uint32_t kTriesBetweenInspections = 64;
constexpr std::chrono::seconds kSilence{10};  // a wait this long is explained, once

/// The slow path of a wait: looks for reasons why it may never end, and says so when it lasts.
class Watch {
 public:
  void reset() { tries_ = 0; }

  void look(std::span<const std::unique_ptr<Work>> works) {
    if (++tries_ % kTriesBetweenInspections != 0) return;
    for (const auto& work : works) work->inspect();
    const auto now = SteadyClock::now();
    if (tries_ == kTriesBetweenInspections) {
      since_ = now;
      warned_ = false;
    }
    if (warned_ || now - since_ < kSilence) return;
    warned_ = true;
    for (const auto& work : works) work->warnOfWait(kSilence.count());
  }

 private:
  uint32_t tries_ = 0;
  SteadyClock::time_point since_;
  bool warned_ = false;
};

}  // namespace

Status drive(std::span<const std::unique_ptr<Work>> works, int32_t spins) {
  Waiter waiter(spins);
  Watch watch;
  for (;;) {
    bool pending = false;
    bool moved = false;
    for (const auto& work : works) {
      if (work->advance() == Poll::Pending) pending = true;
      moved = moved || work->moved();
    }
    if (!pending) break;
    if (moved) {
      waiter.reset();
      watch.reset();
    } else {
      waiter.pause();
      watch.look(works);
    }
  }
  for (const auto& work : works)
    if (!work->status().ok()) return work->status();
  return {};
}

}  // namespace tutti::exec::host
