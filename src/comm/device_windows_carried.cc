// All-reduces that engines carry (comm/device_windows.h, 4). On the caller's stream, and beside it on another one:
//
//   Begin
//   bring part 1 of every share to its owner
//   Meet
//   bring part 2                                    combine part 1
//   Meet
//   hand out part 1 of the own share                combine part 2
//   Meet
//   hand out part 2
//   Meet
//
// 1. All shares are equally long, whole lines. What is left behind them the last rank combines straight from all inputs into all outputs.
// 2. A rank brings its contributions to where its own share lies in the owner's output: it alone writes there, and with results only when
//    the owner has combined what it had brought.
#include <algorithm>
#include <utility>

#include "comm/device_windows.h"

namespace tutti::comm {

using driver::cuda::DevicePtr;
using driver::cuda::Driver;
using driver::cuda::Stream;
using exec::cuda::CopyStage;
using exec::cuda::MappedPart;

namespace {

std::byte* bytesAt(DevicePtr address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace

class DeviceWindows::Carrier {
 public:
  Carrier(DeviceWindows& windows, const exec::cuda::CopyLaunch& launch, const WindowCall& made, Lanes& lanes, Stream stream)
      : windows_(windows),
        driver_(windows.device_.gpu->driver()),
        launch_(launch),
        made_(made),
        lanes_(lanes),
        stream_(stream),
        ranks_(static_cast<uint64_t>(windows.ranks_)),
        rank_(static_cast<uint64_t>(windows.rank_.value)),
        share_(windows.carriedShare(made.call)),
        in_(addressOf(made.in)),
        out_(addressOf(made.out)) {
    combine_.call = launch;
    combine_.sources = windows.ranks_;
    combine_.type = made.call.type;
    combine_.op = made.op;
    combine_.scaling = made.scaling;
    combine_.isAlone = true;
  }

  Status run() {
    TUTTI_TRY(meet(CopyStage::Begin));
    TUTTI_TRY(combineRest());
    for (int32_t part = 0; part < kCarriedParts; ++part) {
      if (part > 0) TUTTI_TRY(combineBeside(part - 1));
      TUTTI_TRY(copyToAll(in_, share_, partOf(part)));
      if (part > 0) TUTTI_TRY(awaitBeside());
      TUTTI_TRY(meet(CopyStage::Meet));
    }
    TUTTI_TRY(combineBeside(kCarriedParts - 1));
    for (int32_t part = 0; part < kCarriedParts; ++part) {
      if (part == kCarriedParts - 1) {
        TUTTI_TRY(awaitBeside());
        TUTTI_TRY(meet(CopyStage::Meet));
      }
      TUTTI_TRY(copyToAll(out_ + rank_ * share_, 0, partOf(part)));
    }
    return meet(CopyStage::Meet);
  }

 private:
  MappedPart partOf(int32_t part) const { return exec::cuda::mappedPart(share_, part, kCarriedParts); }
  Status meet(CopyStage stage) { return windows_.executor_.copies(launch_, stage, stream_); }

  /// To each peer's output, where the own share lies: what begins at `from` and so much further for each rank.
  Status copyToAll(DevicePtr from, uint64_t stride, const MappedPart& part) {
    if (part.bytes == 0) return {};
    const uint64_t to = out_ - made_.window->base + rank_ * share_ + part.begin;
    for (uint64_t step = 1; step < ranks_; ++step) {
      const uint64_t peer = (rank_ + step) % ranks_;
      TUTTI_TRY(driver_.copy(made_.window->at[peer] + to, from + peer * stride + part.begin, Bytes(part.bytes), stream_));
    }
    return {};
  }

  Status combine(uint64_t bytes, int32_t blocks, Stream stream) {
    combine_.bytes = bytes;
    const plan::DeviceSettings& settings = windows_.settings_;
    const int32_t most = std::min(settings.maxChannels, settings.mappedBlocks);
    return windows_.executor_.mapped(combine_, exec::cuda::makeGrid(blocks, most, settings.mappedClusters), stream);
  }
  /// What others have brought, and the own contribution.
  Status combineBeside(int32_t number) {
    const MappedPart part = partOf(number);
    const Lane& lane = lanes_.lane.front();
    for (uint64_t r = 0; r < ranks_; ++r)
      combine_.source[r] = bytesAt((r == rank_ ? in_ : out_) + r * share_ + part.begin);
    combine_.target[0] = bytesAt(out_ + rank_ * share_ + part.begin);
    combine_.targets = 1;
    TUTTI_TRY(driver_.record(lanes_.forked.get(), stream_));
    TUTTI_TRY(driver_.wait(lane.stream.get(), lanes_.forked.get()));
    TUTTI_TRY(combine(part.bytes, windows_.carriedBlocks(made_.call), lane.stream.get()));
    return driver_.record(lane.done.get(), lane.stream.get());
  }
  Status awaitBeside() { return driver_.wait(stream_, lanes_.lane.front().done.get()); }

  Status combineRest() {
    const uint64_t begin = share_ * ranks_;
    const uint64_t bytes = made_.call.count * sizeOf(made_.call.type) - begin;
    if (bytes == 0 || rank_ != ranks_ - 1) return {};
    for (uint64_t r = 0; r < ranks_; ++r) {
      combine_.source[r] = bytesAt(made_.inWindow->at[r] + (in_ - made_.inWindow->base) + begin);
      combine_.target[r] = bytesAt(made_.window->at[r] + (out_ - made_.window->base) + begin);
    }
    combine_.targets = windows_.ranks_;
    return combine(bytes, 1, stream_);
  }

  DeviceWindows& windows_;
  Driver& driver_;
  const exec::cuda::CopyLaunch& launch_;
  const WindowCall& made_;
  Lanes& lanes_;
  const Stream stream_;
  const uint64_t ranks_;
  const uint64_t rank_;
  const uint64_t share_;
  const DevicePtr in_;
  const DevicePtr out_;
  exec::cuda::MappedLaunch combine_;
};

uint64_t DeviceWindows::carriedShare(const Call& call) const {
  const uint64_t lines = call.count * sizeOf(call.type) / static_cast<uint64_t>(ranks_) / exec::cuda::kLineBytes;
  return lines * exec::cuda::kLineBytes;
}

Status DeviceWindows::carryAll(const exec::cuda::CopyLaunch& launch, const WindowCall& made, Stream stream) {
  const auto lanes = lanesFor(stream, 1);
  if (!lanes) return lanes.error();
  return Carrier(*this, launch, made, **lanes, stream).run();
}

}  // namespace tutti::comm
