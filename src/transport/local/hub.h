// Where the ranks of one communicator on one host meet: their pipes and windows, made when the first side asks, and their boards and
// error latches. Ranks may be threads of one process or of several.
//
// Owner: shared by the communicators of the process's ranks; what it shows lies in an Arena. Any thread may call; pipes and windows
// are opened under locks, at set-up only.
// 1. Both sides of a pipe get the same one, whoever asks first; its size is the first asker's.
// 2. A thread that touches peers' memory for a rank does so between enter() and leave() of that rank.
// 3. After failAll() and waitQuiet() no other rank writes this rank's buffers any more, and none of this process reads them, but for places
//    that were offered to a stopped process: waitQuiet() says so.
// 4. Everything that ranks share makes sense after every single store: a process may die anywhere.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/error_latch.h"
#include "transport/local/arena.h"
#include "transport/local/board.h"
#include "transport/local/last_message.h"
#include "transport/local/neighbour.h"
#include "transport/local/pipe.h"
#include "transport/local/remote.h"
#include "transport/local/shared_copy.h"
#include "transport/local/shared_mutex.h"
#include "transport/local/waits.h"
#include "transport/local/window.h"

namespace tutti::transport::local {

/// One rank's place at the hub; zeroed memory is a fresh one. A view of it is what the hot path keeps.
struct alignas(kCacheLine) Member {
  ErrorLatch latch;
  Board board;
  LastMessage lastMessage;
  std::atomic<uint64_t> departed;   ///< 0, or 1 + the calls it took part in: written once, by the rank that ends (release)
  std::atomic<uint64_t> finalized;  ///< the same, once there will be no more calls
  std::atomic<bool> blamed;         ///< see Hub::blame()
  std::atomic<bool> inside;         ///< written by the thread that drives the rank; read by waitQuiet
  /// 1 + the core that its thread was seen on last, 0: not known. Written by the thread that drives the rank, read by those that wait for
  /// it on fewer cores than there are ranks: a hint, which nothing is ordered by.
  alignas(kCacheLine) std::atomic<int32_t> core;
  bool needsFence;  ///< the kernel offers no barrier in all threads: every enter() has one of its own. Set once, before the rank runs

  /// Marks that a thread is about to touch peers' memory for the rank; false when its latch has tripped.
  bool enter() {
    inside.store(true, std::memory_order_relaxed);  // ordered before the latch's load by waitQuiet's barrier
    if (needsFence) std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!latch.tripped()) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() { inside.store(false, std::memory_order_release); }  // pairs with waitQuiet
};

class Hub {
 public:
  /// Of threads of this process.
  static Result<std::shared_ptr<Hub>> make(int32_t ranks);
  /// Lays a hub out: rank r lives in process `processOf[r]` of all that take part, on this host or another. `id` tells the communicator
  /// from all others that these processes make; the hubs of one communicator on several hosts have the same. Its place, for attach().
  static Result<uint64_t> format(Arena& arena, uint64_t id, std::span<const int32_t> processOf);
  /// The hub at that place, as this process sees it: the same object for all its ranks, each of which attaches once. Its memory is given
  /// back when all ranks have attached and let go.
  static Result<std::shared_ptr<Hub>> attach(const std::shared_ptr<Arena>& arena, uint64_t place, int32_t ranks);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  Result<PipeView> pipe(const PipeKey& key, uint32_t slots, uint64_t slotBytes);
  /// The window of `rank`: cells of `cellBytes` for every rank.
  Result<WindowView> window(Rank rank, uint64_t cellBytes);

  int32_t ranks() const { return ranks_; }
  /// A block of memory under a name, zeroed when it is made: the same for all ranks that name it. `forget`: nobody will ask again. What is
  /// said of blocks here does not wait for a lock that somebody has for long: it is for who looks again.
  using Name = std::array<int32_t, 4>;
  /// Null: somebody has the lock.
  Result<std::byte*> block(const Name& name, Bytes size);
  /// The block of that name; null when it was never made, or forgotten, or somebody has the lock.
  std::byte* existing(const Name& name);
  /// Who has got a block needs it no more. To be called once for each block() and existing() that gave one.
  void release(const Name& name) noexcept;
  /// Where somebody has the lock it stays, as long as the arena.
  void forget(const Name& name);
  /// Names of all blocks but the forgotten ones; none where somebody has the lock.
  Result<std::vector<Name>> blocks();
  /// For what ranks keep in such blocks: not longer than `most`. Without the lock: a process that has it is slow, or was stopped.
  SharedLock lock(std::chrono::milliseconds most) { return {mutex(), patience_, most}; }
  /// "process 4711 with rank 2 was stopped while it had the lock of what ranks share", of this hub or another one that this process uses in
  /// its arena; empty: no such process is seen. For who waited in vain for ranks that may themselves wait for that one. System calls:
  /// for slow paths; any thread.
  std::string describeStopped() const;
  /// What threads that do not wait for the lock could not do, for one that looks again, in their order.
  struct Later {
    std::mutex turn;  ///< of who does it
    std::mutex mutex;
    std::deque<std::vector<std::byte>> messages;
  };
  Later& later() { return later_; }
  /// Bounds what a pipe or a window waits for the lock, and an end for what was sent to other hosts; 0: nothing does, but for the failure
  /// of the ranks. Of all ranks of this process.
  void waitAtMost(std::chrono::nanoseconds longest) { patience_.limit(longest); }
  std::chrono::nanoseconds longestWait() const { return patience_.limit(); }
  /// Who says it when somebody has waited for one for long.
  using Say = void (*)(const std::string& text);
  void explainLocks(Say say) { say_.store(say, std::memory_order_relaxed); }

