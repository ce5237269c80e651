// The descriptors that an engine sleeps on: an epoll set, edge by edge.
//
// Owner: the Engine. Everything under the engine's lock, but wait(), which any thread may call, also several.
// 1. An event is told once, by harvest(); whoever is told tries until the kernel has no more.
// 2. wait() consumes nothing: it returns when there is something to harvest.
#pragma once

#include <cstdint>
#include <span>

#include "core/clock.h"
#include "core/status.h"
#include "core/unique_handle.h"

namespace tutti::progress {

struct DescriptorTraits {
  using Type = int;
  static Type invalid() noexcept { return -1; }
  static void close(Type fd) noexcept;
};
using Descriptor = UniqueHandle<DescriptorTraits>;

/// An eventfd: wakes one who waits for it.
class Bell {
 public:
  Status open();
  void ring() const;
  void silence() const;
  int descriptor() const { return fd_.get(); }

 private:
  Descriptor fd_;
};

/// Something that wants to know of events.
class Watcher {
 public:
  /// The event that it was added with has happened.
  virtual void onEvent() = 0;

 protected:
  ~Watcher() = default;
};

class Poller {
 public:
  Status open();
  Status add(int descriptor, Watcher* watcher);
  /// Before the descriptor is closed.
  void remove(int descriptor);
  /// Tells all watchers whose descriptors are ready.
  void harvest();
  int descriptor() const { return epoll_.get(); }

 private:
  Descriptor epoll_;
};

/// Until one of the descriptors (-1 is passed over) is readable, or the time is up; negative: for ever. A mask of the readable ones.
uint32_t waitFor(std::span<const int> descriptors, Nanoseconds timeout);

}  // namespace tutti::progress
