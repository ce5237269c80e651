#include "bootstrap/alarm.h"

#include <optional>
#include <utility>

#include "bootstrap/asio.h"

namespace tutti::bootstrap {

struct Alarm::State {
  std::optional<asio::steady_timer> timer;  // only on the thread
  std::function<void()> call;
};

Alarm::Alarm(Reactor& reactor, std::chrono::milliseconds after, std::function<void()> call)
    : reactor_(&reactor), state_(std::make_shared<State>()) {
  state_->call = std::move(call);
  reactor.post([&reactor, after, weak = std::weak_ptr(state_)] {
    const auto state = weak.lock();
    if (!state) return;
    state->timer.emplace(reactor.loop(), after);
    state->timer->async_wait([state](const asio::error_code& why) {
      const std::function<void()> due = std::exchange(state->call, nullptr);
      state->timer.reset();
      if (!why && due) due();
    });
  });
}

Alarm& Alarm::operator=(Alarm&& other) noexcept {
  if (this != &other) {
    cancel();
    reactor_ = other.reactor_;
    state_ = std::move(other.state_);
  }
  return *this;
}

void Alarm::cancel() {
  if (!state_) return;
  reactor_->post([state = std::exchange(state_, nullptr)] {
    state->call = nullptr;
    state->timer.reset();
  });
}

}  // namespace tutti::bootstrap
