// The fake's copies, streams and events: what a stream is given is done before the call returns.
#include <cstring>

#include "driver/cuda/fake_driver.h"

namespace tutti::driver::cuda {

bool FakeDriver::isStream(Stream stream) const {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  return number <= kPerThreadStream || streams_.contains(stream);
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
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return Error::Success;
}

Error FakeDriver::memsetD8Async(DevicePtr to, uint8_t value, size_t bytes, Stream stream) {
  if (current() < 0) return Error::InvalidContext;
  if (!isStream(stream)) return Error::InvalidHandle;
  if (!accessible(current(), to, bytes)) return Error::InvalidValue;
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return Error::Success;
}

Error FakeDriver::streamCreate(Stream* stream, uint32_t flags) {
  if (current() < 0) return Error::InvalidContext;
  if (flags > kStreamNonBlocking) return Error::InvalidValue;
  *stream = reinterpret_cast<Stream>(++lastObject_);
  streams_.insert(*stream);
  return Error::Success;
}

Error FakeDriver::streamDestroy(Stream stream) {
  captures_.erase(stream);
  return streams_.erase(stream) == 1 ? Error::Success : Error::InvalidHandle;
}

Error FakeDriver::streamQuery(Stream stream) {
  if (!isStream(stream)) return Error::InvalidHandle;
  return busy_ ? Error::NotReady : Error::Success;
}

Error FakeDriver::streamSynchronize(Stream stream) {
  if (!isStream(stream)) return Error::InvalidHandle;
  return busy_ ? Error::LaunchFailed : Error::Success;  // work that never ends cannot be waited for: say so instead of hanging
}

Error FakeDriver::streamWaitEvent(Stream stream, Event event, uint32_t flags) {
  if (flags != 0) return Error::InvalidValue;
  return isStream(stream) && events_.contains(event) ? Error::Success : Error::InvalidHandle;
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
  events_.insert(*event);
  return Error::Success;
}

Error FakeDriver::eventDestroy(Event event) { return events_.erase(event) == 1 ? Error::Success : Error::InvalidHandle; }

Error FakeDriver::eventRecord(Event event, Stream stream) {
  return events_.contains(event) && isStream(stream) ? Error::Success : Error::InvalidHandle;
}

Error FakeDriver::eventQuery(Event event) {
  if (!events_.contains(event)) return Error::InvalidHandle;
  return busy_ ? Error::NotReady : Error::Success;
}

Error FakeDriver::eventSynchronize(Event event) {
  if (!events_.contains(event)) return Error::InvalidHandle;
  return busy_ ? Error::LaunchFailed : Error::Success;
}

}  // namespace tutti::driver::cuda
