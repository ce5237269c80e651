// Another process of the host, as one whose memory can be read.
//
// Owner: the Hub, one for each process of its arena but the own. Used by the threads that drive ranks: find() and copy() under no lock.
// 1. What cannot be read is told at set-up (reach), never found out by a fault: the ways are tried once, on memory meant for it.
// 2. Nothing of the other process is ever written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "memory/exports.h"
#include "memory/mapping.h"
#include "transport/local/arena.h"
#include "transport/local/pipe.h"

namespace tutti::transport::local {

class Neighbour {
 public:
  /// `entry` stays where it is. Tries what works; `mayCopy`: whether copies by system call are wanted at all.
  Neighbour(const ProcessEntry& entry, bool mayCopy);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  /// A set of kReaches….
  uint32_t reach() const { return reach_; }
  /// Where this process sees bytes that the other one has in memory of ncclMemAlloc; null when they are elsewhere, or cannot be mapped.
  /// The other one keeps them allocated meanwhile.
  const std::byte* find(uint64_t theirs, uint64_t bytes);
  /// Copies from any memory of the other process. RemoteError when it is gone.
  Status copy(std::byte* to, uint64_t theirs, uint64_t bytes) const;

 private:
  bool copies(const ProcessEntry& entry) const;

  const int32_t pid_;
  uint32_t reach_ = kReachesNothing;
  std::unique_ptr<memory::ImportTable> imports_;
};

/// Whether a process of this machine is faster to copy out of another one's memory by system call than the two are through shared memory.
/// The call pins pages one by one, which takes longer than the copy it saves on some machines and less on others. Measured once in a
/// process, on memory of its own: it is a property of the machine.
bool copiesPay();

}  // namespace tutti::transport::local
