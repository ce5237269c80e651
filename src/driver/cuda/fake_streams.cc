// The fake's copies, streams and events: what a stream is given is done before the call returns, unless it has work before it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>

#include "driver/cuda/fake_driver.h"

namespace tutti::driver::cuda {
namespace {

/// Whole pages of zeros are given back to the file behind them, which then reads as zeros: most of what is set to zero is never touched.
/// The thread sanitizer would not take that for a write.
void fill(DevicePtr to, uint8_t value, size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  std::memset(reinterpret_cast<void*>(to), value, bytes);
#else
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (to + page - 1) / page * page, last = (to + bytes) / page * page;
  if (value != 0 || first >= last || madvise(reinterpret_cast<void*>(first), last - first, MADV_REMOVE) != 0) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return;
  }
  std::memset(reinterpret_cast<void*>(to), 0, first - to);
  std::memset(reinterpret_cast<void*>(last), 0, to + bytes - last);
#endif
}

std::atomic<uint64_t> batches = 0;

template <class Word>
void store(const StreamOp& op) {
  std::atomic_ref(*reinterpret_cast<Word*>(op.address)).store(static_cast<Word>(op.value), std::memory_order_release);
}

void operate(const StreamOp& op) {
  if (op.kind == StreamOpKind::Write) return store<uint32_t>(op);
  if (op.kind == StreamOpKind::WriteWide) return store<uint64_t>(op);
  const std::atomic_ref word(*reinterpret_cast<uint32_t*>(op.address));
  while (word.load(std::memory_order_acquire) != static_cast<uint32_t>(op.value))
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace

uint64_t FakeApi::streamBatches() { return batches; }

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
  give(stream, std::move(work), false);
  return Error::Success;
}

void FakeDriver::give(Stream stream, FakeQueues::Work work, bool now) {
  if (isCapturing(stream)) return capture(stream, std::move(work));
  now ? queues_.putOrRun(queueOf(stream), std::move(work)) : queues_.put(queueOf(stream), std::move(work));
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
  give(stream, [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); }, true);
  return Error::Success;
}

/// Rows of device memory or of what the caller has; no arrays.
Error FakeDriver::memcpy2DAsync(const PlaneCopy* copy, Stream stream) {
  if (current() < 0) return Error::InvalidContext;
  if (!isStream(stream)) return Error::InvalidHandle;
  for (const PlaneSide& side : {copy->from, copy->to}) {
    if (side.type != MemoryType::OnDevice && side.type != MemoryType::Unified) return Error::NotSupported;
    if (side.device == 0 || (copy->height > 1 && side.pitch < side.x + copy->width)) return Error::InvalidValue;
  }
  const auto rowOf = [](const PlaneSide& side, size_t row) { return side.device + (side.y + row) * side.pitch + side.x; };
  for (size_t row = 0; row < copy->height; ++row) {
    for (const PlaneSide& side : {copy->from, copy->to})
      if (const Error error = checkCopy(rowOf(side, row), copy->width, current()); error != Error::Success) return error;
  }
  const auto work = [c = *copy, rowOf] {
    for (size_t row = 0; row < c.height; ++row)
      std::memmove(reinterpret_cast<void*>(rowOf(c.to, row)), reinterpret_cast<const void*>(rowOf(c.from, row)), c.width);
  };
  give(stream, work, true);
  return Error::Success;
}

