#include "comm/device_copies.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/format.h"
#include "exec/host/signature.h"

namespace tutti::comm {

using driver::cuda::CaptureStatus;
using driver::cuda::DevicePtr;
using driver::cuda::OwnedEvent;
using driver::cuda::OwnedStream;
using driver::cuda::Stream;
using plan::CopyEngines;
using transport::device::UserWindow;

namespace {

constexpr std::array kCopied{Collective::Broadcast, Collective::AllGather, Collective::AllToAll};
/// Above the numbers of all collectives and of what takes a number among them; four bits of a signature.
constexpr uint64_t kFirstMark = 12;
constexpr int kMarkShift = 60;
static_assert(kFirstMark > static_cast<uint64_t>(exec::host::kShrinkCall) &&
              kFirstMark + kCopied.size() <= 15);  // 15 are launches of several calls (device_verdict.cc)

bool isCopied(Collective collective) { return std::find(kCopied.begin(), kCopied.end(), collective) != kCopied.end(); }

DevicePtr addressOf(const void* pointer) { return reinterpret_cast<DevicePtr>(pointer); }

/// Bytes that a rank gives to one other.
uint64_t chunkBytes(const Call& call) { return call.count * sizeOf(call.type); }

/// 32 bits of a window and an offset: no two neighbouring places have the same.
uint32_t placeOf(const UserWindow& window, uint64_t offset) {
  uint64_t x = (window.number + 1) * 0x9e3779b97f4a7c15U ^ offset;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9U;
  return static_cast<uint32_t>(x >> 32);
}

}  // namespace

uint64_t markCopies(uint64_t signature) {
  const auto at = std::find(kCopied.begin(), kCopied.end(), static_cast<Collective>(signature >> kMarkShift)) - kCopied.begin();
  return (signature & ((uint64_t{1} << kMarkShift) - 1)) | (kFirstMark + static_cast<uint64_t>(at)) << kMarkShift;
}

bool hasCopyMark(uint64_t signature) { return signature >> kMarkShift >= kFirstMark; }

uint64_t withoutCopyMark(uint64_t signature) {
  const uint64_t at = (signature >> kMarkShift) - kFirstMark;
  if (!hasCopyMark(signature) || at >= kCopied.size()) return signature;
  return (signature & ((uint64_t{1} << kMarkShift) - 1)) | static_cast<uint64_t>(kCopied[at]) << kMarkShift;
}

std::string DeviceCopies::obstacle(Collective collective) const {
  if (!isCopied(collective)) return "copy engines carry out all_gather, all_to_all and broadcast";
  if (ranks_ < 2) return "there is nobody to copy to";
  if (settings_.copyEngines == CopyEngines::Never) return "TUTTI_COPY_ENGINES=0 forbids it";
  if (endpoint_.usesHostMemory()) return "some GPUs do not reach each other's memory";
  if (ranks_ > exec::cuda::kMaxLocalRanks) return format("at most {} ranks map each other's windows", exec::cuda::kMaxLocalRanks);
  if (settings_.copyEngines == CopyEngines::WherePossible) return {};
  for (const tune::Filter* filter : {&settings_.restrictions.nccl, &settings_.restrictions.tutti, &settings_.protocols})
    if (filter->restricts(collective)) return format("{} names kernels' ways", filter->source());
  if (settings_.tuner != nullptr) return "a tuner is asked, and knows kernels' ways alone";
  return {};
}

double DeviceCopies::estimateUs(const Call& call) const {
  return tune::copyUs(settings_.machine, ranks_, static_cast<uint64_t>(ranks_ - 1) * chunkBytes(call));
}

uint64_t DeviceCopies::outBytes(const Call& call) const {
  return call.collective == Collective::Broadcast ? chunkBytes(call) : chunkBytes(call) * static_cast<uint64_t>(ranks_);
}

Status DeviceCopies::checkBuffer(const UserWindow& window, DevicePtr address) const {
  const auto buffer = device_.gpu->driver().bufferOf(address);
  if (!buffer) return buffer.error();
  if (*buffer == window.buffer) return {};
  return error(Code::InvalidUsage,
               "the memory of window {}, {} bytes at {:#x}, was freed while it was registered: end a window (ncclCommWindowDeregister) "
               "before its memory is freed",
               window.number, window.bytes.value, window.base);
}

Status DeviceCopies::choose(CopyCall& copy, double kernelUs) const {
  const Call& call = copy.call;
  if (!isCopied(call.collective) || call.count == 0) return {};
  auto window = endpoint_.windows().find(addressOf(copy.out), outBytes(call));
  if (window == nullptr || !obstacle(call.collective).empty()) return {};
  if (settings_.copyEngines == CopyEngines::WhereFaster && estimateUs(call) >= kernelUs) return {};
  if (call.collective == Collective::AllToAll) {
    const DevicePtr in = addressOf(copy.in);
    const DevicePtr out = addressOf(copy.out);
    const auto from = endpoint_.windows().find(in, outBytes(call));
    if (from == nullptr || (in < out + outBytes(call) && out < in + outBytes(call))) return {};
    TUTTI_TRY(checkBuffer(*from, in));
  }
  TUTTI_TRY(checkBuffer(*window, addressOf(copy.out)));
  copy.window = std::move(window);
  return {};
}

/// The own part comes last: nobody else waits for it.
std::vector<DeviceCopies::Piece> DeviceCopies::pieces(const CopyCall& copy) const {
  const Call& call = copy.call;
  const uint64_t bytes = chunkBytes(call);
  const uint64_t offset = addressOf(copy.out) - copy.window->base;
  std::vector<Piece> all;
  if (call.collective == Collective::Broadcast && call.root != rank_.value) return all;
  for (int32_t step = 1; step <= ranks_; ++step) {
    const int32_t peer = (rank_.value + step) % ranks_;
    const uint64_t mine = static_cast<uint64_t>(rank_.value) * bytes;
    Piece piece{copy.window->at[static_cast<size_t>(peer)] + offset, addressOf(copy.in), bytes};
    if (call.collective != Collective::Broadcast) piece.to += mine;
    if (call.collective == Collective::AllToAll) piece.from += static_cast<uint64_t>(peer) * bytes;
    if (piece.to != piece.from) all.push_back(piece);
  }
  return all;
}

Status DeviceCopies::launch(const CopyCall& copy, Stream stream) {
  exec::cuda::CopyLaunch launch = endpoint_.copyLaunch();
  launch.wait.signature = markCopies(exec::host::packSignature(copy.call));
  launch.place = placeOf(*copy.window, addressOf(copy.out) - copy.window->base);
  std::fill(std::begin(launch.placeOf), std::end(launch.placeOf), launch.place);
  const uint32_t others = ((uint32_t{1} << ranks_) - 1) & ~(uint32_t{1} << rank_.value);
  const bool isBroadcast = copy.call.collective == Collective::Broadcast;
  const bool isRoot = isBroadcast && copy.call.root == rank_.value;
  launch.writers = !isBroadcast ? others : isRoot ? 0 : uint32_t{1} << copy.call.root;
  launch.written = !isBroadcast || isRoot ? others : 0;
  TUTTI_TRY(executor_.copies(launch, stream));
  TUTTI_TRY(copyAll(pieces(copy), stream));
  launch.stage = exec::cuda::CopyStage::End;
  return executor_.copies(launch, stream);
}

/// The first on the caller's stream, the others beside it.
Status DeviceCopies::copyAll(std::span<const Piece> pieces, Stream stream) {
  if (pieces.empty()) return {};
  driver::cuda::Driver& driver = device_.gpu->driver();
  const auto others = pieces.subspan(1);
  Lanes* lanes = nullptr;
  if (!others.empty()) {
    const auto found = lanesFor(stream, others.size());
    if (!found) return found.error();
    lanes = *found;
    TUTTI_TRY(driver.record(lanes->forked.get(), stream));
  }
  TUTTI_TRY(driver.copy(pieces[0].to, pieces[0].from, Bytes(pieces[0].bytes), stream));
  for (size_t i = 0; i < others.size(); ++i) {
    const Lane& lane = lanes->lane[i];
    TUTTI_TRY(driver.wait(lane.stream.get(), lanes->forked.get()));
    TUTTI_TRY(driver.copy(others[i].to, others[i].from, Bytes(others[i].bytes), lane.stream.get()));
    TUTTI_TRY(driver.record(lane.done.get(), lane.stream.get()));
  }
  for (size_t i = 0; i < others.size(); ++i) TUTTI_TRY(driver.wait(stream, lanes->lane[i].done.get()));
  return {};
}

/// A set that no other capture has: one whose first stream is in none, or in that of `stream`.
Result<DeviceCopies::Lanes*> DeviceCopies::lanesFor(Stream stream, size_t count) {
  driver::cuda::Driver& driver = device_.gpu->driver();
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

Status DeviceCopies::addLanes(Lanes& lanes, size_t count) {
  driver::cuda::Driver& driver = device_.gpu->driver();
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

bool DeviceCopies::isIdle() {
  const std::lock_guard lock(mutex_);
  driver::cuda::Driver& driver = device_.gpu->driver();
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

std::vector<OwnedStream> DeviceCopies::takeStreams() {
  const std::lock_guard lock(mutex_);
  std::vector<OwnedStream> all;
  for (const auto& lanes : lanes_)
    for (Lane& lane : lanes->lane) all.push_back(std::move(lane.stream));
  lanes_.clear();
  return all;
}

}  // namespace tutti::comm
