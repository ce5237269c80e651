#include "bootstrap/exchanges.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "bootstrap/wire.h"

namespace tutti::bootstrap {
namespace {

/// Stand where a message has a phase.
constexpr uint8_t kFailed = 255;    ///< the all-gather has failed, and why
constexpr uint8_t kAsk = 254;       ///< have you begun?
constexpr uint8_t kNotBegun = 253;  ///< no
/// How long answers may take, and how long others are waited for who have not begun either.
constexpr std::chrono::milliseconds kAnswerLimit(1000);
constexpr std::chrono::milliseconds kCollect(20);
/// A message for a call that lies further ahead is no message of ours: what is kept for calls that have not begun here grows with them and
/// with the number of processes.
constexpr uint64_t kMostAhead = 256;

std::vector<std::byte> shortMessage(uint64_t number, uint8_t what) {
  Writer writer;
  writer.number(number);
  writer.number(what);
  return std::move(writer).take();
}

}  // namespace

std::optional<Result<std::shared_ptr<const Gathered>>> Exchanges::State::poll() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

std::vector<int32_t> Exchanges::State::missing() const {
  const std::lock_guard lock(mutex_);
  return outcome_ ? std::vector<int32_t>() : missing_;
}

void Exchanges::State::look(const Gatherer& gatherer) {
  const std::vector<int32_t> parts = gatherer.missing();
  const std::vector<int32_t> next = gatherer.waitsFor();
  const std::lock_guard lock(mutex_);
  missing_.clear();
  std::set_union(parts.begin(), parts.end(), next.begin(), next.end(), std::back_inserter(missing_));
}

void Exchanges::State::conclude(Result<std::shared_ptr<const Gathered>> outcome) {
  const std::lock_guard lock(mutex_);
  if (!outcome_) outcome_ = std::move(outcome);
}

Exchanges::Call& Exchanges::callOf(uint64_t number) {
  Call& call = calls_[number];
  if (!call.gatherer) call.gatherer = std::make_unique<Gatherer>(membership_, number, ways_.send);
  return call;
}

void Exchanges::start(const std::shared_ptr<State>& state) {
  const uint64_t number = begun_++;
  if (!loss_.ok()) return state->conclude(tl::unexpected(loss_));
  if (const auto failed = failed_.find(number); failed != failed_.end()) {
    state->conclude(tl::unexpected(failed->second));
    failed_.erase(failed);
    return;
  }
  Call& call = callOf(number);
  call.state = state;
  call.alarm = ways_.remind(state->limit, number);
  call.gatherer->start(state->own);
  settle(number);
}

bool Exchanges::take(int32_t process, std::span<const std::byte> message) {
  Reader reader(message);
  const auto number = reader.number<uint64_t>();
  const auto rest = message.subspan(reader.ok() ? sizeof number : message.size());
  if (rest.empty() || number >= begun_ + kMostAhead) return false;
  const bool isOver = number < begun_ && calls_.count(number) == 0;
  const auto what = std::to_integer<uint8_t>(rest.front());
  if (what == kFailed && !isOver) fail(number, decodeTrouble(rest.subspan(1)), process);
  if (what == kAsk) answer(process, number);
  if (what == kNotBegun) onNotBegun(process, number);
  if (what >= kNotBegun) return true;
  if (isOver || !loss_.ok() || failed_.count(number) != 0) return true;  // too late to matter
  if (!callOf(number).gatherer->take(process, rest)) return false;
  settle(number);
  return true;
}

void Exchanges::settle(uint64_t number) {
  const auto call = calls_.find(number);
  if (call == calls_.end()) return;
  if (!call->second.gatherer->isComplete()) {
    if (call->second.state) call->second.state->look(*call->second.gatherer);
    return;
  }
  call->second.state->conclude(std::make_shared<const Gathered>(call->second.gatherer->result()));
  calls_.erase(call);
}

void Exchanges::answer(int32_t process, uint64_t number) {
  if (number >= begun_) ways_.send(process, shortMessage(number, kNotBegun));
}

void Exchanges::onNotBegun(int32_t process, uint64_t number) {
  const auto call = calls_.find(number);
  if (call == calls_.end() || !call->second.isLate) return;
  if (call->second.notBegun.empty()) call->second.alarm = ways_.remind(kCollect, number);
  call->second.notBegun.insert(process);
}

void Exchanges::remind(uint64_t number) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  Call& call = found->second;
  if (!std::exchange(call.isLate, true)) {
    call.alarm = ways_.remind(kAnswerLimit, number);
    for (const int32_t process : call.gatherer->waitsFor()) ways_.send(process, shortMessage(number, kAsk));
    return;
  }
  const std::vector<int32_t> late(call.notBegun.begin(), call.notBegun.end());
  fail(number,
       error(Code::RemoteError, "an all-gather of the communicator's processes was not complete after {} ms: {}", call.state->limit.count(),
             late.empty() ? describeProcesses(membership_, call.gatherer->missing()) + " did not come, or do not answer"
                          : describeProcesses(membership_, late) + " did not come"),
       -1);
}

void Exchanges::fail(uint64_t number, const Status& cause, int32_t heardFrom) {
  if (number < begun_) {
    auto call = calls_.extract(number);
    if (call.empty()) return;
    call.mapped().state->conclude(tl::unexpected(cause));
  } else if (!failed_.emplace(number, cause).second) {
    return;
  } else {
    calls_.erase(number);
  }
  Writer writer;
  writer.number(number);
  writer.number(kFailed);
  writer.raw(encode(cause));
  ways_.passOn(heardFrom, std::move(writer).take());
}

void Exchanges::lose(const Status& cause) {
  if (loss_.ok()) loss_ = cause;
  for (auto& [number, call] : std::exchange(calls_, {})) {
    if (call.state) call.state->conclude(tl::unexpected(cause));
  }
}

void Exchanges::leave(int32_t process, const Status& cause) {
  std::vector<uint64_t> ended;
  for (const auto& [number, call] : calls_) {
    if (call.gatherer->needs(process)) ended.push_back(number);
  }
  for (const uint64_t number : ended) fail(number, cause, -1);
}

}  // namespace tutti::bootstrap
