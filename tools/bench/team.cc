#include "bench/team.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/format.h"

namespace tutti::bench {
namespace {

constexpr int kExitStuck = 3;
constexpr auto kGrace = std::chrono::seconds(10);

/// For ranks that stop because another one did: never the first error.
Status stopped() { return error(Code::InvalidUsage, "stopped because another rank failed"); }

}  // namespace

Status Member::meet() {
  if (isAlone_) return barrier_->meet() ? Status() : stopped();
  if (barrier_->isGivenUp()) return stopped();
  uint8_t here = 1;
  return check(ncclAllReduce(&here, &here, 1, ncclUint8, ncclMax, comm(), nullptr), "meeting the other ranks");
}

Status Member::check(ncclResult_t result, std::string_view what) const {
  if (result == ncclSuccess) [[likely]] return {};
  const std::string_view last = ncclGetLastError(comm());
  return error(static_cast<Code>(result), "rank {}: {}: {}{}{}", rank_, what, ncclGetErrorString(result), last.empty() ? "" : ": ",
               last);
}

Team::Team(const Crew& crew, std::chrono::milliseconds timeout) : crew_(crew), barrier_(crew.threads), timeout_(timeout) {
  for (int index = 0; index < crew.threads; ++index) members_.emplace_back(crew, index, barrier_);
}

Result<ncclUniqueId> makeUniqueId() {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result == ncclSuccess) return id;
  return fail(static_cast<Code>(result), "ncclGetUniqueId: {}: {}", ncclGetErrorString(result), ncclGetLastError(nullptr));
}

Result<std::unique_ptr<Team>> Team::start(int ranks, std::chrono::milliseconds timeout) {
  const Result<ncclUniqueId> id = makeUniqueId();
  if (!id) return tl::unexpected(id.error());
  return start(Crew{ranks, 0, ranks}, *id, timeout);
}

Result<std::unique_ptr<Team>> Team::start(const Crew& crew, const ncclUniqueId& id, std::chrono::milliseconds timeout) {
  std::unique_ptr<Team> team(new Team(crew, timeout));
  for (Member& member : team->members_) team->threads_.emplace_back([&team = *team, &member] { team.serve(member); });
  Status status = team->run("ncclCommInitRank", [&](Member& member) {
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRank(&comm, crew.ranks, id, member.rank());
    member.comm_.store(comm, std::memory_order_relaxed);
    return member.check(result, format("ncclCommInitRank with {} ranks", crew.ranks));
  });
  if (!status.ok()) return tl::unexpected(std::move(status));
  return team;
}

Team::~Team() {
  bool isHealthy = false;
  {
    const std::lock_guard lock(mutex_);
    isHealthy = failure_.ok();
  }
  if (isHealthy) {
    const Status status = run("ncclCommDestroy", [](Member& member) {
      return member.check(ncclCommDestroy(member.comm_.exchange(nullptr)), "ncclCommDestroy");
    });
    if (!status.ok()) std::fprintf(stderr, "tutti: %s\n", status.text().c_str());
  }
  {
    const std::lock_guard lock(mutex_);
    isClosing_ = true;
  }
  hasJob_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::serve(Member& member) {
  std::unique_lock lock(mutex_);
  for (uint64_t done = 0;;) {
    hasJob_.wait(lock, [&] { return isClosing_ || jobs_ != done; });
    if (jobs_ == done) return;
    done = jobs_;
    const Job& job = *job_;
    lock.unlock();
    Status status = job(member);
    lock.lock();
    // Late failures are echoes of the first: peers gone, communicators aborted.
    if (!status.ok() && failure_.ok()) failure_ = std::move(status);
    --working_;
    if (working_ == 0 || !failure_.ok()) hasNews_.notify_all();
  }
}

Status Team::run(std::string_view what, const Job& job) {
  std::unique_lock lock(mutex_);
  if (!failure_.ok()) return failure_;
  job_ = &job;
  ++jobs_;
  working_ = crew_.threads;
  hasJob_.notify_all();
  const auto hasNews = [&] { return working_ == 0 || !failure_.ok(); };
  if (timeout_.count() == 0) {
    hasNews_.wait(lock, hasNews);
  } else if (!hasNews_.wait_for(lock, timeout_, hasNews)) {
    failure_ = error(Code::SystemError, "{} has not ended within {} s (--timeout)", what, static_cast<double>(timeout_.count()) / 1000);
  }
  if (!failure_.ok()) end(lock, what);
  return failure_;
}

void Team::end(std::unique_lock<std::mutex>& lock, std::string_view what) {
  barrier_.giveUp();
  lock.unlock();
  // A rank that is inside a call keeps its thread: abort is what makes the call return.
  for (Member& member : members_) {
    if (ncclComm_t comm = member.comm_.exchange(nullptr)) (void)ncclCommAbort(comm);
  }
  lock.lock();
  if (hasNews_.wait_for(lock, kGrace, [&] { return working_ == 0; })) return;
  std::fprintf(stderr, "tutti: %s\ntutti: %d ranks do not return from %s even after ncclCommAbort; giving up\n",
               failure_.text().c_str(), working_, std::string(what).c_str());
  std::_Exit(kExitStuck);
}

}  // namespace tutti::bench