  /// Memory for what GPUs of the ranks share: zeroed when it is made, page-aligned, the same for all ranks, mapped as long as this lives.
  /// Its first word is set to 1 when the ranks fail.
  Result<std::byte*> devicePage(Bytes size);

  /// One of the `ranksHere` ranks of this process that have a place in the child at `place` has attached it, or never will (null). It is
  /// kept until all have come: the first may be done with it before the last looks.
  void keepChild(uint64_t place, int32_t ranksHere, std::shared_ptr<Hub> child);

  uint64_t id() const;
  /// Which process a rank lives in.
  int32_t processOf(Rank rank) const { return processOf_[index(rank)]; }
  /// Whether the rank is a thread of this process.
  bool isHere(Rank rank) const { return processOf_[index(rank)] == arena_->self(); }
  bool isOnHost(Rank rank) const { return arena_->isOnHost(processOf_[index(rank)]); }
  bool spansProcesses() const { return spansProcesses_; }
  bool spansHosts() const { return spansHosts_; }
  /// What reaches the ranks on other hosts; null where there are none. Set once, before a rank of this process works with the hub.
  Remote* remote() const { return reached_.load(std::memory_order_acquire); }  // pairs with setRemote()
  void setRemote(std::shared_ptr<Remote> remote) {
    remote_ = std::move(remote);
    reached_.store(remote_.get(), std::memory_order_release);  // pairs with remote(): deaths are looked at by another thread
  }
  /// The process of a rank that is not here, whose memory may be read. Lives as long as the hub.
  Neighbour* neighbour(Rank rank);
  /// What of the rank's own memory this process can read; a set of kReaches….
  uint32_t reach(Rank rank);
  /// False once the rank's process has ended; of another host, once its loss is known here. A system call: for slow paths.
  bool isAlive(Rank rank) const { return isHere(rank) || arena_->isAlive(processOf_[index(rank)]); }
  /// A process of this host that has ended while a rank of it had not departed, if there is one among those that it is the turn of: it
  /// looks at some of them, at most every 10 ms. Any thread; for who waits.
  std::optional<int32_t> lookForDead();
  /// Where a rank lives, and over what it is reached. System calls and locks: for slow paths.
  Way wayTo(Rank rank) const;
  const std::shared_ptr<Arena>& arena() const { return arena_; }

  ErrorLatch& latch(Rank rank) { return members_[index(rank)].latch; }
  Board& board(Rank rank) { return members_[index(rank)].board; }
  /// The latest message that the rank has come to; nothing of a rank elsewhere.
  std::optional<Call> lastMessageOf(Rank rank) const { return members_[index(rank)].lastMessage.find(); }
  Waits& waits() { return *waits_; }

  /// The rank has destroyed its communicator, after `calls` collectives. Everything that it sent can be seen by who sees this.
  void depart(Rank rank, uint64_t calls, bool tellsOthers = true) {
    members_[index(rank)].departed.store(calls + 1, std::memory_order_release);  // pairs with departed()
    if (Remote* const others = remote(); tellsOthers && others != nullptr) others->departed(rank, calls);
  }
  /// How many collectives the rank took part in before it departed; nothing while it is there.
  std::optional<uint64_t> departed(Rank rank) const {
    const uint64_t calls = members_[index(rank)].departed.load(std::memory_order_acquire);  // pairs with depart()
    return calls == 0 ? std::nullopt : std::optional(calls - 1);
  }

  /// The rank makes no calls any more, but is there, and all `calls` that it has made are over. Everything that it sent can be seen by who
  /// sees this.
  void finalize(Rank rank, uint64_t calls, bool tellsOthers = true) {
    members_[index(rank)].finalized.store(calls + 1, std::memory_order_release);  // pairs with lastCalls()
    if (Remote* const others = remote(); tellsOthers && others != nullptr) others->finalized(rank, calls);
  }
  /// How many collectives the rank took part in if there will be no more: it has finalized its communicator, or departed.
  std::optional<uint64_t> lastCalls(Rank rank) const {
    if (const auto calls = departed(rank)) return calls;
    const uint64_t calls = members_[index(rank)].finalized.load(std::memory_order_acquire);  // pairs with finalize()
    return calls == 0 ? std::nullopt : std::optional(calls - 1);
  }

