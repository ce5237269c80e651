// Another process of the host, as one whose memory can be read.
//
// Owner: the Hub, one for each process of its arena but the own. Used by the threads that drive ranks: all but the constructor under no
// lock.
// 1. What cannot be read is told at set-up (reach), never found out by a fault: the ways are tried once, on memory meant for it.
// 2. Nothing of the other process is written but what it asks for and describes itself, and can take back: fill(), and places that it
//    offers in a window.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/status.h"
#include "memory/exports.h"
#include "memory/mapping.h"
#include "transport/local/arena.h"
#include "transport/local/pipe.h"

namespace tutti::transport::local {

class Neighbour {
 public:
  /// `entry` stays where it is. Tries what works; `mayCopy`: whether copies by system call are wanted at all. `isAlive`: whether it is
  /// still the process that it was; without one it is never written to.
  Neighbour(const ProcessEntry& entry, bool mayCopy, std::function<bool()> isAlive = {});
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  /// A set of kReaches….
  uint32_t reach() const { return reach_; }
  /// Where this process sees bytes that the other one has in memory of ncclMemAlloc; null when they are elsewhere, or cannot be mapped.
  /// The other one keeps them allocated meanwhile.
  std::byte* find(uint64_t theirs, uint64_t bytes);
  /// Copies from any memory of the other process. RemoteError when it is gone, SystemError when there is no such memory.
  Status copy(std::byte* to, uint64_t theirs, uint64_t bytes) const;
  /// Writes `bytes` bytes to what `part` describes: memory of the other process, which changes the description in place to take it back.
  /// False: not all was written. A number of a process that has died may be another's: that one is written to only if this thread is held
  /// up for as long as that takes between the look whether it is alive and the call, and if it has such an address.
  bool fill(const iovec& part, const std::byte* from, uint64_t bytes) const;
  /// Whether isAtRest() can tell: this process sees the other one's threads by their numbers.
  bool isWatchable() const { return isWatchable_; }
  /// Whether a thread of the other process has been stopped, is gone, or sleeps elsewhere than in fill(), so that it is not in the middle
  /// of that. System calls.
  bool isAtRest(int32_t thread) const noexcept;

 private:
  bool copies(const ProcessEntry& entry) const;

  const int32_t pid_;
  const std::function<bool()> isAlive_;
  uint32_t reach_ = kReachesNothing;
  bool isWatchable_ = false;
  std::unique_ptr<memory::ImportTable> imports_;
};

/// Whether a process of this machine is faster to copy out of another one's memory by system call than the two are through shared memory.
/// The call pins pages one by one, which takes longer than the copy it saves on some machines and less on others. Measured once in a
/// process, on memory of its own: it is a property of the machine.
bool copiesPay();
/// Whether a thread of a process of this host has been stopped, by a signal or a debugger. One that is not there has not.
bool isStopped(int32_t pid, int32_t thread) noexcept;

}  // namespace tutti::transport::local
