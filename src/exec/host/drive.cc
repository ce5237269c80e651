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
template <class Handle>
class Watch {
 public:
  explicit Watch(std::span<const Handle> works) : works_(works) {}

  void moved() {
    if (works_.size() > 1 && ++rounds_ % kRoundsBetweenInspections == 0) stoodStill();
  }
  void stoodStill() {
    const Nanoseconds now = realClock().now();
    if (latest_.count() == 0) latest_ = now;  // it stands still since now
    if (now - latest_ < kBetweenInspections) return;
    latest_ = now;
    for (const auto& work : works_)
      if (!work->moved()) work->inspect(now);
  }

 private:
  std::span<const Handle> works_;
  Nanoseconds latest_{0};
  uint32_t rounds_ = 0;
};

/// What carries the pipes of the works to other hosts.
template <class Handle>
class Remotes {
 public:
  explicit Remotes(std::span<const Handle> works) : works_(works) {
    for (const auto& work : works) any_ = any_ || work->remote() != nullptr;
  }
  ~Remotes() {
    forEach([](transport::local::Remote& remote) { remote.leave(); });
  }
  Remotes(const Remotes&) = delete;
  Remotes& operator=(const Remotes&) = delete;

  bool any() const { return any_; }
  bool progress() const {
    bool moved = false;
    forEach([&moved](transport::local::Remote& remote) { moved = remote.progress() || moved; });
    return moved;
  }
  /// Short, as what is waited for may also come from this host.
  void wait() const {
    static constexpr std::chrono::microseconds kMost(50);
    forEach([](transport::local::Remote& remote) { remote.wait(kMost); });
  }

 private:
  template <class Body>
  void forEach(Body&& body) const {
    if (!any_) return;
    for (size_t i = 0; i < works_.size(); ++i)
      if (works_[i]->remote() != nullptr && (i == 0 || works_[i]->remote() != works_[i - 1]->remote())) body(*works_[i]->remote());
  }

  std::span<const Handle> works_;
  bool any_ = false;
};

/// `isTried`: all have been advanced as far as they go just now, and none is through.
template <class Handle>
void runAll(std::span<const Handle> works, int32_t spins, bool isTried) {
  // What needs nobody, or finds all that it needs, is through before a wait has to be thought of.
  if (!isTried && works.size() == 1 && works.front()->remote() == nullptr) {
    if (works.front()->advance() != Poll::Pending) return;
    isTried = true;
  }
  Waiter waiter(spins);
  const Remotes<Handle> remotes(works);
  Watch<Handle> watch(works);
  for (;; isTried = false) {
    bool pending = isTried;
    bool moved = false;
    for (size_t i = 0; !isTried && i < works.size(); ++i) {
      const Handle& work = works[i];
      if (work->advance() == Poll::Pending) pending = true;
      moved = moved || work->moved();
    }
    if (!pending) return;
    if (remotes.any()) moved = remotes.progress() || moved;
    if (moved) {
      waiter.reset();
      watch.moved();
    } else {
      bool givesWay = false;
      for (const auto& work : works)
        if (work->needsThisCore()) givesWay = true;
      waiter.pause(givesWay);
      if (!waiter.spins() && remotes.any()) remotes.wait();
      if (!waiter.spins()) watch.stoodStill();
    }
  }
}

template <class Handle>
Status abandonAll(std::span<const Handle> works) {
  for (const auto& work : works) work->abandon();
  return error(Code::SystemError, "out of memory");
}

template <class Handle>
Status driveAll(std::span<const Handle> works, int32_t spins, bool isTried) {
  try {
    runAll(works, spins, isTried);
  } catch (const std::bad_alloc&) {
    return abandonAll(works);
  }
  for (const auto& work : works)
    if (!work->status().ok()) return work->status();
  return {};
}

}  // namespace

Status drive(std::span<Work* const> works, int32_t spins, bool isTried) { return driveAll(works, spins, isTried); }

Status drive(std::span<const std::unique_ptr<Work>> works, int32_t spins) { return driveAll(works, spins, false); }

}  // namespace tutti::exec::host
