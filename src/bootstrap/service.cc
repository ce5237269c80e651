#include "bootstrap/service.h"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "bootstrap/core.h"
#include "bootstrap/job.h"
#include "bootstrap/seal.h"

namespace tutti::bootstrap {

Participant::Participant(std::shared_ptr<Job> job, Rank rank, Limits limits)
    : job_(std::move(job)), rank_(rank), waiting_(limits.waiting) {}

Participant::Participant(Rank rank, Status refused) : rank_(rank), refused_(std::move(refused)) {}

Participant::~Participant() {
  if (job_ && job_->core()->isOfThisProcess() && !job_->isOver()) end(error(Code::RemoteError, "rank {} gave up", rank_.value));
}

std::optional<Result<std::shared_ptr<const Roster>>> Participant::poll() const {
  if (!job_) return tl::unexpected(refused_);
  if (!job_->core()->isOfThisProcess())
    return fail(Code::InvalidUsage, "rank {} joined in the process that this one was forked from", rank_.value);
  if (auto outcome = job_->poll()) return outcome;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - since_);
  if (waiting_.count() == 0 || waited < waiting_) return std::nullopt;
  {
    const std::lock_guard lock(job_->core()->mutex);
    job_->fail(
        error(Code::RemoteError, "rank {} has waited for {} ms: {} have not come", rank_.value, waited.count(), job_->describeMissing()));
  }
  letItBeSaid();
  if (Status known = failure(); !known.ok()) return tl::unexpected(std::move(known));
  return job_->poll();
}

Status Participant::failure() const { return job_ && job_->core()->isOfThisProcess() ? job_->failure() : refused_; }

void Participant::end(const Status& cause) {
  if (!job_ || !job_->core()->isOfThisProcess()) return;
  const bool isGivenUp = !job_->isOver();
  {
    const std::lock_guard lock(job_->core()->mutex);
    job_->end(rank_, cause);
  }
  if (isGivenUp || job_->hasUnsaid()) letItBeSaid();
}

/// The process may end right away: the others are to hear why, and not that it has gone.
void Participant::letItBeSaid() const {
  constexpr std::chrono::milliseconds kMost(500), kLook(1);
  const auto until = std::chrono::steady_clock::now() + kMost;
  if (!job_->core()->reactor.settle(kMost)) return;
  while (job_->hasUnsaid() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(kLook);
}

std::string Participant::describeMissing() const {
  if (!job_ || job_->isOver() || !job_->core()->isOfThisProcess()) return "no rank";
  const std::lock_guard lock(job_->core()->mutex);
  return job_->describeMissing();
}

/// What belongs to one process.
struct Service::Box {
  std::shared_ptr<Core> core;
};

Service::Service(World world) : world_(std::move(world)), box_(new Box{std::make_shared<Core>(world_, prepareCrypto())}) {}

Service::~Service() {
  Box* const box = box_.load(std::memory_order_acquire);
  if (!box->core->isOfThisProcess()) return;  // the parent's: its locks may be held by threads that are not here
  box->core->shutDown();
  delete box;
}

/// In a forked child the parent's core is left where it is, and never looked at again.
Core& Service::core() {
  Box* box = box_.load(std::memory_order_acquire);
  if (box->core->isOfThisProcess()) [[likely]]
    return *box->core;
  auto fresh = std::make_unique<Box>(Box{std::make_shared<Core>(world_, prepareCrypto())});
  if (box_.compare_exchange_strong(box, fresh.get(), std::memory_order_acq_rel)) return *fresh.release()->core;
  return *box->core;  // another thread was faster
}

Result<UniqueIdBytes> Service::makeId() { return core().makeId(); }

std::shared_ptr<Participant> Service::join(std::span<const UniqueIdBytes> ids, int32_t ranks, Rank rank, const Note& note,
                                           MakeShared makeShared, Limits limits) {
  return core().join(ids, ranks, rank, note, std::move(makeShared), limits);
}

uint64_t Service::hashOf(const UniqueIdBytes& id) {
  const auto decoded = UniqueId::decode(id);
  return decoded ? decoded->hash : 0;
}

bool Service::isIdle() const { return !box_.load(std::memory_order_acquire)->core->reactor.isRunning(); }

Traffic Service::traffic() const { return box_.load(std::memory_order_acquire)->core->reactor.traffic(); }

}  // namespace tutti::bootstrap
