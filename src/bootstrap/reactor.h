// The one thread of a service, with the event loop that all its sockets and timers live in.
//
// Owner: the service. hold(), release() and post() may be called by any thread; loop() by the reactor's own thread alone.
// 1. The thread runs while somebody holds it and a moment longer; then it closes the loop and its descriptors, and ends. The next hold()
//    starts another.
// 2. What was posted runs on the thread, in the order of posting. A task posted while nobody holds may be dropped: whoever posts holds.
// 3. Sockets and timers are destroyed on the thread, before its end. An idle thread sleeps in the kernel.
// 4. After fork() the child has no thread: it must leave the object alone (Service does).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "bootstrap/asio.h"
#include "core/status.h"

namespace tutti::bootstrap {

/// Messages on the connections of a service, whatever they are for, those of handshakes too.
struct Traffic {
  uint64_t sent = 0;
  uint64_t received = 0;
};

class Reactor {
 public:
  Reactor() = default;
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;
  ~Reactor() { stop(); }

  /// Keeps the thread; starts it when it is not there. SystemError when the system gives no thread or descriptor.
  Status hold(bool namesThread = false);
  void release();
  void post(std::function<void()> task);
  /// Instead of a thread of its own: runs `begin`, and what comes of it, on the calling thread until there is nothing left, somebody
  /// calls leave(), or `most` is over; then closes the loop. Nobody may hold it before. SystemError when the system gives no descriptor.
  Status runHere(const std::function<void()>& begin, std::chrono::milliseconds most);
  /// Ends runHere(), wherever it is called.
  void leave();
  /// Runs what is posted already, and the next few things that come of it, then ends the thread and waits for it, whoever holds it. For
  /// good. Not on the thread itself.
  void stop();
  /// Waits until what was posted has run, with the next few things that come of it, such as the system calls that send what it wrote; not
  /// longer than `most`. False, without waiting, on the thread itself or when there is none.
  bool settle(std::chrono::milliseconds most);
  asio::io_context& loop() { return *loop_; }
  bool isRunning() const;
  void countSent() { sent_.fetch_add(1, std::memory_order_relaxed); }
  void countReceived() { received_.fetch_add(1, std::memory_order_relaxed); }
  Traffic traffic() const { return {sent_.load(std::memory_order_relaxed), received_.load(std::memory_order_relaxed)}; }

 private:
  void lingerThenEnd(uint64_t idle);
  void end();
  void endAfter(int turns);

  mutable std::mutex mutex_;
  std::thread thread_;
  std::shared_ptr<asio::io_context> loop_;  // written under mutex_ while the thread is not there, or by the thread at its end
  std::shared_ptr<void> keepsRunning_;      // so that the loop waits when it has nothing to do
  int64_t holders_ = 0;
  uint64_t idleTimes_ = 0;  // how often holders_ fell to 0
  bool isRunning_ = false;
  bool isStopped_ = false;
  std::atomic<uint64_t> sent_{0};  // counters: order nothing
  std::atomic<uint64_t> received_{0};
};

/// Keeps a reactor's thread for as long as it lives.
class ReactorHold {
 public:
  ReactorHold() = default;
  /// The caller has called hold() already.
  explicit ReactorHold(Reactor& reactor) : reactor_(&reactor) {}
  ReactorHold(ReactorHold&& other) noexcept : reactor_(std::exchange(other.reactor_, nullptr)) {}
  ReactorHold& operator=(ReactorHold&& other) noexcept {
    if (this != &other) {
      reset();
      reactor_ = std::exchange(other.reactor_, nullptr);
    }
    return *this;
  }
  ReactorHold(const ReactorHold&) = delete;
  ReactorHold& operator=(const ReactorHold&) = delete;
  ~ReactorHold() { reset(); }

  void reset() {
    if (reactor_ != nullptr) std::exchange(reactor_, nullptr)->release();
  }
  explicit operator bool() const { return reactor_ != nullptr; }

 private:
  Reactor* reactor_ = nullptr;
};

}  // namespace tutti::bootstrap
