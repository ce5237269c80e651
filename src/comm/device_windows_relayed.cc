// Broadcasts that receivers pass on (comm/device_windows.h, 6): from the root to the next rank, and so on, in parts. On the caller's
// stream:
//
//   root             next            the one behind it
//   Begin            Begin           Begin
//   part 1
//   Meet             Meet            Meet
//   part 2           part 1
//   Meet             Meet            Meet
//   part 3           part 2          part 1
//   …                …               …
//
// A rank waits for the one before it alone, and the root for nobody behind Begin. Nobody sends or is sent more than the bytes of the call.
#include <algorithm>
#include <cmath>

#include "comm/device_windows.h"

namespace tutti::comm {

using driver::cuda::DevicePtr;
using driver::cuda::Driver;
using driver::cuda::Stream;
using exec::cuda::CopyStage;
using exec::cuda::MappedPart;

/// The fewest microseconds: shorter parts reach the last rank earlier, and there are more of them to begin.
int32_t DeviceWindows::relayedParts(const Call& call) const {
  constexpr double kMostParts = 32;
  static_assert(kMostParts + exec::cuda::kMaxLocalRanks - 2 < transport::device::kStageMeetings);
  const tune::DeviceMachine& machine = settings_.machine;
  const double best = std::sqrt((ranks_ - 2) * tune::relayedBytesUs(machine, outBytes(call)) / tune::relayedPartUs(machine));
  return static_cast<int32_t>(std::clamp(std::round(best), 1.0, kMostParts));
}

double DeviceWindows::relayedUs(const Call& call) const {
  return tune::relayedUs(settings_.machine, ranks_, outBytes(call), relayedParts(call));
}

bool DeviceWindows::isRelayed(const Call& call, const BufferTraits& traits) const {
  if (call.collective != Collective::Broadcast || ranks_ < 3) return false;
  return relayedUs(call) < directUs(call) && moverOf(call, traits) == Mover::Engines;
}

Status DeviceWindows::relay(exec::cuda::CopyLaunch launch, const WindowCall& made, Stream stream) {
  Driver& driver = device_.gpu->driver();
  const int32_t place = (rank_.value - made.call.root + ranks_) % ranks_;  // behind the root
  const int32_t next = (rank_.value + 1) % ranks_;
  const bool isLast = place == ranks_ - 1;
  const bool onStream = hasStreamStages(made.call, made.traits());
  const int32_t parts = relayedParts(made.call);
  const uint64_t bytes = outBytes(made.call);
  const DevicePtr from = addressOf(place == 0 ? made.in : made.out);
  const DevicePtr to = made.window->at[static_cast<size_t>(next)] + (addressOf(made.out) - made.window->base);
  launch.writers = place == 0 ? 0 : uint32_t{1} << ((rank_.value + ranks_ - 1) % ranks_);
  launch.written = isLast ? 0 : uint32_t{1} << next;

  TUTTI_TRY(stage(launch, CopyStage::Begin, 0, onStream, stream));
  Lanes* lanes = nullptr;
  if (place == 0 && made.in != made.out) {  // the own output, beside the rest
    const auto found = lanesFor(stream, 1);
    if (!found) return found.error();
    lanes = *found;
    const Stream beside = lanes->lane.front().stream.get();
    TUTTI_TRY(driver.record(lanes->forked.get(), stream));
    TUTTI_TRY(driver.wait(beside, lanes->forked.get()));
    TUTTI_TRY(driver.copyInRows(addressOf(made.out), from, Bytes(bytes), beside));
    TUTTI_TRY(driver.record(lanes->lane.front().done.get(), beside));
  }
  for (int32_t step = 0; step < parts + ranks_ - 2; ++step) {
    const int32_t number = step - place;
    if (!isLast && number >= 0 && number < parts) {
      const MappedPart part = exec::cuda::mappedPart(bytes, number, parts);
      if (part.bytes > 0) TUTTI_TRY(driver.copy(to + part.begin, from + part.begin, Bytes(part.bytes), stream));
    }
    TUTTI_TRY(stage(launch, CopyStage::Meet, step, onStream, stream));
  }
  return lanes == nullptr ? Status() : driver.wait(stream, lanes->lane.front().done.get());
}

}  // namespace tutti::comm
