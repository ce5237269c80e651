// The fake's copies, streams and events: what a stream is given is done before the call returns, unless it has work before it.
#include <cstring>

#include "driver/cuda/fake_driver.h"

namespace tutti::driver::cuda {

bool FakeDriver::isStream(Stream stream) const {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  return number <= kPerThreadStream || streams_.contains(stream);
}

FakeQueues::Ref FakeDriver::queueOf(Stream stream) {
  if (const auto found = streams_.find(stream); found != streams_.end()) return found->second;
  const bool isThreads = reinterpret_cast<uintptr_t>(stream) == kPerThreadStream;
  FakeQueues::Ref& queue = defaults_[{current(), isThreads ? std::this_thread::get_id() : std::thread::id()}];
  if (queue == nullptr) queue = queues_.make();
  return queue;
}

Error FakeDriver::enqueue(Stream stream, std::function<void()> work) {
  if (current() < 0) return Error::InvalidContext;
  if (!isStream(stream)) return Error::InvalidHandle;
  queues_.put(queueOf(stream), std::move(work));
  return Error::Success;
}

/// Memory that no device has is taken for the caller's own.
Error FakeDriver::checkCopy(DevicePtr address, uint64_t bytes, Device device) const {
  bool known = false;
  for (const Regions* regions : {&mapped_, &plain_, &opened_}) known = known || touches(*regions, address, bytes);
  return !known || accessible(device, address, bytes) ? Error::Success : Error::IllegalAddress;
}

Error FakeDriver::memcpyAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  if (current() < 0) return Error::InvalidContext;
  if (!isStream(stream)) return Error::InvalidHandle;
  if (to == 0 || from == 0) return Error::InvalidValue;
  for (const DevicePtr address : {to, from})
    if (const Error error = checkCopy(address, bytes, current()); error != Error::Success) return error;
  queues_.putOrRun(queueOf(stream), [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
  return Error::Success;
}

Error FakeDriver::memsetD8Async(DevicePtr to, uint8_t value, size_t bytes, Stream stream) {
  if (current() < 0) return Error::InvalidContext;
  if (!isStream(stream)) return Error::InvalidHandle;
  if (!accessible(current(), to, bytes)) return Error::InvalidValue;
  queues_.putOrRun(queueOf(stream), [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return Error::Success;
}

Error FakeDriver::streamCreate(Stream* stream, uint32_t flags) {
  if (current() < 0) return Error::InvalidContext;
  if (flags > kStreamNonBlocking) return Error::InvalidValue;
  *stream = reinterpret_cast<Stream>(++lastObject_);
  streams_[*stream] = queues_.make();
  return Error::Success;
}

Error FakeDriver::streamDestroy(Stream stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return Error::InvalidHandle;
  captures_.erase(stream);
  queues_.forget(found->second);
  streams_.erase(found);
  return Error::Success;
}

Error FakeDriver::streamQuery(Stream stream) {
  if (!isStream(stream)) return Error::InvalidHandle;
  return busy_ || !queues_.isOver(queues_.mark(queueOf(stream))) ? Error::NotReady : Error::Success;
}

Error FakeDriver::streamSynchronize(Stream stream) {
  if (!isStream(stream)) return Error::InvalidHandle;
  if (busy_) return Error::LaunchFailed;  // work that never ends cannot be waited for: say so instead of hanging
  wait_ = queues_.mark(queueOf(stream));
  return Error::Success;
}

Error FakeDriver::streamWaitEvent(Stream stream, Event event, uint32_t flags) {
  if (flags != 0) return Error::InvalidValue;
  const auto found = events_.find(event);
  if (!isStream(stream) || found == events_.end()) return Error::InvalidHandle;
  if (!queues_.isOver(found->second)) queues_.putWait(queueOf(stream), found->second);
  return Error::Success;
}

Error FakeDriver::streamGetCaptureInfo(Stream stream, CaptureStatus* status, uint64_t* id) {
  if (!isStream(stream)) return Error::InvalidHandle;
  const auto capture = captures_.find(stream);
  *status = capture == captures_.end() ? CaptureStatus::None : capture->second.status;
  if (*status == CaptureStatus::Active) *id = capture->second.id;
  return Error::Success;
}

Error FakeDriver::threadExchangeStreamCaptureMode(CaptureMode* mode) {
  CaptureMode& mine = modes_[std::this_thread::get_id()];
  std::swap(mine, *mode);
  return Error::Success;
}

Error FakeDriver::eventCreate(Event* event, uint32_t) {
  if (current() < 0) return Error::InvalidContext;
  *event = reinterpret_cast<Event>(++lastObject_);
  events_[*event] = {};
  return Error::Success;
}

Error FakeDriver::eventDestroy(Event event) { return events_.erase(event) == 1 ? Error::Success : Error::InvalidHandle; }

Error FakeDriver::eventRecord(Event event, Stream stream) {
  const auto found = events_.find(event);
  if (found == events_.end() || !isStream(stream)) return Error::InvalidHandle;
  found->second = queues_.mark(queueOf(stream));
  return Error::Success;
}

Error FakeDriver::eventQuery(Event event) {
  const auto found = events_.find(event);
  if (found == events_.end()) return Error::InvalidHandle;
  return busy_ || !queues_.isOver(found->second) ? Error::NotReady : Error::Success;
}

Error FakeDriver::eventSynchronize(Event event) {
  const auto found = events_.find(event);
  if (found == events_.end()) return Error::InvalidHandle;
  if (busy_) return Error::LaunchFailed;
  wait_ = found->second;
  return Error::Success;
}

}  // namespace tutti::driver::cuda
