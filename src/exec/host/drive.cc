#include "exec/host/drive.h"

#include <new>

#include "core/clock.h"
#include "exec/host/wait.h"

namespace tutti::exec::host {
namespace {

/// By the clock and not by tries: on a busy machine a thread may get few of them.
constexpr Nanoseconds kBetweenInspections = std::chrono::microseconds(100);
/// Where several works share the thread, one may move on and on while another waits in vain.
constexpr uint32_t kRoundsBetweenInspections = 4096;

/// Brings the works to their slow path now and then, once spinning did not help.
class Watch {
 public:
  explicit Watch(std::span<const std::unique_ptr<Work>> works) : works_(works) {}

  void moved() {
    if (works_.size() > 1 && ++rounds_ % kRoundsBetweenInspections == 0) stoodStill();
  }
  void stoodStill() {
    const Nanoseconds now = realClock().now();
    if (now - latest_ < kBetweenInspections) return;
    latest_ = now;
    for (const auto& work : works_)
      if (!work->moved()) work->inspect(now);
  }

 private:
  std::span<const std::unique_ptr<Work>> works_;
  Nanoseconds latest_{0};
  uint32_t rounds_ = 0;
};

void runAll(std::span<const std::unique_ptr<Work>> works, int32_t spins) {
  Waiter waiter(spins);
  Watch watch(works);
  for (;;) {
    bool pending = false;
    bool moved = false;
    for (const auto& work : works) {
      if (work->advance() == Poll::Pending) pending = true;
      moved = moved || work->moved();
    }
    if (!pending) return;
    if (moved) {
      waiter.reset();
      watch.moved();
    } else {
      waiter.pause();
      if (!waiter.spins()) watch.stoodStill();
    }
  }
}

}  // namespace

Status drive(std::span<const std::unique_ptr<Work>> works, int32_t spins) {
  try {
    runAll(works, spins);
  } catch (const std::bad_alloc&) {
    for (const auto& work : works) work->abandon();
    return error(Code::SystemError, "out of memory");
  }
  for (const auto& work : works)
    if (!work->status().ok()) return work->status();
  return {};
}

}  // namespace tutti::exec::host
