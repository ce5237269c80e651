// What the planner of devices weighs, for the two files that it is written in.
#pragma once

#include "exec/cuda/lone.h"
#include "plan/device_planner.h"

namespace tutti::plan {

/// An algorithm on a kernel.
struct DevicePlanner::Option {
  const exec::record::Algorithm* algorithm = nullptr;
  exec::cuda::KernelId kernel = exec::cuda::KernelId::Simple;
  int32_t lanes = 1;         ///< that a rank runs
  int32_t mostChannels = 0;  ///< that fit

  bool isSame(const Option& other) const { return algorithm == other.algorithm && kernel == other.kernel; }
};

struct DevicePlanner::Draft {
  Option option;
  algo::Geometry geometry;
  uint64_t sliceBytes = 0;
  tune::Cost cost;
  double estimatedUs = 0;
  std::string tuner;
};

/// What keeps an option from being one; the later ones are the nearer misses.
enum class DevicePlanner::Obstacle : uint8_t { Protocol, Kernel, Window, Slots, Program, Blocks, None };

struct DevicePlanner::Hindrance {
  Obstacle obstacle = Obstacle::Protocol;
  Option option;
};

/// As NCCL_PROTO calls what the kernel does.
inline std::string_view protocolName(exec::cuda::KernelId kernel) { return name(exec::cuda::kernelInfo(kernel).protocol); }

/// In algo/list.h.
inline uint8_t placeOf(const exec::record::Algorithm& algorithm) {
  return static_cast<uint8_t>(&algorithm - exec::record::algorithms().data());
}

inline bool carriesOut(exec::cuda::KernelId kernel, const exec::record::Algorithm& algorithm) {
  const exec::cuda::KernelInfo& info = exec::cuda::kernelInfo(kernel);
  if (kernel == exec::cuda::KernelId::LineWindow && !exec::cuda::mayBeLone(placeOf(algorithm))) return false;
  return algorithm.traits.needs == algo::Needs::PeerMemory ? info.runsWindows : info.runsPipes;
}

}  // namespace tutti::plan
