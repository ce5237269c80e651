#include "comm/shared.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "comm/process.h"
#include "config/params.h"

namespace tutti::comm {

Shared::~Shared() {
  if (worker_ != nullptr) process().retiredWorkers.add(std::move(worker_));
}

void Shared::add(const std::shared_ptr<transport::local::Hub>& hub) {
  const std::lock_guard lock(mutex_);
  std::erase_if(hubs_, [](const auto& held) { return held.expired(); });
  hubs_.push_back(hub);
}

void Shared::failAll(const Status& cause) {
  std::vector<std::shared_ptr<transport::local::Hub>> hubs;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& held : hubs_)
      if (auto hub = held.lock()) hubs.push_back(std::move(hub));
  }
  for (const auto& hub : hubs) hub->failAll(cause);
  for (const auto& hub : hubs) hub->waitQuiet();
}

Result<std::shared_ptr<exec::host::Stream>> Shared::worker() {
  const std::lock_guard lock(mutex_);
  if (worker_ == nullptr) {
    auto worker = std::make_shared<exec::host::Stream>();
    if (Status status = worker->start(config::get<config::Param::SetThreadName>() ? "tutti worker" : nullptr); !status.ok())
      return tl::unexpected(std::move(status));
    worker_ = std::move(worker);
  }
  return worker_;
}

void RetiredWorkers::add(std::shared_ptr<exec::host::Stream> worker) {
  std::vector<std::shared_ptr<exec::host::Stream>> idle;
  // What it runs has finished or failed, but for launches that wait for streams of others.
  constexpr int kTries = 200;
  for (int i = 0; i < kTries && !worker->idle(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    const std::lock_guard lock(mutex_);
    workers_.push_back(std::move(worker));
    const auto busy = std::partition(workers_.begin(), workers_.end(), [](const auto& w) { return !w->idle(); });
    idle.assign(std::make_move_iterator(busy), std::make_move_iterator(workers_.end()));
    workers_.erase(busy, workers_.end());
  }
  for (const auto& w : idle) w->stop();
}

size_t RetiredWorkers::size() const {
  const std::lock_guard lock(mutex_);
  return workers_.size();
}

}  // namespace tutti::comm
