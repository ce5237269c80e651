// A host stream: work in order, on a thread of its own, as a CUDA stream is for a GPU.
//
// Owner: the process-wide table of streams (comm/process.h), shared with launches that are queued on it. Any thread may call.
// 1. Items run one after the other, in the order in which they were pushed.
// 2. stop() runs everything that was pushed, then ends the thread; nothing may be pushed afterwards.
// 3. The first error of the work on it is kept until somebody takes it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "core/status.h"

namespace tutti::exec::host {

class Stream {
 public:
  Stream() = default;
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Starts the thread, under a name of at most 15 bytes if one is given; SystemError when the system has none to give.
  Status start(const char* threadName = nullptr);
  void push(std::function<void()> item);
  /// Waits until everything pushed before the call has run. Must not be called from an item.
  void synchronize();
  bool idle() const;
  /// Ends the thread. Must be called before the last reference goes, and not from an item.
  void stop();
  bool isStopped() const;

  void fail(const Status& status);
  /// The first error since the last call.
  Status takeError();

 private:
  void loop();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> items_;  // the running one stays in front until it has ended
  bool stopping_ = false;
  Status error_;
  std::thread thread_;
};

}  // namespace tutti::exec::host
