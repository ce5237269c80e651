#include "core/children.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace tutti {
namespace {

constexpr int kMost = 65536;

/// Which socket a number stood for when it was told of: no two that are open at once have the same. 0: none.
std::array<std::atomic<uint64_t>, kMost> inodes;
std::atomic<int> behindLast = 0;
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free, "read by a handler");

uint64_t inodeOf(int fd) {
  struct stat file = {};
  return fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode) ? file.st_ino : 0;
}

/// Where no number is free, the first socket's own becomes free for what takes the places.
void replaceInChild() {
  int empty = -1;
  bool isSpare = false;
  const int end = behindLast.load(std::memory_order_acquire);
  for (int fd = 0; fd < end; ++fd) {
    const uint64_t inode = inodes[static_cast<size_t>(fd)].load(std::memory_order_relaxed);
    if (inode == 0 || inodeOf(fd) != inode) continue;
    if (empty < 0) {
      close(fd);
      empty = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      isSpare = empty >= 0 && empty != fd;
    }
    if (empty != fd && empty >= 0) dup3(empty, fd, O_CLOEXEC);
    inodes[static_cast<size_t>(fd)].store(0, std::memory_order_relaxed);
  }
  if (isSpare) close(empty);
}

/// When the library is loaded: a child could wait for ever for what is done once, if it was forked meanwhile.
[[maybe_unused]] const int kHandler = pthread_atfork(nullptr, nullptr, replaceInChild);
thread_local int otherTables = 0;

}  // namespace

OtherDescriptors::OtherDescriptors() { ++otherTables; }
OtherDescriptors::~OtherDescriptors() { --otherTables; }

void keepFromChildren(int socket) {
  if (socket < 0 || socket >= kMost || otherTables > 0) return;
  const int before = errno;
  inodes[static_cast<size_t>(socket)].store(inodeOf(socket), std::memory_order_relaxed);
  int end = behindLast.load(std::memory_order_relaxed);
  while (end <= socket && !behindLast.compare_exchange_weak(end, socket + 1, std::memory_order_release)) {}
  errno = before;
}

}  // namespace tutti
