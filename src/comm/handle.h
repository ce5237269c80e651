// What ncclComm_t points to: a small block that outlives its communicator, so that a stale or made-up handle is told apart
// from a live one without touching freed memory.
//
// Owner: the process; blocks are never given back to the system and are used again, oldest first. Any thread may call.
// 1. A handle is live from make() to retire(); use() of any other value, whatever it is, fails and touches nothing.
// 2. A communicator stays alive while a Use or a Visit of it exists; waitUnused() returns when the caller's own Use is the only one.
// 3. A Use is counted at its handle, with locked instructions. A Visit is a mark of its thread's own, plain stores, for the calls that are
//    made most: who retires a handle has all threads run a barrier, then looks at the marks (docs/decisions/0005).
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "core/status.h"
#include "memory/mapping.h"

struct ncclComm;

namespace tutti::comm {

class Communicator;
class HandleTable;

/// Where a thread says which handle it visits. Owner: the table, for ever; one thread at a time has it.
struct alignas(64) Visitor {
  std::atomic<ncclComm*> at{nullptr};  ///< by its thread; pairs with waitUnused()
  HandleTable* table = nullptr;        ///< set once
  Visitor* next = nullptr;             ///< of all that were ever made; set once
  bool isTaken = false;                ///< under the table's lock
};

}  // namespace tutti::comm

/// The opaque type of nccl.h.
struct ncclComm {
  std::atomic<tutti::comm::Communicator*> comm{nullptr};  ///< null: free or destroyed. seq_cst against `users`
  std::atomic<uint32_t> users{0};                         ///< calls in progress. seq_cst against `comm`
};

namespace tutti::comm {

class HandleTable {
 public:
  HandleTable() = default;
  ~HandleTable();
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

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

  /// The same for the length of a call that keeps no other Visit; empty as well where a Use is to say why.
  class Visit {
   public:
    /// `visitor`: the thread's own.
    Visit(Visitor& visitor, ncclComm* handle) : visitor_(visitor) {
      if (!visitor.table->owns(handle)) return;
      visitor.at.store(handle, std::memory_order_relaxed);  // ordered before the load of `comm` by the barrier of waitUnused()
      std::atomic_signal_fence(std::memory_order_seq_cst);
      comm_ = handle->comm.load(std::memory_order_acquire);
    }
    ~Visit() { visitor_.at.store(nullptr, std::memory_order_release); }  // pairs with waitUnused()
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    explicit operator bool() const { return comm_ != nullptr; }
    Communicator* operator->() const { return comm_; }
    Communicator& operator*() const { return *comm_; }

   private:
    Visitor& visitor_;
    Communicator* comm_ = nullptr;
  };

  /// A visitor for the calling thread, which alone marks with it until dismiss(), and makes one Visit at a time. One that another thread
  /// gave back is taken first. Null where the kernel offers no barriers, or there is no memory: such a thread makes Uses.
  Visitor* admit();
  /// By the thread that has it, outside any Visit.
  void dismiss(Visitor* visitor);
  /// In a process that has just been forked: threads that are not in it visit nothing.
  void forgetVisits();

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

  bool owns(const ncclComm* handle) const {
    static_assert(std::has_single_bit(sizeof(ncclComm)));
    const ncclComm* first = first_.load(std::memory_order_acquire);  // pairs with make(), as below
    if (first == nullptr) return false;
    // What is below the first or between two has one of the highest bits set.
    const uint64_t offset = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(first);
    return std::rotr(offset, std::countr_zero(sizeof(ncclComm))) < used_.load(std::memory_order_acquire);
  }

  mutable std::mutex mutex_;
  memory::Mapping blocks_;           // kCapacity blocks, backed as they are used; set once
  std::atomic<ncclComm*> first_{nullptr};
  std::atomic<size_t> used_{0};      // blocks handed out at least once
  std::deque<ncclComm*> freed_;      // oldest first
  std::atomic<size_t> live_{0};
  std::atomic<Visitor*> visitors_{nullptr};  // all that were ever made
};

}  // namespace tutti::comm
