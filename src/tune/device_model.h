// How long a call takes on devices with an algorithm, a kernel and a number of channels: from the algorithm's recorded steps and one table
// of measured constants a kernel.
//
// Owner: the planner, by value; one thread. Estimates depend on the layout, the table and the call alone, so all ranks agree.
// 1. The constants are data (platform.h, platforms/hopper-nvlink.json), or another DeviceMachine that is handed in.
// 2. A profile is recorded once an algorithm.
// 3. Rings and trees are no faster than the links of the tracks that their channels run on (connect/layout.h): each track has its own.
#pragma once

#include <algorithm>

#include "algo/geometry.h"
#include "connect/layout.h"
#include "exec/cuda/launch.h"
#include "exec/record/profile.h"
#include "tune/cost.h"
#include "tune/platform.h"
#include "tune/profiles.h"

namespace tutti::tune {

/// A way that a call can go.
struct Way {
  double us = 0;       ///< how long it takes, with nothing beside it
  int32_t blocks = 1;  ///< that it keeps from everybody else meanwhile
};
/// What it counts as beside another one that goes straight to buffers, or comes from them: blocks have a price (docs/decisions/0072). How
/// many blocks an algorithm takes over pipes and scratch is a question of time alone, of which the model is not sure enough.
inline double weighed(const DeviceMachine& machine, const Way& way) { return way.us * (1 + machine.blockPrice * way.blocks); }

/// How the copies of a rank to its peers stand to each other.
enum class CopyOrder : uint8_t {
  ByOne,    ///< one rank alone has any, to one peer or to all at once
  AtOnce,   ///< all ranks have some, all of them at once
  InTurns,  ///< the same, one after the other
};

/// Of a call by copies in which the busiest rank sends `sentBytes` to others; `onStreams`: no kernels stand around them.
inline double copyUs(const DeviceMachine& machine, int32_t ranks, uint64_t sentBytes, CopyOrder order, bool onStreams = false) {
  const CopyCost& cost = machine.copies;
  const bool areMany = order == CopyOrder::AtOnce && ranks > 2;
  const double turnsUs = order == CopyOrder::InTurns ? (ranks - 2) * cost.turnUs : 0;
  return machine.launchUs + (onStreams ? cost.streamUs : cost.startUs) + ranks * cost.copyUs + turnsUs +
         static_cast<double>(sentBytes) / ((areMany ? cost.manyGBs : cost.linkGBs) * 1e3);
}

/// Of a broadcast of `bytes` that goes from rank to rank in `parts` parts: on one link,
inline double relayedBytesUs(const DeviceMachine& machine, uint64_t bytes) {
  return static_cast<double>(bytes) / (machine.copies.linkGBs * 1e3);
}
/// of each part beside its bytes,
inline double relayedPartUs(const DeviceMachine& machine) { return machine.copies.turnUs + machine.copies.startUs / 2; }
/// and all of it.
inline double relayedUs(const DeviceMachine& machine, int32_t ranks, uint64_t bytes, int32_t parts) {
  const double stepUs = relayedBytesUs(machine, bytes) / parts + relayedPartUs(machine);
  return machine.launchUs + machine.copies.startUs + (parts + ranks - 2) * stepUs;
}

/// Of an all-reduce that engines carry in `parts` parts: of `shareBytes` each rank, combined by `blocks` blocks while others are carried
/// (comm/device_windows_carried.cc).
double carriedUs(const DeviceMachine& machine, int32_t ranks, uint64_t shareBytes, int32_t parts, int32_t blocks);
/// What that is no less than, however many parts and blocks.
inline double carriedAtLeastUs(const DeviceMachine& machine, int32_t ranks, uint64_t shareBytes) {
  const CarriedCost& cost = machine.carried;
  const double wayUs = static_cast<double>(shareBytes) * (ranks - 1) / (cost.linkGBs * 1e3);
  return machine.launchUs + cost.startUs + 2 * wayUs;
}

/// Of a call by one block that stores `storedBytes`, here or there.
inline double movedUs(const DeviceMachine& machine, uint64_t storedBytes) {
  return machine.launchUs + machine.moved.startUs + static_cast<double>(storedBytes) / (machine.moved.blockGBs * 1e3);
}

/// Of a call by several blocks, `givers` of which store `sentBytes` to others.
inline double movedTogetherUs(const DeviceMachine& machine, uint64_t sentBytes, int32_t blocks, int32_t givers) {
  const MovedTogetherCost& cost = machine.movedTogether;
  return machine.launchUs + cost.startUs + blocks * machine.blockUs +
         static_cast<double>(sentBytes) / (std::min(cost.linkGBs, givers * cost.blockGBs) * 1e3);
}

/// Of an all-reduce or reduce-scatter whose `blocks` blocks combine what lies in windows: of `shareBytes` each rank, from all into all or
/// one.
inline double mappedUs(const DeviceMachine& machine, Collective collective, int32_t ranks, uint64_t shareBytes, int32_t blocks) {
  const MappedCost& cost = machine.mapped;
  const bool isAllReduce = collective == Collective::AllReduce;
  const double crossing = static_cast<double>(shareBytes) * (ranks - 1) * (isAllReduce ? 2 : 1);
  const double blockGBs = isAllReduce ? cost.blockGBs : cost.loadGBs;
  const double linkGBs = ranks > 2 ? cost.manyGBs : cost.linkGBs;
  return machine.launchUs + cost.startUs + blocks * machine.blockUs + crossing / (std::min(linkGBs, blocks * blockGBs) * 1e3);
}

/// Of the kernel that launchKernel() puts the call on if it is alone in its launch, or one of a few messages there; in a group of many
/// messages they cost more than that.
const KernelCost& costOf(const DeviceMachine& machine, const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel,
                         int32_t ranks);

class DeviceModel {
 public:
  /// `layout` outlives the model.
  DeviceModel(const connect::Layout& layout, const DeviceMachine& machine)
      : layout_(layout), ranks_(layout.ranks()), machine_(machine), profiles_(layout.ranks(), layout.ranks() / layout.nodes(), false) {}

  /// Of a call cut as `geometry` says. `pieceBytes`: what a slot of the kernel's pipes carries.
  Cost estimate(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, const algo::Geometry& geometry, DataType type,
                uint64_t pieceBytes);
  double estimateUs(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, const algo::Geometry& geometry, DataType type,
                    uint64_t pieceBytes) {
    return estimate(algorithm, kernel, geometry, type, pieceBytes).sum();
  }

  const DeviceMachine& machine() const { return machine_; }
  /// From now on; what has been recorded of algorithms stays.
  void use(const DeviceMachine& machine) { machine_ = machine; }

 private:
  const exec::record::Profile& profile(const exec::record::Algorithm& algorithm);
  double linkGBs(const exec::record::Algorithm& algorithm, const KernelCost& cost, int32_t channels) const;

  const connect::Layout& layout_;
  int32_t ranks_;
  DeviceMachine machine_;
  Profiles profiles_;
  exec::record::Profile messages_;  ///< of a message; not of the communicator's size
};

}  // namespace tutti::tune
