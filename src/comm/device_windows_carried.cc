// All-reduces that engines carry (comm/device_windows.h, 4). On the caller's stream, and beside it on another one:
//
//   Begin
//   bring part 1 of every share to its owner
//   bring part 2                                    Meet, combine part 1
//   bring part 3                                    Meet, combine part 2
//   hand out part 1 of the own share, behind ...... Meet, combine part 3
//   hand out part 2, behind ....................... Meet
//   hand out part 3
//   End
//
// 1. All shares are equally long, whole lines. What is left behind them the last rank combines straight from all inputs into all outputs.
// 2. A rank brings its contributions to where its own share lies in the owner's output: it alone writes there, and with results only when
//    the owner has combined what it had brought. That is what the meeting behind a part's combination tells.
// 3. Meetings are not between copies, so engines have the next one to do while ranks meet. Parts beyond two leave blocks more time to
//    combine: what they combine first is not handed out until all has been brought.
#include <algorithm>
#include <limits>
#include <utility>

#include "comm/device_windows.h"

namespace tutti::comm {

using driver::cuda::DevicePtr;
using driver::cuda::Driver;
using driver::cuda::Stream;
using exec::cuda::CopyStage;
using exec::cuda::MappedPart;

namespace {

/// Blocks that combine, of two ranks and of more: with more, engines are done no sooner.
constexpr int32_t kMostPairBlocks = 12;
constexpr int32_t kMostCarriedBlocks = 8;

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
        shape_(windows.carriedShape(made.call)),
        beside_(lanes.lane.front().stream.get()),
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
    TUTTI_TRY(windows_.executor_.copies(launch_, CopyStage::Begin, stream_));
    for (int32_t part = 0; part < shape_.parts; ++part) {
      TUTTI_TRY(copyToAll(in_, share_, partOf(part)));
      TUTTI_TRY(driver_.record(lanes_.forked.get(), stream_));
      TUTTI_TRY(driver_.wait(beside_, lanes_.forked.get()));
      TUTTI_TRY(meet(part));
      TUTTI_TRY(combine(part));
      if (part == 0) TUTTI_TRY(combineRest());
    }
    TUTTI_TRY(meet(shape_.parts));
    for (int32_t part = 0; part < shape_.parts; ++part) {
      TUTTI_TRY(driver_.wait(stream_, combined(part)));
      TUTTI_TRY(copyToAll(out_ + rank_ * share_, 0, partOf(part)));
    }
    return windows_.executor_.copies(launch_, CopyStage::Meet, stream_);
  }

 private:
  MappedPart partOf(int32_t part) const { return exec::cuda::mappedPart(share_, part, shape_.parts); }
  /// That part `part` is, by all ranks.
  driver::cuda::Event combined(int32_t part) const { return lanes_.lane[static_cast<size_t>(part)].done.get(); }
  /// Behind it all ranks have brought part `number`, and combined the one before.
  Status meet(int32_t number) {
    TUTTI_TRY(windows_.executor_.copies(launch_, CopyStage::Meet, beside_));
    return number == 0 ? Status() : driver_.record(combined(number - 1), beside_);
  }

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

  Status combine(uint64_t bytes, int32_t blocks) {
    combine_.bytes = bytes;
    const plan::DeviceSettings& settings = windows_.settings_;
    const int32_t most = std::min(settings.maxChannels, settings.mappedBlocks);
    return windows_.executor_.mapped(combine_, exec::cuda::makeGrid(blocks, most, settings.mappedClusters), beside_);
  }
  /// What others have brought, and the own contribution.
  Status combine(int32_t number) {
    const MappedPart part = partOf(number);
    for (uint64_t r = 0; r < ranks_; ++r)
      combine_.source[r] = bytesAt((r == rank_ ? in_ : out_) + r * share_ + part.begin);
    combine_.target[0] = bytesAt(out_ + rank_ * share_ + part.begin);
    combine_.targets = 1;
    return combine(part.bytes, shape_.blocks);
  }

  Status combineRest() {
    const uint64_t begin = share_ * ranks_;
    const uint64_t bytes = made_.call.count * sizeOf(made_.call.type) - begin;
    if (bytes == 0 || rank_ != ranks_ - 1) return {};
    for (uint64_t r = 0; r < ranks_; ++r) {
      combine_.source[r] = bytesAt(made_.inWindow->at[r] + (in_ - made_.inWindow->base) + begin);
      combine_.target[r] = bytesAt(made_.window->at[r] + (out_ - made_.window->base) + begin);
    }
    combine_.targets = windows_.ranks_;
    return combine(bytes, 1);
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
  const CarriedShape shape_;
  const Stream beside_;
  const DevicePtr in_;
  const DevicePtr out_;
  exec::cuda::MappedLaunch combine_;
};

uint64_t DeviceWindows::carriedShare(const Call& call) const {
  const uint64_t lines = call.count * sizeOf(call.type) / static_cast<uint64_t>(ranks_) / exec::cuda::kLineBytes;
  return lines * exec::cuda::kLineBytes;
}

/// All ranks find the same, since they have to meet as often.
DeviceWindows::CarriedShape DeviceWindows::carriedShape(const Call& call) const {
  const uint64_t share = carriedShare(call);
  const int32_t wanted = std::max(settings_.minChannels, ranks_ == 2 ? kMostPairBlocks : kMostCarriedBlocks);
  const int32_t most = std::max(1, std::min({settings_.maxChannels, settings_.mappedBlocks, wanted}));
  double least = std::numeric_limits<double>::infinity();
  CarriedShape best{kLeastCarriedParts, 1, least};
  for (int32_t parts = kLeastCarriedParts; parts <= kMostCarriedParts; ++parts) {
    const auto useful = static_cast<int32_t>(std::min<uint64_t>(share / static_cast<uint64_t>(parts) / kMappedBytes + 1, INT32_MAX));
    for (int32_t blocks = std::min({most, useful, settings_.minChannels}); blocks <= std::min(most, useful); ++blocks) {
      const double us = tune::carriedUs(settings_.machine, ranks_, share, parts, blocks);
      if (const double weight = weigh({us, blocks}); weight < least) {
        least = weight;
        best = {parts, blocks, us};
      }
    }
  }
  return best;
}

Status DeviceWindows::carryAll(const exec::cuda::CopyLaunch& launch, const WindowCall& made, Stream stream) {
  const auto lanes = lanesFor(stream, kMostCarriedParts);
  if (!lanes) return lanes.error();
  return Carrier(*this, launch, made, **lanes, stream).run();
}

}  // namespace tutti::comm
