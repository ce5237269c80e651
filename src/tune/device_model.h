// How long a call takes on devices with an algorithm, a kernel and a number of channels: from the algorithm's recorded steps and one table
// of measured constants a kernel.
//
// Owner: the planner, by value; one thread. Estimates depend on the layout, the table and the call alone, so all ranks agree.
// 1. Changing the constants is editing DeviceMachine, or handing in another one; nothing else knows a number.
// 2. A profile is recorded once an algorithm.
#pragma once

#include <array>

#include "algo/geometry.h"
#include "connect/layout.h"
#include "exec/cuda/launch.h"
#include "exec/record/profile.h"
#include "tune/profiles.h"

namespace tutti::tune {

/// What a call costs on a kernel. GB/s are thousands of bytes a us.
struct KernelCost {
  double startUs = 0;       ///< from the launch until the first step, and from the last one until the end
  double messageUs = 0;     ///< windows: to store for a peer, or to see what one has stored
  double hopUs = 0;         ///< from the step of a rank until that of another which waits for it
  double roundUs = 0;       ///< windows: of every round of the second and later slices, which ranks go through in lockstep
  double jobUs = 0;         ///< pipes: of every piece of every step, in the block that carries it out
  double blockGBs = 0;      ///< memory traffic of one block, read and written
  double linkGBs = 0;       ///< payload from one device to others, and through its memory
  uint64_t leastBytes = 1;  ///< of a channel's part of a chunk: with fewer, another channel is of no use
};

/// The machine in numbers. Fitted to docs/decisions/0014 (2 H200, graphs) and measurements of the probe on 4.
struct DeviceMachine {
  /// A call that is launched by itself, on top of what a kernel costs.
  double launchUs = 5.0;
  /// A block more on the device, of any kernel: launching it, and what it takes from the caller's own kernels.
  double blockUs = 0.01;
  /// By KernelId.
  // clang-format off
  std::array<KernelCost, exec::cuda::kNumKernels> kernels = {{
      // start  message  hop  round  job  block  link  least
      {   3.0,     0.2,  1.3,   1.5, 0.0,    40,  180,  2048},  // window
      {   4.3,     0.0,  3.5,   0.0, 0.3,    30,  180,  4096},  // cells
      {   4.6,     0.0,  4.7,   0.0, 0.3,    45,  350,  8192},  // lines
      {   4.9,     0.3,  5.5,   5.0, 0.2,   210,  382, 16384},  // simple
      {   5.1,     0.3,  5.7,   5.0, 0.2,    90,  365, 32768},  // bulk
  }};
  /// A one-shot or two-shot of one slice on the Window kernel, which runs on a kernel of small calls (exec/cuda/small.h).
  KernelCost small = {0.9, 0.2, 1.2, 0.0, 0.0, 40, 180, 2048};
  // clang-format on
};

class DeviceModel {
 public:
  DeviceModel(const connect::Layout& layout, const DeviceMachine& machine)
      : ranks_(layout.ranks()), machine_(machine), profiles_(layout.ranks(), layout.ranks() / layout.nodes(), false) {}

  /// Microseconds of a call cut as `geometry` says. `pieceBytes`: what a slot of the kernel's pipes carries.
  double estimateUs(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, const algo::Geometry& geometry, DataType type,
                    uint64_t pieceBytes);

  const DeviceMachine& machine() const { return machine_; }

 private:
  const exec::record::Profile& profile(const exec::record::Algorithm& algorithm);

  int32_t ranks_;
  DeviceMachine machine_;
  Profiles profiles_;
  exec::record::Profile messages_;  ///< of a message; not of the communicator's size
};

}  // namespace tutti::tune
