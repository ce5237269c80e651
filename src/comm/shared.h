// What a rank's communicator and the children that share its resources have in common: one fate, and one thread for work that
// nobody waits for. Pipes, windows and boards are each communicator's own: they are what tells two of them apart.
//
// Owner: those communicators, by reference count; it lives until the last of them is gone. Any thread may call.
// 1. An abort of one of them ends the work of all.
// 2. The thread is started at first use; it runs one work after the other, in the order in which they were issued.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "exec/host/stream.h"
#include "transport/local/hub.h"

namespace tutti::comm {

class Shared {
 public:
  Shared() = default;
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  /// Another communicator shares the fate.
  void add(const std::shared_ptr<transport::local::Hub>& hub);
  /// Fails all work of all of them, on every rank; afterwards none touches the buffers of another any more.
  void failAll(const Status& cause);

  /// Where work with the NULL stream of a non-blocking communicator runs. SystemError when the system has no thread to give.
  Result<std::shared_ptr<exec::host::Stream>> worker();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<transport::local::Hub>> hubs_;
  std::shared_ptr<exec::host::Stream> worker_;
};

/// Threads whose last item still waits for something of others when their communicators are gone: ended as soon as that is over.
class RetiredWorkers {
 public:
  /// Returns soon, whatever the thread waits for.
  void add(std::shared_ptr<exec::host::Stream> worker);
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<exec::host::Stream>> workers_;
};

}  // namespace tutti::comm
