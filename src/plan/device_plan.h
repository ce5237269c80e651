// What a call needs on a device, once it is planned: the kernel, the work, its program, pipes and windows; and what a planner is told.
//
// Owner: the communicator, which puts the program into device memory and opens what the plan names. Plain values. Nothing here touches a
// device.
// 1. DeviceSettings are the same on all ranks of a communicator; then so are algorithm, kernel, geometry, lanes and the need for a window.
// 2. A plan depends on layout, rank, settings and shape alone, never on buffers or streams.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algo/sendrecv.h"
#include "exec/cuda/launch.h"
#include "tune/choose.h"
#include "tune/device_model.h"
#include "tune/tuner.h"

namespace tutti::plan {

using exec::cuda::kNumProtocols;
using exec::cuda::kNumWindows;
using exec::cuda::PipeNeed;

struct DevicePlan {
  std::string_view algorithm;
  exec::cuda::KernelId kernel = exec::cuda::KernelId::Simple;
  /// Complete but for program.words, in, out, firstBlock, firstChannel and the factor (Scaling::factor, factorSource).
  exec::cuda::Work work;
  exec::cuda::PackedProgram program;  ///< to be put into device memory
  std::vector<PipeNeed> pipes;        ///< distinct, in order
  bool needsWindow = false;           ///< window()
  double estimatedUs = 0;             ///< a launch of its own included

  int32_t blocks() const { return work.blocks(); }
  tune::Way way() const { return {estimatedUs, blocks()}; }
  /// Which window, if any: that of the kernel's protocol.
  int window() const { return exec::cuda::windowOf(exec::cuda::kernelInfo(kernel).protocol); }
};

/// Why a way is not taken that another one is preferred to.
std::string dearer(const tune::Way& way, const tune::Way& best);

/// When calls may go a way that buffers in symmetric windows open.
enum class When : uint8_t { Never, WhereFaster, WherePossible };

struct DeviceSettings {
  /// Blocks of each kernel that are on the device at once, of the rank that has the fewest; 0: the kernel cannot run. Window: also of the
  /// kernels of lone calls.
  std::array<int32_t, exec::cuda::kNumKernels> mostBlocks{};
  /// In which clusters a launch of each kernel may be, on this rank's device: no plan depends on it, though what is below does on the wish.
  std::array<exec::cuda::ClusterLimits, exec::cuda::kNumKernels> clusters{};
  /// What the user allows of BLOCKS of a call (minCTAs and maxCTAs of a communicator, NCCL_MIN_CTAS …): at least `minChannels` where
  /// there are elements for them, never more than `maxChannels`. A call that nothing carries out with so few takes the lanes of one
  /// channel, if they fit onto the device at once.
  int32_t minChannels = 1;
  int32_t maxChannels = 32;
  /// Channels that the pipes of messages have.
  int32_t messageChannels = 8;
  /// The most that pipes of plain data have, and those of messages among them: fewer channels have more under way in as much memory.
  int32_t plainChannels = 64;
  int32_t plainMessageChannels = 64;
  int32_t plainUserChannels = 64;  ///< those of the caller's own sends and receives
  int32_t plainStarChannels = 0;   ///< those of gather and scatter; 0: they share all-to-all's
  /// Of a call on them, with all its lanes: of one in which every rank sends and receives all the time (all-gather, reduce-scatter,
  /// all-to-all), and of the others.
  int32_t plainEvenBlocks = 64;
  int32_t plainBlocks = 64;
  int32_t plainGatherBlocks = 64;  ///< of gather, whose root takes from all
  int32_t messageBlocks = 64;  ///< of a launch of messages, but for what a single exchange takes
  std::array<int32_t, kNumProtocols> slots{8, 8, 8};                    ///< by Protocol; at least 2
  std::array<uint64_t, kNumProtocols> slotBytes{114688, 32768, 61440};  ///< of memory; Simple: a multiple of 28,672
  std::array<uint64_t, kNumWindows> shareBytes{16384, 131072, 32768};   ///< of a writer on a channel in a bank, by windowOf()
  std::array<int32_t, kNumWindows> windowChannels{32, 32, 32};
  bool hasWindows = false;     ///< all ranks are on one host, at most exec::cuda::kMaxLocalRanks; one alone needs none
  bool hasLines = false;       ///< lines of 128 bytes arrive in order between all ranks
  bool hasSimple = true;       ///< the kernel of plain loads and stores may be chosen
  bool hasBulk = true;         ///< so may that of the bulk copy engine
  /// Grids of few blocks are put on the device while the one before still runs (exec/cuda/work.h), as long as at most so many communicators
  /// use the device; 0: never.
  int32_t mostEarlyRanks = 0;
  When copyEngines = When::WhereFaster;  ///< that carry out what only moves
  bool movesLittle = true;               ///< one block does so instead where that is faster (exec/cuda/moved.h)
  When streamStages = When::WhereFaster;  ///< streams carry out the stages around their copies (transport/device/stages.h)
  When mapped = When::WhereFaster;       ///< blocks that combine what lies in windows of all ranks (exec/cuda/mapped.h)
  bool lendsCaptured = true;                   ///< both as well for buffers of captured calls, which ranks lend each other
  bool lendsPlain = true;                      ///< also where those are plain memory (cudaMalloc)
  exec::cuda::ClusterLimits mappedClusters{};  ///< on this rank's device; no plan depends on it
  int32_t mappedBlocks = 64;                   ///< of theirs that are on the device at once, beside those of other ranks on it
  bool deterministic = false;  ///< reductions in rank order only
  tune::Restrictions restrictions;
  tune::Filter protocols;  ///< NCCL_PROTO: LL is Window and Cells, LL128 is Lines and LineWindow, Simple is Simple and Bulk
  tune::DeviceMachine machine = tune::deviceMachine();
  std::shared_ptr<tune::Tuner> tuner;  ///< null: nobody is asked
  std::string constants = "hopper-nvlink";  ///< whose numbers those are

  /// How many channels the pipes of a port have: those of messages, the caller's, all-to-all's and a star's, fewer than those of rings and
  /// trees, and those of plain data fewer than those of cells and lines. Which port a call's pipes have: DevicePlanner::portOf().
  int32_t pipeChannels(exec::cuda::Protocol protocol, uint8_t port) const;
  /// The most blocks of a call.
  int32_t mostBlocksOf(exec::cuda::Protocol protocol, Collective collective) const;
};

}  // namespace tutti::plan
