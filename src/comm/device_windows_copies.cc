// The copies of calls on windows, and the streams that they are on (comm/device_windows.h, 5).
#include <algorithm>
#include <utility>

#include "comm/device_windows.h"

namespace tutti::comm {

using driver::cuda::CaptureStatus;
using driver::cuda::Driver;
using driver::cuda::OwnedEvent;
using driver::cuda::OwnedStream;
using driver::cuda::Stream;

namespace {

/// From here on the own piece is copied in rows: as one it takes so much of the memory that the pieces beside it do not fill their links
/// (docs/decisions/0051).
constexpr uint64_t kInRowsFrom = 1 << 20;

}  // namespace

/// The first on the caller's stream, or in turns all that go to peers; the others beside it.
Status DeviceWindows::copyAll(std::span<const Piece> pieces, bool goInTurns, Stream stream) {
  if (pieces.empty()) return {};
  Driver& driver = device_.gpu->driver();
  const size_t given = pieces.size() - (pieces.back().isOwn ? 1 : 0);
  const auto first = pieces.first(goInTurns ? std::max<size_t>(given, 1) : 1);
  const auto others = pieces.subspan(first.size());
  Lanes* lanes = nullptr;
  if (!others.empty()) {
    const auto found = lanesFor(stream, others.size());
    if (!found) return found.error();
    lanes = *found;
    TUTTI_TRY(driver.record(lanes->forked.get(), stream));
  }
  for (const Piece& piece : first) TUTTI_TRY(driver.copy(piece.to, piece.from, Bytes(piece.bytes), stream));
  for (size_t i = 0; i < others.size(); ++i) {
    const Lane& lane = lanes->lane[i];
    TUTTI_TRY(driver.wait(lane.stream.get(), lanes->forked.get()));
    const auto copy = others[i].isOwn && others[i].bytes >= kInRowsFrom ? &Driver::copyInRows : &Driver::copy;
    TUTTI_TRY((driver.*copy)(others[i].to, others[i].from, Bytes(others[i].bytes), lane.stream.get()));
    TUTTI_TRY(driver.record(lane.done.get(), lane.stream.get()));
  }
  for (size_t i = 0; i < others.size(); ++i) TUTTI_TRY(driver.wait(stream, lanes->lane[i].done.get()));
  return {};
}

Result<DeviceWindows::Beside> DeviceWindows::fork(Stream stream) {
  Driver& driver = device_.gpu->driver();
  const auto lanes = lanesFor(stream, 1);
  if (!lanes) return tl::unexpected(lanes.error());
  const Lane& lane = (*lanes)->lane.front();
  if (Status status = driver.record((*lanes)->forked.get(), stream); !status.ok()) return tl::unexpected(std::move(status));
  if (Status status = driver.wait(lane.stream.get(), (*lanes)->forked.get()); !status.ok()) return tl::unexpected(std::move(status));
  return Beside{lane.stream.get(), lane.done.get()};
}

Status DeviceWindows::join(const Beside& beside, Stream stream) {
  Driver& driver = device_.gpu->driver();
  TUTTI_TRY(driver.record(beside.done, beside.stream));
  return driver.wait(stream, beside.done);
}

/// A set that no other capture has: one whose first stream is in none, or in that of `stream`.
Result<DeviceWindows::Lanes*> DeviceWindows::lanesFor(Stream stream, size_t count) {
  Driver& driver = device_.gpu->driver();
  const auto capture = driver.captureInfo(stream);
  if (!capture) return tl::unexpected(capture.error());
  const uint64_t wanted = capture->isActive() ? capture->id : 0;
  Lanes* found = nullptr;
  for (const auto& lanes : lanes_) {
    const auto info = driver.captureInfo(lanes->lane.front().stream.get());
    if (!info) return tl::unexpected(info.error());
    if (info->status == CaptureStatus::None || (info->isActive() && info->id == wanted)) found = lanes.get();
    if (found != nullptr) break;
  }
  if (found != nullptr && found->lane.size() >= count) return found;
  const auto outside = driver::cuda::OutsideCaptures::enter(driver);
  if (!outside) return tl::unexpected(outside.error());
  if (found != nullptr) {
    if (Status status = addLanes(*found, count); !status.ok()) return tl::unexpected(std::move(status));
    return found;
  }
  auto made = std::make_unique<Lanes>();
  auto forked = OwnedEvent::of(driver, driver.createEvent());
  if (!forked) return tl::unexpected(std::move(forked).error());
  made->forked = std::move(*forked);
  if (Status status = addLanes(*made, count); !status.ok()) return tl::unexpected(std::move(status));
  const std::lock_guard lock(mutex_);
  lanes_.push_back(std::move(made));
  return lanes_.back().get();
}

Status DeviceWindows::addLanes(Lanes& lanes, size_t count) {
  Driver& driver = device_.gpu->driver();
  while (lanes.lane.size() < count) {
    Lane lane;
    auto stream = OwnedStream::of(driver, driver.createStream());
    if (!stream) return std::move(stream).error();
    lane.stream = std::move(*stream);
    auto done = OwnedEvent::of(driver, driver.createEvent());
    if (!done) return std::move(done).error();
    lane.done = std::move(*done);
    const std::lock_guard lock(mutex_);
    lanes.lane.push_back(std::move(lane));
  }
  return {};
}

bool DeviceWindows::isIdle() {
  const std::lock_guard lock(mutex_);
  Driver& driver = device_.gpu->driver();
  for (const auto& lanes : lanes_) {
    for (const Lane& lane : lanes->lane) {
      const auto info = driver.captureInfo(lane.stream.get());
      if (!info || info->status != CaptureStatus::None) continue;  // what it has is the graph's; to ask would break the capture
      const auto idle = driver.isIdle(lane.stream.get());
      if (idle && !*idle) return false;
    }
  }
  return true;
}

std::vector<OwnedStream> DeviceWindows::takeStreams() {
  const std::lock_guard lock(mutex_);
  std::vector<OwnedStream> all;
  for (const auto& lanes : lanes_)
    for (Lane& lane : lanes->lane) all.push_back(std::move(lane.stream));
  lanes_.clear();
  return all;
}

}  // namespace tutti::comm
