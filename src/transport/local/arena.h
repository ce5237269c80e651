// Memory that the ranks of a communicator on one host see: of one process, or behind a nameless file that its processes share.
//
// Owner: shared by the hubs in it; unmapped with the last. Any thread may call.
// 1. A block is named by its place, which means the same in every process, and may be mapped elsewhere in each.
// 2. A block is zero until somebody writes it, and stays mapped until it is unmapped or the arena goes.
// 3. Of a shared arena nothing is left when its last process has ended, however it ended: there is no name in any file system.
// 4. Each process holds a lock of the file, which the kernel takes away when it dies: that is how others know. A process has one
//    descriptor of the file and one Arena: closing any other would give the lock up, too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "core/unique_fd.h"
#include "memory/mapping.h"

namespace tutti::transport::local {

/// A process of the host, as the others see it. Written by that process before `attached`, but for `attached` itself.
struct ProcessEntry {
  std::atomic<int64_t> pid;
  std::atomic<uint64_t> token;      ///< random: what `probe` points to in the process's own memory
  std::atomic<uint64_t> probe;      ///< address of the token there
  std::atomic<int32_t> exportsFd;   ///< descriptor of its memory::ExportTable, plus 1; 0: none
  std::atomic<uint32_t> needsFence; ///< the kernel offers it no barrier in threads of other processes
  std::atomic<uint32_t> attached;   ///< 1 when all of the above can be read (release); pairs with Arena::entry's acquire
  uint32_t unused;
};

class Hub;

class Arena {
 public:
  /// The most processes of one host.
  static constexpr int32_t kMostProcesses = 4096;

  /// For ranks that are threads of this process, which is number `self` of all that take part.
  static std::shared_ptr<Arena> ofThreads(int32_t self = 0, std::shared_ptr<const void> owner = nullptr);
  /// A new file for several processes, and what the first of them passes on.
  static Result<UniqueFd> createFile();
  /// `members`: the processes of this host, by their numbers among all that take part, ascending; `self` is this one; -1: none of them, to
  /// lay something out before they come. `owner` keeps `file` open, and whatever else is to live as long as the arena.
  static Result<std::shared_ptr<Arena>> attach(int file, std::shared_ptr<const void> owner, std::vector<int32_t> members, int32_t self);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  bool isShared() const { return file_ >= 0; }
  /// This process, by its number among all that take part.
  int32_t self() const { return self_; }
  /// Whether that process is one of this host.
  bool isOnHost(int32_t process) const { return placeOf(process) >= 0; }

  /// A new block of at least `size` zeroed bytes, page-aligned; its place.
  Result<uint64_t> reserve(Bytes size);
  /// Where this process sees the block.
  Result<std::byte*> map(uint64_t place, Bytes size);
  /// This process does without the block; map() brings it back. Shared arenas only.
  void unmap(uint64_t place) noexcept;
  /// Gives the contents of a block back to the system; nobody uses it any more.
  void discard(uint64_t place, Bytes size) noexcept;

  /// Says to the others that this process has come. `token`: a random number; `exportsFd`: of its table of memory, or -1.
  void announce(uint64_t token, int exportsFd);
  /// The hubs that this process uses.
  std::vector<std::shared_ptr<Hub>> hubs();
  /// A process of the host; null while it has not attached.
  const ProcessEntry* entry(int32_t process) const;
  /// False once a process that had attached has ended. A system call: for slow paths.
  bool isAlive(int32_t process) const;
  /// The same of its lock alone: also of one that has been lost, as it may be cut off only.
  bool isRunning(int32_t process) const;
  /// Remembers that a process has ended, and why; the first reason stays. It is not alive any more, whatever its lock says.
  void lose(int32_t process, const Status& cause);
  /// Those that are known to have ended without a word.
  std::map<int32_t, Status> losses() const;
  /// Whether all processes have attached.
  bool isComplete() const;

  /// A word for whoever makes the first hub: its place, 0 before. Writers use release, readers acquire.
  std::atomic<uint64_t>& root() { return *root_; }

 private:
  friend class Hub;
  struct Header;
  Arena() = default;
  /// Its place among the members, or -1.
  int32_t placeOf(int32_t process) const;
  static uint64_t lockOffset(int32_t process) { return (uint64_t{1} << 61) + static_cast<uint64_t>(process); }

  std::shared_ptr<const void> owner_;
  int file_ = -1;
  uint64_t fileBytes_ = 0;  // as its maker's limits allowed
  memory::Mapping control_;
  Header* header_ = nullptr;  // these three: null in an arena of threads
  ProcessEntry* entries_ = nullptr;
  std::atomic<uint64_t>* root_ = nullptr;
  std::vector<int32_t> members_;
  int32_t self_ = 0;
  uint64_t token_ = 0;  // others try to read it
  mutable std::mutex mutex_;
  std::map<uint64_t, memory::Mapping> blocks_;  // by place
  std::mutex hubsMutex_;
  std::map<uint64_t, std::weak_ptr<Hub>> hubs_;  // that this process has attached, by place
  mutable std::mutex lossesMutex_;
  std::map<int32_t, Status> losses_;
};

}  // namespace tutti::transport::local
