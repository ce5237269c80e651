// What ncclComm_t points to: a small block that outlives its communicator, so that a stale or made-up handle is told apart
// from a live one without touching freed memory.
//
// Owner: the process; blocks are never given back to the system and are used again, oldest first. Any thread may call.
// 1. A handle is live from make() to retire(); use() of any other value, whatever it is, fails and touches nothing.
// 2. A communicator stays alive while a Use of it exists; waitUnused() returns when the caller's own Use is the only one.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "core/status.h"
#include "memory/mapping.h"

namespace tutti::comm {
class Communicator;
}

/// The opaque type of nccl.h.
struct ncclComm {
  std::atomic<tutti::comm::Communicator*> comm{nullptr};  ///< null: free or destroyed. seq_cst against `users`
  std::atomic<uint32_t> users{0};                         ///< calls in progress. seq_cst against `comm`
};

namespace tutti::comm {

class HandleTable {
 public:
  /// Keeps a communicator alive while a call uses it.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept : handle_(other.handle_), comm_(other.comm_) { other.handle_ = nullptr, other.comm_ = nullptr; }
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (handle_ != nullptr) handle_->users.fetch_sub(1, std::memory_order_release);  // pairs with retire()
    }
    explicit operator bool() const { return comm_ != nullptr; }
    Communicator* operator->() const { return comm_; }
    Communicator& operator*() const { return *comm_; }

   private:
    friend class HandleTable;
    ncclComm* handle_ = nullptr;
    Communicator* comm_ = nullptr;
  };

  /// A new live handle. SystemError when kCapacity communicators live at once.
  Result<ncclComm*> make(Communicator* comm);
  /// Empty for anything but a live handle.
  Use use(ncclComm* handle);
  /// The same for a call that waited: InvalidUsage when `comm`, which the handle had when it was made, is gone.
  Result<Use> useAgain(ncclComm* handle, const Communicator* comm);
  /// Whether the value once was a live handle and is none now.
  bool isRetired(ncclComm* handle) const;
  /// Takes the communicator from its handle, first come first served: null when another call was faster.
  Communicator* retire(Use& use);
  /// Waits until no other call uses the retired communicator, then frees the handle for reuse.
  void waitUnused(Use& use);
  size_t live() const { return live_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kCapacity = size_t{1} << 20;
  /// A freed handle rests until this many others have been freed, so that a stale copy keeps failing for a long while.
  static constexpr size_t kQuarantine = 4096;

  bool owns(const ncclComm* handle) const;

  mutable std::mutex mutex_;
  memory::Mapping blocks_;           // kCapacity blocks, backed as they are used; set once
  std::atomic<ncclComm*> first_{nullptr};
  std::atomic<size_t> used_{0};      // blocks handed out at least once
  std::deque<ncclComm*> freed_;      // oldest first
  std::atomic<size_t> live_{0};
};

}  // namespace tutti::comm
