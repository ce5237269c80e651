#include "progress/group.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tutti::progress {

template <class Body>
void JobGroup::forEach(Body&& body) const {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Job>& job : jobs_) body(*job);
}

net::Network& JobGroup::network() const {
  const std::lock_guard lock(mutex_);
  return own_ != nullptr ? *own_ : engine_.network();
}

Status JobGroup::serve(const net::Use& use) {
  auto own = engine_.network().forCommunicator(use);
  if (!own) return std::move(own).error();
  const std::lock_guard lock(mutex_);
  own_ = std::move(*own);
  return Status();
}

SendJob* JobGroup::addSend(const SendSpec& spec) {
  auto job = std::make_unique<SendJob>(network(), spec.device, spec.pipe, spec.peer, latch_);
  SendJob* const added = job.get();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  engine_.add(added);
  return added;
}

Result<RecvJob*> JobGroup::addReceive(const RecvSpec& spec, net::Handle* handle) {
  auto listener = network().listen(spec.device);
  if (!listener) return tl::unexpected(std::move(listener).error());
  *handle = (*listener)->handle();
  auto job = std::make_unique<RecvJob>(network(), spec.device, std::move(*listener), spec.pipe, spec.mostBytes,
                                       spec.heard, spec.peer, latch_);
  RecvJob* const added = job.get();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  engine_.add(added);
  return added;
}

bool JobGroup::isUnderWay(std::span<const SendJob* const> jobs) {
  const Engine::Exclusive lock(engine_);
  return std::any_of(jobs.begin(), jobs.end(), [](const SendJob* job) { return job->isUnderWay(); });
}

std::string JobGroup::addressOf(Rank peer) const {
  const Engine::Exclusive lock(engine_);
  std::string address;
  forEach([&](Job& job) {
    if (address.empty() && job.peer().rank == peer) address = job.peerText();
  });
  return address;
}

bool JobGroup::settled() const {
  bool all = true;
  forEach([&](const Job& job) { all = all && job.state() != JobState::SettingUp; });
  return all;
}

Status JobGroup::status() const {
  const auto all = failures();
  return all.empty() ? Status() : all.front().status;
}

std::vector<JobGroup::Failure> JobGroup::failures() const {
  std::vector<std::pair<int64_t, Failure>> all;
  forEach([&](const Job& job) {
    if (job.state() == JobState::Failed) all.push_back({job.failedNs(), {job.peer().rank, job.status()}});
  });
  std::ranges::stable_sort(all, {}, [](const auto& failure) { return failure.first; });
  std::vector<Failure> inOrder;
  for (auto& [when, failure] : all) inOrder.push_back(std::move(failure));
  return inOrder;
}

Status JobGroup::close(Nanoseconds timeout) {
  constexpr Nanoseconds kPatience{1'000'000};
  {
    const Engine::Exclusive lock(engine_);
    forEach([](Job& job) { job.close(); });
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  const auto open = [this] {
    bool any = false;
    forEach([&](const Job& job) { any = any || !job.final(); });
    return any;
  };
  while (open() && std::chrono::steady_clock::now() < end) (void)engine_.progressOrWait(kPatience);
  if (!open()) return status();
  abort();
  return error(Code::RemoteError, "connections could not be closed in time: data was still under way");
}

void JobGroup::stopAll() {
  forEach([this](Job& job) { job.stop(engine_.poller_, JobState::Closed); });
}

void JobGroup::abort() {
  {
    const Engine::Exclusive lock(engine_);
    stopAll();
  }
  engine_.noteMove();
}

JobGroup::~JobGroup() {
  const Engine::Exclusive lock(engine_);
  stopAll();
  engine_.forget(jobs_);
}

}  // namespace tutti::progress
