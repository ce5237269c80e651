// The part of Driver that deals with copies, streams and events.
#include "driver/cuda/driver.h"

namespace tutti::driver::cuda {
namespace {

const void* shown(const void* handle) { return handle; }

}  // namespace

Status Driver::copy(DevicePtr to, DevicePtr from, Bytes bytes, Stream stream) {
  return check(api_->memcpyAsync(to, from, bytes.value, stream), Call::memcpyAsync, "{} bytes from {:#x} to {:#x}", bytes.value, from, to);
}

Status Driver::copyInRows(DevicePtr to, DevicePtr from, Bytes bytes, Stream stream) {
  constexpr uint64_t kRow = 4096;
  const auto sideAt = [](DevicePtr address) {
    PlaneSide side;
    side.type = MemoryType::Unified;
    side.device = address;
    side.pitch = kRow;
    return side;
  };
  const PlaneCopy rows{sideAt(from), sideAt(to), kRow, bytes.value / kRow};
  const uint64_t done = rows.width * rows.height;
  if (rows.height > 0)
    TUTTI_TRY(check(api_->memcpy2DAsync(&rows, stream), Call::memcpy2DAsync, "{} rows from {:#x} to {:#x}", rows.height, from, to));
  return done == bytes.value ? Status() : copy(to + done, from + done, Bytes(bytes.value - done), stream);
}

Status Driver::fill(DevicePtr to, uint8_t value, Bytes bytes, Stream stream) {
  return check(api_->memsetD8Async(to, value, bytes.value, stream), Call::memsetD8Async, "{} bytes at {:#x}", bytes.value, to);
}

Status Driver::operate(Stream stream, std::span<StreamOp> ops) {
  const Error error = api_->streamBatchMemOp(stream, static_cast<uint32_t>(ops.size()), ops.data(), 0);
  return check(error, Call::streamBatchMemOp, "{} operations on stream {}", ops.size(), shown(stream));
}

Result<Stream> Driver::createStream() {
  Stream stream = nullptr;
  const Error error = api_->streamCreate(&stream, kStreamNonBlocking);
  return checked(error, stream, Call::streamCreate, "");
}

void Driver::destroyStream(Stream stream) { lose(api_->streamDestroy(stream), Call::streamDestroy, "stream {}", shown(stream)); }

Result<bool> Driver::isIdle(Stream stream) {
  const Error error = api_->streamQuery(stream);
  if (error == Error::NotReady) return false;
  return checked(error, true, Call::streamQuery, "stream {}", shown(stream));
}

Status Driver::synchronize(Stream stream) {
  return check(api_->streamSynchronize(stream), Call::streamSynchronize, "stream {}", shown(stream));
}

Status Driver::wait(Stream stream, Event event) {
  return check(api_->streamWaitEvent(stream, event, 0), Call::streamWaitEvent, "stream {}, event {}", shown(stream), shown(event));
}

Result<CaptureInfo> Driver::captureInfo(Stream stream) {
  CaptureInfo info;
  const GraphNode* after = nullptr;
  size_t count = 0;
  const Error error = api_->streamGetCaptureInfo(stream, &info.status, &info.id, &info.graph, &after, &count);
  if (error == Error::Success && info.isActive()) info.after = {after, count};
  return checked(error, info, Call::streamGetCaptureInfo, "stream {}", shown(stream));
}

Result<CaptureMode> Driver::exchangeCaptureMode(CaptureMode mode) {
  const auto asked = static_cast<int32_t>(mode);
  const Error error = api_->threadExchangeStreamCaptureMode(&mode);
  return checked(error, mode, Call::threadExchangeStreamCaptureMode, "mode {}", asked);
}

Result<Event> Driver::createEvent() {
  Event event = nullptr;
  const Error error = api_->eventCreate(&event, kEventDisableTiming);
  return checked(error, event, Call::eventCreate, "");
}

void Driver::destroyEvent(Event event) { lose(api_->eventDestroy(event), Call::eventDestroy, "event {}", shown(event)); }

Status Driver::record(Event event, Stream stream) {
  return check(api_->eventRecord(event, stream), Call::eventRecord, "event {}, stream {}", shown(event), shown(stream));
}

Result<bool> Driver::isOver(Event event) {
  const Error error = api_->eventQuery(event);
  if (error == Error::NotReady) return false;
  return checked(error, true, Call::eventQuery, "event {}", shown(event));
}

Status Driver::synchronize(Event event) { return check(api_->eventSynchronize(event), Call::eventSynchronize, "event {}", shown(event)); }

}  // namespace tutti::driver::cuda