  /// The ranks are about to fail because this one died, cannot be reached or lacks what its call takes. Before failAll(), by who knows;
  /// verdicts name it.
  void blame(Rank rank) { members_[index(rank)].blamed.store(true, std::memory_order_release); }  // pairs with isBlamed()
  bool isBlamed(Rank rank) const { return members_[index(rank)].blamed.load(std::memory_order_acquire); }

  /// Trips every rank's latch with `cause`, on the other hosts as well if `tellsOthers`.
  void failAll(const Status& cause, bool tellsOthers = true);
  /// The same without words, for want of memory; cannot fail.
  void failAll(Code code) noexcept;

  /// The rank's place; stays where it is as long as the hub.
  Member& member(Rank rank) { return members_[index(rank)]; }
  bool enter(Rank rank) { return member(rank).enter(); }
  void leave(Rank rank) { member(rank).leave(); }

  /// After failAll(): returns when every thread that was inside has left, which each does after a few slices, and when no other process
  /// is about to write to what a rank of this one copies. A rank of another process that does not leave within half a second has died, or
  /// been stopped, and is not waited for. False: one of those lives, and may go on later, to read what it was lent, and to write to places
  /// that it was offered.
  bool waitQuiet();
  /// A copy that a rank of this process may make, for waitQuiet() to stop. Until unwatch().
  void watch(SharedCopy& copy);
  void unwatch(SharedCopy& copy) noexcept;

 private:
  struct Block;
  struct Page;
  /// What names a pipe or a window: kind, channel, port, from (or the window's rank), to.
  using Key = std::array<int32_t, 5>;
  struct Lies {
    uint64_t place;
    uint64_t bytes;
    uint64_t partBytes;  ///< of a slot, of a cell
    uint32_t count;      ///< slots
  };
  /// A pipe, a window or a block, and where it lies. Never changes once it is counted, but for the last word.
  struct Listed {
    Key key;
    Lies lies;
    uint64_t forgotten;  ///< a block that nobody will ask for again; under the hub's lock
  };
  Hub() = default;
  static size_t index(Rank rank) { return static_cast<size_t>(rank.value); }
  static uint64_t blockBytes(int32_t ranks);
  static uint32_t countHolders(const Arena& arena, std::span<const int32_t> processOf);

  static Result<std::shared_ptr<Hub>> open(std::shared_ptr<Arena> arena, uint64_t place, int32_t ranks);
  Status look(std::byte* memory, int32_t ranks);
  Status catchUp();
  Status append(const Listed& entry);
  Result<Lies> findOrMake(const Key& key, const Lies& wanted);
  SharedMutex& mutex() const;
  struct Owner {
    int32_t pid;
    std::string text;
  };
  std::optional<Owner> ownerOf(int thread) const;
  std::string describeHolder() const;
  Status lockLost();
  template <class End>
  void endAll(End&& end) noexcept;
  bool isBehind(uint64_t at, uint64_t before) const;
  void stopDevices() noexcept;
  std::byte* use(const Key& key, const Lies& lies);

  std::shared_ptr<Arena> arena_;
  uint64_t place_ = 0;
  int32_t ranks_ = 0;
  uint32_t holds_ = 0;  // ranks that have attached here; under the arena's lock
  bool spansProcesses_ = false;
  bool spansHosts_ = false;
  std::shared_ptr<Remote> remote_;
  std::atomic<Remote*> reached_{nullptr};  // the same, for any thread
  // In the arena.
  Block* block_ = nullptr;
  const int32_t* processOf_ = nullptr;
  Member* members_ = nullptr;

  Patience patience_;
  std::atomic<Say> say_ = nullptr;
  int32_t firstHere_ = -1;  // a rank of this process
  std::unique_ptr<Waits> waits_;
  /// The first word of the device page, once this process has it. Set under mutex_ (release); read by failAll() (acquire).
  std::atomic<uint32_t*> deviceAbort_ = nullptr;
  std::mutex mutex_;               // taken behind the shared lock, and so not held for long
  std::map<Key, Listed*> listed_;  // as far as this process has read the list
  std::map<Key, uint32_t> users_;  // of named blocks, in this process
  struct Kept {
    std::shared_ptr<Hub> hub;
    int32_t awaited = 0;
  };
  std::map<uint64_t, Kept> children_;                         // that not all ranks of this process have attached, by place
  Page* page_ = nullptr;                                      // the page that it reads
  Page* lastPage_ = nullptr;                                  // the last that it knows
  uint64_t lastPagePlace_ = 0;
  uint64_t seen_ = 0;                                         // entries of page_ that it has read
  std::map<int32_t, std::unique_ptr<Neighbour>> neighbours_;  // by process
  std::atomic<int64_t> lookedNs_ = 0;                         // when somebody last looked for dead processes
  std::atomic<uint32_t> nextToLook_ = 0;                      // a rank, modulo their number
  Later later_;
  std::mutex copiesMutex_;
  std::vector<SharedCopy*> copies_;  // of ranks of this process
};

}  // namespace tutti::transport::local