/// What may be addressed is checked now; words are written, and waited for, when the stream comes to them.
Error FakeDriver::streamBatchMemOp(Stream stream, uint32_t count, StreamOp* ops, uint32_t flags) {
  if (current() < 0) return Error::InvalidContext;
  if (!isStream(stream)) return Error::InvalidHandle;
  if (count == 0 || count > kMostStreamOps || flags != 0) return Error::InvalidValue;
  for (const StreamOp& op : std::span(ops, count)) {
    const uint32_t known = op.kind == StreamOpKind::Wait ? kWaitEqual : 0;
    const uint64_t bytes = op.kind == StreamOpKind::WriteWide ? sizeof(uint64_t) : sizeof(uint32_t);
    if (op.kind == StreamOpKind::WriteWide && !options_.wideStreamOps) return Error::NotSupported;
    if (op.address == 0 || op.address % bytes != 0 || op.flags != known) return Error::InvalidValue;
    if (!accessible(current(), op.address, bytes)) return Error::InvalidValue;
  }
  ++batches;
  give(stream, [all = std::vector<StreamOp>(ops, ops + count)] { std::ranges::for_each(all, operate); }, false);
  return Error::Success;
}

Error FakeDriver::memsetD8Async(DevicePtr to, uint8_t value, size_t bytes, Stream stream) {
  if (current() < 0) return Error::InvalidContext;
  if (!isStream(stream)) return Error::InvalidHandle;
  if (!accessible(current(), to, bytes)) return Error::InvalidValue;
  give(stream, [=] { fill(to, value, bytes); }, true);
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
  captureOf_.erase(stream);
  queues_.forget(found->second);
  streams_.erase(found);
  return Error::Success;
}

Error FakeDriver::streamQuery(Stream stream) {
  if (!isStream(stream)) return Error::InvalidHandle;
  if (isCapturing(stream)) return breakCapture(captureOf_.at(stream).id, Error::StreamCaptureUnsupported);
  return busy_ || !queues_.isOver(queues_.mark(queueOf(stream))) ? Error::NotReady : Error::Success;
}

Error FakeDriver::streamSynchronize(Stream stream) {
  if (!isStream(stream)) return Error::InvalidHandle;
  if (isCapturing(stream)) return breakCapture(captureOf_.at(stream).id, Error::StreamCaptureUnsupported);
  if (busy_) return Error::LaunchFailed;  // work that never ends cannot be waited for: say so instead of hanging
  wait_ = queues_.mark(queueOf(stream));
  return Error::Success;
}

Error FakeDriver::streamWaitEvent(Stream stream, Event event, uint32_t flags) {
  if (flags != 0) return Error::InvalidValue;
  const auto found = events_.find(event);
  if (!isStream(stream) || found == events_.end()) return Error::InvalidHandle;
  const auto& [mark, captured] = found->second;
  const bool isOfCapture = captures_.contains(captured.id);
  if (!isOfCapture && isCapturing(stream)) return breakCapture(captureOf_.at(stream).id, Error::StreamCaptureIsolation);
  if (!isOfCapture) {
    if (!queues_.isOver(mark)) queues_.putWait(queueOf(stream), mark);
    return Error::Success;
  }
  Captured& own = captureOf_[stream];  // it may join the capture by this
  if (own.id != 0 && own.id != captured.id) return breakCapture(own.id, Error::StreamCaptureIsolation);
  own.id = captured.id;
  for (const GraphNode node : captured.after)
    if (std::find(own.after.begin(), own.after.end(), node) == own.after.end()) own.after.push_back(node);
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
  const auto captured = captureOf_.find(stream);
  found->second = captured == captureOf_.end() ? EventState{queues_.mark(queueOf(stream)), {}} : EventState{{}, captured->second};
  return Error::Success;
}

Error FakeDriver::eventQuery(Event event) {
  const auto found = events_.find(event);
  if (found == events_.end()) return Error::InvalidHandle;
  if (captures_.contains(found->second.captured.id)) return Error::CapturedEvent;
  return busy_ || !queues_.isOver(found->second.mark) ? Error::NotReady : Error::Success;
}

Error FakeDriver::eventSynchronize(Event event) {
  const auto found = events_.find(event);
  if (found == events_.end()) return Error::InvalidHandle;
  if (busy_) return Error::LaunchFailed;
  if (captures_.contains(found->second.captured.id)) return Error::CapturedEvent;
  wait_ = found->second.mark;
  return Error::Success;
}

}  // namespace tutti::driver::cuda
