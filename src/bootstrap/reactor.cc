#include "bootstrap/reactor.h"

#include <chrono>
#include <exception>
#include <functional>
#include <future>

#include "bootstrap/asio.h"
#include "core/thread.h"
#include "observe/log.h"

namespace tutti::bootstrap {
namespace {

/// Not told that it has one thread alone: what that one posts it would keep to itself until its task is over, and run behind what other
/// threads post meanwhile.
std::shared_ptr<asio::io_context> makeLoop() { return std::make_shared<asio::io_context>(); }

/// How long the thread stays when nobody needs it: programs make communicators in loops.
constexpr std::chrono::milliseconds kLinger(100);

/// From a service's end over a mesh's to the goodbye on its connections, and the system call that sends it.
constexpr int kLastTurns = 4;

using Guard = asio::executor_work_guard<asio::io_context::executor_type>;

void runLoop(asio::io_context& loop) {
  for (;;) {
    try {
      loop.run();
      return;
    } catch (const std::exception& problem) {  // no memory, in a task that could not go on: those who wait have deadlines
      observe::warn("bootstrap: {}", problem.what());
    }
  }
}

}  // namespace

Status Reactor::hold(bool namesThread) {
  const std::lock_guard lock(mutex_);
  if (isStopped_) return error(Code::InvalidUsage, "the service that connects processes has ended");
  if (!isRunning_) {
    if (thread_.joinable()) thread_.join();  // it has taken the lock for the last time
    Result<std::thread> started;
    try {
      loop_ = makeLoop();
      const asio::steady_timer opensDescriptors(*loop_);
      keepsRunning_ = std::make_shared<Guard>(loop_->get_executor());
      started = startThread(namesThread ? "tutti boot" : nullptr, "that connects processes", [loop = loop_] { runLoop(*loop); });
    } catch (const std::exception& problem) {
      started = fail(Code::SystemError, "cannot start the service that connects processes: {}", problem.what());
    }
    if (!started) {
      keepsRunning_.reset();
      loop_.reset();
      return std::move(started).error();
    }
    thread_ = std::move(*started);
    isRunning_ = true;
  }
  ++holders_;
  return {};
}

Status Reactor::runHere(const std::function<void()>& begin, std::chrono::milliseconds most) {
  Status status;
  try {
    auto loop = makeLoop();
    const asio::steady_timer opensDescriptors(*loop);
    {
      const std::lock_guard lock(mutex_);
      loop_ = loop;
      isRunning_ = true;
    }
    begin();
    loop->run_for(most);
  } catch (const std::exception& problem) {
    status = error(Code::SystemError, "cannot connect to other processes: {}", problem.what());
  }
  std::shared_ptr<asio::io_context> ended;  // goes without the lock: what goes with it may want it
  const std::lock_guard lock(mutex_);
  isRunning_ = false;
  ended = std::exchange(loop_, nullptr);
  return status;
}

void Reactor::leave() {
  const std::lock_guard lock(mutex_);
  if (isRunning_) loop_->stop();
}

void Reactor::release() {
  const std::lock_guard lock(mutex_);
  if (--holders_ > 0 || !isRunning_) return;
  asio::post(*loop_, [this, idle = ++idleTimes_] { lingerThenEnd(idle); });
}

void Reactor::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (isRunning_) asio::post(*loop_, std::move(task));
}

bool Reactor::settle(std::chrono::milliseconds most) {
  struct Turns {
    std::promise<void> over;
    std::function<void(int)> next;
  };
  const auto turns = std::make_shared<Turns>();
  std::future<void> over = turns->over.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (!isRunning_ || thread_.get_id() == std::this_thread::get_id()) return false;
    turns->next = [this, weak = std::weak_ptr(turns)](int left) {
      const auto turn = weak.lock();
      if (left == 0) return turn->over.set_value();
      post([turn, left] { turn->next(left - 1); });
    };
    asio::post(*loop_, [turns] { turns->next(kLastTurns); });
  }
  (void)over.wait_for(most);
  return true;
}

bool Reactor::isRunning() const {
  const std::lock_guard lock(mutex_);
  return isRunning_;
}

void Reactor::lingerThenEnd(uint64_t idle) {
  const auto timer = std::make_shared<asio::steady_timer>(*loop_, kLinger);
  timer->async_wait([this, timer, idle](const asio::error_code&) {
    const std::lock_guard lock(mutex_);
    if (holders_ == 0 && idle == idleTimes_) end();
  });
}

/// Under the lock. The loop itself goes with the last who has it: the thread.
void Reactor::end() {
  if (!isRunning_) return;
  isRunning_ = false;
  keepsRunning_.reset();
  loop_->stop();
  loop_.reset();
}

/// Under the lock: when what is posted has run, and what that posts, and so on `turns` times.
void Reactor::endAfter(int turns) {
  asio::post(*loop_, [this, turns] {
    const std::lock_guard lock(mutex_);
    if (turns == 0) return end();
    if (isRunning_) endAfter(turns - 1);
  });
}

void Reactor::stop() {
  {
    const std::lock_guard lock(mutex_);
    isStopped_ = true;
    if (isRunning_) {
      endAfter(kLastTurns);
    }
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace tutti::bootstrap
