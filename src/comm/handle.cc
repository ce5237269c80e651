#include "comm/handle.h"

#include <sched.h>

#include <new>
#include <utility>

#include "core/process_barrier.h"

namespace tutti::comm {

Result<ncclComm*> HandleTable::make(Communicator* comm) {
  const std::lock_guard lock(mutex_);
  if (first_.load(std::memory_order_relaxed) == nullptr) {
    auto blocks = memory::Mapping::anonymous(Bytes(kCapacity * sizeof(ncclComm)));
    if (!blocks) return tl::unexpected(std::move(blocks).error().at("make communicator handles"));
    blocks_ = std::move(*blocks);
    first_.store(reinterpret_cast<ncclComm*>(blocks_.data()), std::memory_order_release);  // pairs with owns()
  }
  const size_t used = used_.load(std::memory_order_relaxed);
  ncclComm* handle = nullptr;
  if (freed_.size() > kQuarantine || (used == kCapacity && !freed_.empty())) {
    handle = freed_.front();
    freed_.pop_front();
  } else if (used < kCapacity) {
    handle = new (first_.load(std::memory_order_relaxed) + used) ncclComm;
    used_.store(used + 1, std::memory_order_release);  // pairs with owns(): the block is made
  } else {
    return fail(Code::SystemError, "{} communicators are alive in this process: destroy some first", kCapacity);
  }
  handle->comm.store(comm);
  live_.fetch_add(1, std::memory_order_relaxed);
  return handle;
}

HandleTable::Use HandleTable::use(ncclComm* handle) {
  Use use;
  if (!owns(handle)) return use;
  handle->users.fetch_add(1);  // before the look at `comm`: retire() clears `comm` before it looks at `users`
  use.handle_ = handle;
  use.comm_ = handle->comm.load();
  return use;
}

Result<HandleTable::Use> HandleTable::useAgain(ncclComm* handle, const Communicator* comm) {
  Use found = use(handle);
  if (!found || &*found != comm)
    return fail(Code::InvalidUsage, "a communicator was destroyed or aborted while its calls waited for ncclGroupEnd");
  return found;
}

bool HandleTable::isRetired(ncclComm* handle) const { return owns(handle) && handle->comm.load() == nullptr; }

Communicator* HandleTable::retire(Use& use) { return use.handle_->comm.exchange(nullptr); }

void HandleTable::waitUnused(Use& use) {
  while (use.handle_->users.load() > 1) sched_yield();  // pairs with ~Use
  // After this barrier a visiting thread has either seen that the handle is retired, or its mark is visible here.
  processBarrier();
  for (const Visitor* v = visitors_.load(std::memory_order_acquire); v != nullptr; v = v->next)  // pairs with admit()
    while (v->at.load(std::memory_order_acquire) == use.handle_) sched_yield();                  // pairs with ~Visit
  const std::lock_guard lock(mutex_);
  freed_.push_back(use.handle_);
  live_.fetch_sub(1, std::memory_order_relaxed);
}

Visitor* HandleTable::admit() {
  if (!takesProcessBarriers()) return nullptr;
  const std::lock_guard lock(mutex_);
  Visitor* const first = visitors_.load(std::memory_order_relaxed);
  Visitor* visitor = first;
  while (visitor != nullptr && visitor->isTaken) visitor = visitor->next;
  if (visitor == nullptr) {
    visitor = new (std::nothrow) Visitor;
    if (visitor == nullptr) return nullptr;
    visitor->table = this;
    visitor->next = first;
    visitors_.store(visitor, std::memory_order_release);  // pairs with waitUnused()
  }
  visitor->isTaken = true;
  return visitor;
}

void HandleTable::dismiss(Visitor* visitor) {
  const std::lock_guard lock(mutex_);
  visitor->isTaken = false;
}

void HandleTable::forgetVisits() {
  for (Visitor* v = visitors_.load(std::memory_order_relaxed); v != nullptr; v = v->next) v->at.store(nullptr, std::memory_order_relaxed);
}

HandleTable::~HandleTable() {
  for (Visitor* v = visitors_.load(std::memory_order_relaxed); v != nullptr;) delete std::exchange(v, v->next);
}

}  // namespace tutti::comm
