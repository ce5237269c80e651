#include "exec/host/stream.h"

#include <utility>

#include "core/thread.h"

namespace tutti::exec::host {

Status Stream::start(const char* threadName) {
  auto started = startThread(threadName, "of a host stream", [this] { loop(); });
  if (!started) return std::move(started).error();
  thread_ = std::move(*started);
  return {};
}

Stream::~Stream() { stop(); }

void Stream::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Stream::push(std::function<void()> item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  changed_.notify_all();
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  bool reached = items_.empty();
  if (reached) return;
  items_.emplace_back([this, &reached] {
    const std::lock_guard inner(mutex_);
    reached = true;
  });
  changed_.notify_all();
  changed_.wait(lock, [&] { return reached; });
}

bool Stream::idle() const {
  const std::lock_guard lock(mutex_);
  return items_.empty();
}

bool Stream::isStopped() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void Stream::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = status;
}

Status Stream::takeError() {
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, Status());
}

void Stream::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !items_.empty(); });
    if (items_.empty()) return;
    const std::function<void()>& item = items_.front();
    lock.unlock();
    item();
    lock.lock();
    items_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace tutti::exec::host
