// A call that is made on the reactor's thread some time from now, unless its owner has gone by then.
//
// Owner: whoever waits. Made and destroyed by any thread; the reactor must be held for the call to be made.
// 1. The call is made at most once, with no lock held. It may still be under way when the destructor returns: give it a weak pointer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "bootstrap/reactor.h"

namespace tutti::bootstrap {

class Alarm {
 public:
  Alarm() = default;
  Alarm(Reactor& reactor, std::chrono::milliseconds after, std::function<void()> call);
  Alarm(Alarm&&) noexcept = default;
  Alarm& operator=(Alarm&& other) noexcept;
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm() { cancel(); }

  void cancel();
  explicit operator bool() const { return state_ != nullptr; }

 private:
  struct State;
  Reactor* reactor_ = nullptr;
  std::shared_ptr<State> state_;
};

}  // namespace tutti::bootstrap
