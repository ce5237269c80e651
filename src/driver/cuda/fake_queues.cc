#include "driver/cuda/fake_queues.h"

#include <algorithm>
#include <utility>

namespace tutti::driver::cuda {

FakeQueues::Ref FakeQueues::make() {
  auto queue = std::make_shared<Queue>();
  const std::lock_guard lock(mutex_);
  reap();
  queues_.push_back(queue);
  return queue;
}

void FakeQueues::forget(const Ref& queue) {
  const std::lock_guard lock(mutex_);
  queue->isForgotten = true;
  reap();
}

/// Threads that have ended are joined; they do not take the lock any more.
void FakeQueues::reap() {
  std::erase_if(queues_, [](const Ref& queue) {
    if (queue->runs || !queue->isForgotten) return false;
    if (queue->thread.joinable()) queue->thread.join();
    return true;
  });
}

void FakeQueues::start(const Ref& queue) {
  ++queue->put;
  if (queue->runs) return;
  if (queue->thread.joinable()) queue->thread.join();  // of what it had to do before: it has let go of the lock for good
  queue->runs = true;
  ++working_;
  queue->thread = std::thread([this, queue] { run(queue); });
}

void FakeQueues::put(const Ref& queue, Work work) {
  const std::lock_guard lock(mutex_);
  queue->items.push_back({std::move(work), {}});
  start(queue);
}

void FakeQueues::putOrRun(const Ref& queue, Work work) {
  {
    const std::lock_guard lock(mutex_);
    if (queue->runs) {
      queue->items.push_back({std::move(work), {}});
      return start(queue);
    }
  }
  work();
}

void FakeQueues::putWait(const Ref& queue, const Mark& mark) {
  const std::lock_guard lock(mutex_);
  if (mark.queue == nullptr || mark.queue == queue || mark.queue->done >= mark.number) return;
  queue->items.push_back({nullptr, mark});
  start(queue);
}

void FakeQueues::run(const Ref& queue) {
  std::unique_lock lock(mutex_);
  while (!queue->items.empty()) {
    Queue::Item item = std::move(queue->items.front());
    queue->items.pop_front();
    if (item.work != nullptr) {
      lock.unlock();
      item.work();
      item.work = nullptr;  // what it holds goes without the lock, too
      lock.lock();
    } else {
      changed_.wait(lock, [&] { return item.mark.queue->done >= item.mark.number; });
    }
    ++queue->done;
    changed_.notify_all();
  }
  queue->runs = false;
  --working_;
  changed_.notify_all();
}

FakeQueues::Mark FakeQueues::mark(const Ref& queue) const {
  const std::lock_guard lock(mutex_);
  return queue->done >= queue->put ? Mark() : Mark{queue, queue->put};
}

bool FakeQueues::isOver(const Mark& mark) const {
  const std::lock_guard lock(mutex_);
  return mark.queue == nullptr || mark.queue->done >= mark.number;
}

void FakeQueues::await(const Mark& mark) const {
  if (mark.queue == nullptr) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return mark.queue->done >= mark.number; });
}

size_t FakeQueues::working() const {
  const std::lock_guard lock(mutex_);
  return working_;
}

void FakeQueues::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return working_ == 0; });
  for (const Ref& queue : queues_) queue->isForgotten = true;
  reap();
}

}  // namespace tutti::driver::cuda
