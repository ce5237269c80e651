#include "exec/host/drive.h"

#include <new>

#include "core/clock.h"
#include "exec/host/wait.h"

namespace tutti::exec::host {
namespace {

constexpr uint32_t kTriesBetweenInspections = 64;
constexpr uint32_t kSleepyTriesBetweenInspections = 8;  // of a thread that sleeps up to a millisecond between them
/// Where several works share the thread, one may move on and on while another waits in vain.
constexpr uint32_t kRoundsBetweenInspections = 4096;

/// Brings the works to their slow path now and then, once spinning did not help.
class Watch {
 public:
  explicit Watch(std::span<const std::unique_ptr<Work>> works) : works_(works) {}

  void moved() {
    tries_ = 0;
    if (works_.size() > 1 && ++rounds_ % kRoundsBetweenInspections == 0) inspect();
  }
  void stoodStill(bool sleeps) {
    if (++tries_ % (sleeps ? kSleepyTriesBetweenInspections : kTriesBetweenInspections) == 0) inspect();
  }

 private:
  void inspect() {
    const Nanoseconds now = realClock().now();
    for (const auto& work : works_)
      if (!work->moved()) work->inspect(now);
  }

  std::span<const std::unique_ptr<Work>> works_;
  uint32_t tries_ = 0;
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
      if (!waiter.spins()) watch.stoodStill(waiter.sleeps());
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
