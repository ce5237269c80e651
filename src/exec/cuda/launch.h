// The launch interface: which kernels there are, loading them, launching one. Plain C++, for files that know nothing of CUDA's headers.
//
// Any thread; loadKernels() and launch() act on the device that is current on the calling thread.
// 1. loadKernels() is called for a device when a communicator connects. After it no launch loads code or changes an attribute, so a launch
//    never waits for a peer's kernel that waits for this one.
// 2. Works of one launch share a protocol, and those that combine share a loop type (loops.h): a kernel is compiled for each. A group whose
//    calls have several is launched several times, in the same order on all ranks, on one stream.
// 3. work.h says how a plan becomes works; packProgram() says whether a program can run here.
// 4. A lone call for the Window kernel may run on a kernel that carries out its rounds (lone.h): the same windows, epochs and bits.
//    So may messages for the Cells and Lines kernels that are few and alone in their launch (lone_message.h): the same pipes; the peer may
//    do otherwise. Calls for LineWindow are always alone in their launch and run on such a kernel; launchKernel() refuses others.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "algo/traits.h"
#include "core/status.h"
#include "exec/cuda/copies.h"
#include "exec/cuda/grid.h"
#include "exec/cuda/mapped.h"
#include "exec/cuda/moved.h"
#include "exec/cuda/near_pages.h"
#include "exec/cuda/probe.h"
#include "exec/cuda/program.h"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda {

enum class KernelId : uint8_t {
  Window,      ///< flag-in-data windows: the smallest latency
  Cells,       ///< pipes of cells ("LL")
  Lines,       ///< pipes of lines ("LL128"): only where the machine keeps them in order
  Simple,      ///< pipes and windows of plain data
  Bulk,        ///< the same, streamed through shared memory by the bulk copy engine (stream_lane.cuh); from sm_90 on
  LineWindow,  ///< windows of lines: of the algorithms that mayBeLone() (lone.h); only where the machine keeps lines in order
};
inline constexpr int kNumKernels = 6;

struct KernelInfo {
  const char* name;
  Protocol protocol;
  bool runsPipes;       ///< algorithms that need pipes and hand-overs
  bool runsWindows;     ///< algorithms that need windows
  int32_t minimumArch;  ///< 80: sm_80
};
inline constexpr KernelInfo kKernels[kNumKernels] = {
    {"window", Protocol::Cells, false, true, 80}, {"cells", Protocol::Cells, true, false, 80},
    {"lines", Protocol::Lines, true, false, 80},  {"simple", Protocol::Simple, true, true, 80},
    {"bulk", Protocol::Simple, true, true, 90},   {"linewindow", Protocol::Lines, false, true, 80},
};
constexpr const KernelInfo& kernelInfo(KernelId kernel) { return kKernels[static_cast<int>(kernel)]; }
/// Whether flags travel inside the data of its windows, so that most signals of a program are of no use.
constexpr bool hasFlaggedWindows(KernelId kernel) {
  return kernelInfo(kernel).runsWindows && kernelInfo(kernel).protocol != Protocol::Simple;
}

/// What a kernel takes of a multiprocessor on the current device: of its types, the one that takes most.
struct KernelUse {
  int32_t registers = 0;
  int32_t localBytes = 0;  ///< of a thread: stack and spills
  int32_t sharedBytes = 0;
  int32_t blocksPerMultiprocessor = 0;
  /// By kClusterSizes: how many clusters are on the device at once; 0: none, as before sm_90. Of kernels that run pipes, and of mapped
  /// ones.
  std::array<int32_t, kClusterSizes.size()> clusters{};
};

struct KernelUses {
  KernelUse of[kNumKernels];
  KernelUse lone;  ///< of the kernels of lone calls over windows of cells
  KernelUse mapped;  ///< of those that combine what lies in windows, or move it together
};

/// What launches kernels it was given when they were loaded (launch_table.h); in the functions that follow null: the runtime launches.
class LaunchTable;

/// Loads every kernel on the current device. Kernels that the device is too old for are left out.
Status loadKernels(KernelUses* uses = nullptr, LaunchTable* table = nullptr);

/// A rank's recorded lanes, track after track, as `kernel` carries them out; the error says what does not fit.
Result<PackedProgram> packProgram(KernelId kernel, algo::Needs needs, std::span<const std::vector<algo::Step>> lanes, Rank self,
                                  int32_t tracks = 1);

struct LaunchOptions {
  int32_t blocks = 1;       ///< the highest of firstBlock + blocks() of all works; all must fit onto the device at once
  bool mayOverlap = false;  ///< programmatic dependent launch: a lone call of few blocks may be there before the grid ahead has ended
  bool mayBeLone = true;    ///< on a kernel of lone calls, where the call is one; the same on all ranks
  Grid grid;                ///< of kernels that run programs: at least `blocks`, all of them on the device at once; none: as it is
};

/// `stream` is a cudaStream_t. Asynchronous; nothing of `launch` is read after the return but what it points to.
Status launchKernel(KernelId kernel, const Launch& launch, const LaunchOptions& options, void* stream, const LaunchTable* table = nullptr);

/// One side of some pairs: at most kMostProbes. Asynchronous; nothing of `launch` is read after the return but what it points to.
Status launchProbe(const ProbeLaunch& launch, void* stream, const LaunchTable* table = nullptr);

/// Finds where the shares of a window are to begin. Asynchronous; nothing of `launch` is read after the return but what it points to.
Status launchNearPages(const NearLaunch& launch, void* stream, const LaunchTable* table = nullptr);

/// A stage of a call that copy engines carry out: one block. Asynchronous; nothing of `launch` is read after the return but what it points
/// to.
Status launchCopies(const CopyLaunch& launch, CopyStage stage, void* stream, const LaunchTable* table = nullptr);

/// A whole call that only moves, by one block or several. Asynchronous; nothing of `launch` is read after the return but what it points
/// to.
Status launchMoved(const MovedLaunch& launch, const Grid& grid, void* stream, const LaunchTable* table = nullptr);

/// A whole call whose blocks combine what lies in windows; `grid`: of any size. Asynchronous; nothing of `launch` is read after the return
/// but what it points to.
Status launchMapped(const MappedLaunch& launch, const Grid& grid, void* stream, const LaunchTable* table = nullptr);

/// What runs works on GPUs, as a parameter: the kernels of this build, or what a test puts in their place.
class Executor {
 public:
  virtual ~Executor() = default;
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual Status load(KernelUses& uses) = 0;
  virtual Status launch(KernelId kernel, const Launch& launch, const LaunchOptions& options, void* stream) = 0;
  virtual Status probe(const ProbeLaunch& launch, void* stream) = 0;
  virtual Status nearPages(const NearLaunch& launch, void* stream) = 0;
  virtual Status copies(const CopyLaunch& launch, CopyStage stage, void* stream) = 0;
  virtual Status moved(const MovedLaunch& launch, const Grid& grid, void* stream) = 0;
  virtual Status mapped(const MappedLaunch& launch, const Grid& grid, void* stream) = 0;
};

/// Null in a build without kernels (TUTTI_CUDA=OFF).
std::unique_ptr<Executor> makeExecutor();
/// The CUDA runtime that is built in, as 13000 for 13.0; 0: none. A driver of an older major version runs no kernel of it.
int32_t builtRuntime();

}  // namespace tutti::exec::cuda
