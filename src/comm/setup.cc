#include "comm/setup.h"

#include <algorithm>
#include <new>
#include <utility>

#include "comm/process.h"
#include "comm/settings.h"
#include "config/params.h"
#include "core/format.h"
#include "core/thread.h"
#include "observe/log.h"
#include "transport/device/endpoint.h"

namespace tutti::comm {
namespace {

/// A communicator is made, or not, at some time also where calls may wait for ever: a rank that has not come by then never will.
WaitLimit limitOf(int64_t ofCallsMs) {
  const int64_t ownMs = std::max<int64_t>(0, config::get<config::Param::TuttiInitTimeoutMs>());
  if (ofCallsMs > 0 && (ownMs == 0 || ofCallsMs <= ownMs)) return {ofCallsMs};
  return {ownMs, "TUTTI_INIT_TIMEOUT_MS"};
}

}  // namespace

Setup::Setup(const char* function, Clock& clock, int64_t ofCallsMs)
    : callName(function), limit_(limitOf(ofCallsMs)), patience_(clock, function) {}

Status Setup::start() {
  const std::lock_guard lock(mutex_);
  if (poll_ != Poll::Pending) return status_;  // somebody gave it up before it began
  patience_.begin();
  Status status = arrive();
  if (!status.ok()) (void)fail(status);
  return status;
}

Poll Setup::advance() {
  const std::lock_guard lock(mutex_);
  if (poll_ != Poll::Pending || encounter == nullptr) return poll_;  // over, or not started
  if (isFinished_) return settleAll();
  auto outcome = encounter->poll();
  if (!outcome) {
    Status cause = inspect();
    if (cause.ok()) cause = explainWait();
    if (cause.ok()) return poll_;
    outcome = encounter->poll();  // the last may have come, and gone, in between
    if (!outcome) return fail(encounter->failure().ok() ? std::move(cause) : encounter->failure());
  }
  if (!*outcome) return fail(std::move(*outcome).error());
  if ((*outcome)->place.hasFailed) return heed(**outcome);
  isTaken_ = true;
  Status status;
  try {
    status = finish(std::move(**outcome));
  } catch (const std::bad_alloc&) {
    status = Status(Code::SystemError, "out of memory");
  }
  if (!status.ok()) return fail(std::move(status));
  isFinished_ = true;
  return settleAll();
}

/// One of those who have come will not take part, and says why at the hub.
Poll Setup::heed(const Outcome& outcome) {
  const ErrorLatch& latch = outcome.hub->latch(outcome.place.rank);
  Status cause = latch.tripped() ? latch.status() : inspect();
  if (cause.ok())
    cause = patience_.look(format("rank {}", nameOf(place).value), limit_, [] { return "one that will not take part has not said why"; });
  return cause.ok() ? poll_ : fail(std::move(cause));
}

Poll Setup::settleAll() {
  Status cause;
  const Poll poll = settle(cause);
  if (poll == Poll::Pending) cause = explainWait();
  if (poll == Poll::Failed || !cause.ok()) return fail(std::move(cause));
  return poll == Poll::Ready ? poll_ = Poll::Ready : poll;
}

Status Setup::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Setup::giveUp(const Status& cause) {
  const std::lock_guard lock(mutex_);
  if (poll_ == Poll::Pending) {
    (void)fail(cause);
  } else if (poll_ == Poll::Ready) {
    encounter->end(cause);
  }
}

Poll Setup::fail(Status cause) {
  status_ = std::move(cause);
  poll_ = Poll::Failed;
  if (encounter == nullptr) return poll_;
  // Nobody is left waiting for a rank that will not come.
  try {
    encounter->end(error(status_.code(), "another rank failed in {}: {}", callName, status_.text()));
    if (!isTaken_) forgo();
  } catch (const std::bad_alloc&) {
    observe::warn("{}: no memory to tell the other ranks", callName);
  }
  return poll_;
}

/// The others may have opened their GPUs, and keep their memory until this rank has left.
void Setup::forgo() const {
  const auto outcome = encounter->poll();
  if (!outcome || !*outcome || (*outcome)->hub == nullptr || (*outcome)->place.multiprocessors == 0) return;
  transport::device::Endpoint::forgo(*(*outcome)->hub, (*outcome)->place.rank);
}

std::string Setup::describeMissing() const {
  if (!isFinished_) return format("{} have not come", encounter->describeMissing(members));
  return format("rank {} has not opened its GPU", unsettled().value);
}

Status Setup::explainWait() {
  return patience_.look(format("rank {}", nameOf(place).value), limit_, [this] { return describeMissing(); });
}

namespace {

class Join final : public Setup {
 public:
  Join(Communicator& comm, ncclComm* handle, const JoinRequest& request, Clock& clock)
      : Setup(request.function, clock, config::get<config::Param::TuttiTimeoutMs>()),
        comm_(comm),
        handle_(handle),
        ids_(request.ids),
        failed_(request.failed) {}

 private:
  Status arrive() override {
    place = comm_.rank();
    log("START");
    const Config& config = comm_.config();
    Arrival arrival{0, place.value, config.minCtas, config.maxCtas, availableCores()};
    Status described = failed_.ok() ? comm_.describe(arrival) : failed_;
    arrival.hasFailed = described.ok() ? 0 : 1;
    arrival.constants = process().constants.digest();
    encounter = process().foundations.join(process().bootstrap, ids_, comm_.ranks(), place, arrival,
                                           {config.network, {comm_.hash(), config.trafficClass}});
    if (!described.ok()) return described;   // the others are told
    const auto refused = encounter->poll();  // at once: an id that is none, a rank that is there already
    return refused && !*refused ? refused->error() : Status();
  }
  Status inspect() override { return {}; }
  Status finish(Outcome outcome) override { return comm_.open(outcome); }
  Poll settle(Status& cause) override {
    const Poll poll = comm_.connectGpu(cause);
    if (poll == Poll::Ready) log("COMPLETE");
    return poll;
  }
  Rank unsettled() const override { return comm_.missingOnGpu(); }

  void log(const char* what) const {
    observe::info(observe::Subsys::Init, "{} comm {} rank {} nranks {} cudaDev {} commId 0x{:x} - Init {}", callName,
                  static_cast<void*>(handle_), comm_.rank().value, comm_.ranks(), comm_.device(), comm_.hash(), what);
  }

  Communicator& comm_;
  ncclComm* const handle_;
  const std::vector<UniqueIdBytes> ids_;
  const Status failed_;
};

}  // namespace

std::shared_ptr<Setup> makeJoin(Communicator& comm, ncclComm* handle, const JoinRequest& request, Clock& clock) {
  return std::make_shared<Join>(comm, handle, request, clock);
}

}  // namespace tutti::comm
