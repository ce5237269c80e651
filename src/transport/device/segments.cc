#include "transport/device/segments.h"

#include <algorithm>

namespace tutti::transport::device {

using memory::DeviceMemory;
using memory::Gpu;
using memory::ScratchPool;
using memory::Shared;

/// The thread that fetches; its end is that of the attempt, also when it is left by an exception (no memory).
class Segments::Turn {
 public:
  Turn(Segments& segments, const Key& key, std::shared_ptr<Attempt> attempt)
      : segments_(segments), key_(key), attempt_(std::move(attempt)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    const std::lock_guard lock(segments_.mutex_);
    const auto entry = segments_.entries_.find(key_);
    if (attempt_->outcome) {
      entry->second = {*attempt_->outcome, nullptr};
    } else {
      segments_.entries_.erase(entry);
    }
    attempt_->isOver = true;
    attempt_->ended.notify_all();
  }

 private:
  Segments& segments_;
  const Key& key_;
  const std::shared_ptr<Attempt> attempt_;
};

Segments::Segments(Pools pools, std::chrono::milliseconds limit)
    : pools_(std::move(pools)),
      limit_(limit),
      server_([this](int32_t device, memory::Place place, uint64_t number) { return give(device, place, number); }) {}

/// On the server's thread.
Result<Shared> Segments::give(int32_t device, memory::Place place, uint64_t number) const {
  if (place == memory::Place::User) return published_.share(device, number);
  const ScratchPool* const pool = pools_(device, place);
  if (pool == nullptr) return fail(Code::InvalidArgument, "the process has no scratch on a device {}", device);
  // Else a capture of another thread might forbid the driver what follows.
  const auto mode = pool->gpu().driver().exchangeCaptureMode(driver::cuda::CaptureMode::Relaxed);
  if (!mode) return tl::unexpected(mode.error());
  return pool->share(number);
}

Result<Reached> Segments::reachOwn(const Gpu& reader, const SegmentName& name) const {
  ScratchPool* const pool = pools_(name.device, name.place);
  if (pool == nullptr) return fail(Code::InvalidArgument, "this process has no scratch on a device {}", name.device);
  const auto address = pool->allow(name.number, reader);
  if (!address) return tl::unexpected(address.error());
  return Reached(*address);
}

Result<Segments::Mapping> Segments::fetch(const Gpu& reader, const SegmentName& name) const {
  const auto shared = server_.isOwn(name.process) ? published_.share(name.device, name.number) : fetchSegment(name, limit_);
  if (!shared) return tl::unexpected(shared.error());
  auto opened = DeviceMemory::open(reader, shared->ticket, shared->fd.get());
  if (!opened)
    return tl::unexpected(std::move(opened).error().at(
        format("map segment {} of device {} of a peer for device {}", name.number, name.device, reader.device())));
  return std::make_shared<const DeviceMemory>(std::move(*opened));
}

Result<Reached> Segments::reach(const Gpu& reader, const SegmentName& name) {
  if (server_.isOwn(name.process) && name.place != memory::Place::User) return reachOwn(reader, name);
  const Key key{name, reader.device()};
  auto attempt = std::make_shared<Attempt>();
  {
    std::unique_lock lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return entry.second.attempt == nullptr && entry.second.mapping.expired(); });
    Entry& entry = entries_[key];
    if (Mapping mapping = entry.mapping.lock()) return Reached(std::move(mapping));
    if (entry.attempt != nullptr) {
      const std::shared_ptr<Attempt> other = entry.attempt;
      other->ended.wait(lock, [&] { return other->isOver; });
      if (!other->outcome) return tl::unexpected(other->outcome.error());
      return Reached(*other->outcome);
    }
    entry.attempt = attempt;
  }
  const Turn turn(*this, key, attempt);
  attempt->outcome = fetch(reader, name);
  if (!attempt->outcome) return tl::unexpected(attempt->outcome.error());
  return Reached(*attempt->outcome);
}

size_t Segments::mapped() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::ranges::count_if(entries_, [](const auto& entry) { return !entry.second.mapping.expired(); }));
}

}  // namespace tutti::transport::device
