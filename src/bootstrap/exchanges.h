// The all-gathers of a mesh that are under way: numbers, deadlines, results, and failures that everybody hears of.
//
// Owner: the mesh. Everything on the mesh's thread; results are read by any thread.
// 1. The n-th call of each process belongs together. What comes for a call that is not made here yet waits for it.
// 2. Who meets its deadline asks those it waits for whether they have begun. One who has not is named, and that ends it everywhere; one who
//    has asks in his turn. Without any answer those are named whose parts are missing.
// 3. After a loss nothing can complete: what is under way and what is begun later fails with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "bootstrap/alarm.h"
#include "bootstrap/gatherer.h"
#include "bootstrap/messages.h"

namespace tutti::bootstrap {

class Exchanges {
 public:
  struct Ways {
    std::function<void(int32_t process, std::vector<std::byte> message)> send;
    /// To all neighbours in the tree but one.
    std::function<void(int32_t except, std::vector<std::byte> message)> passOn;
    /// Calls back on the thread, after a while, with a number.
    std::function<Alarm(std::chrono::milliseconds after, uint64_t number)> remind;
  };
  class State;

  Exchanges(const Membership& membership, Ways ways) : membership_(membership), ways_(std::move(ways)) {}

  /// The calls of this process, in their order.
  void start(const std::shared_ptr<State>& state);
  /// False when the message makes no sense.
  bool take(int32_t process, std::span<const std::byte> message);
  void remind(uint64_t number);
  /// A process is gone, or has left in peace: then only what needs it fails.
  void lose(const Status& cause);
  void leave(int32_t process, const Status& cause);

 private:
  struct Call {
    std::unique_ptr<Gatherer> gatherer;
    std::shared_ptr<State> state;  // once it is begun here
    Alarm alarm;
    bool isLate = false;         // the deadline has passed
    std::set<int32_t> notBegun;  // who said so
  };
  Call& callOf(uint64_t number);
  void answer(int32_t process, uint64_t number);
  void onNotBegun(int32_t process, uint64_t number);
  void settle(uint64_t number);
  void fail(uint64_t number, const Status& cause, int32_t heardFrom);

  const Membership& membership_;
  const Ways ways_;
  std::map<uint64_t, Call> calls_;
  std::map<uint64_t, Status> failed_;  // before they were begun here
  uint64_t begun_ = 0;                 // numbers below are begun here
  Status loss_;
};

/// What a caller looks at.
class Exchanges::State : public Exchange {
 public:
  State(std::span<const std::byte> bytes, std::chrono::milliseconds l) : own(bytes.begin(), bytes.end()), limit(l) {}
  std::optional<Result<std::shared_ptr<const Gathered>>> poll() const override;
  std::vector<int32_t> missing() const override;
  void look(const Gatherer& gatherer);
  void conclude(Result<std::shared_ptr<const Gathered>> outcome);

  const std::vector<std::byte> own;
  const std::chrono::milliseconds limit;

 private:
  mutable std::mutex mutex_;
  std::optional<Result<std::shared_ptr<const Gathered>>> outcome_;  // under mutex_, with the next
  std::vector<int32_t> missing_;
};

}  // namespace tutti::bootstrap
