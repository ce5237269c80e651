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
  uint64_t flowBytes = 0;   ///< pipes: so much of a piece is passed on at a time; 0: all of it
};

/// The machine in numbers: fitted to nccl-tests of every algorithm on every kernel with 8, 16, 32 and 64 blocks, 1 KiB to 64 MiB, one
/// thread a GPU, on 2 and on 4 H200 (docs/performance/gpu.md). `bulk` was not measured.
struct DeviceMachine {
  /// A call that is launched by itself, on top of what a kernel costs.
  double launchUs = 5.0;
  /// A block more on the device, of any kernel: launching it, and what it takes from the caller's own kernels.
  double blockUs = 0.01;
  /// By KernelId.
  // clang-format off
  std::array<KernelCost, exec::cuda::kNumKernels> kernels = {{
      // start  message  hop   round  job  block  link  least   flow
      {  0.05,    0.33,  0.70,   3.0, 0.0,    18,  450,  2048,     0},  // window
      {  1.50,    0.00,  1.35,   0.0, 1.6,    20,  450,  4096,  4096},  // cells
      {  2.20,    0.00,  1.40,   0.0, 2.1,    44,  450,  8192,  8192},  // lines
      {  1.90,    1.00,  2.80,   9.4, 0.0,    59,  450, 16384,     0},  // simple
      {  2.20,    1.00,  3.00,   9.4, 0.0,    45,  450, 32768,     0},  // bulk
      {  0.70,    0.40,  1.30,   1.0, 0.0,    55,  400,  2048,     0},  // linewindow
  }};
  /// What the Window kernel would do, on a kernel of lone calls (exec/cuda/lone.h).
  KernelCost lone = {0.02, 0.09, 0.7, 0.07, 0.0, 120, 190, 2048, 0};
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
