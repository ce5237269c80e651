// The ranks of the probe, the memory they share and the pipes and windows between them, all in one process.
//
// Owner of every device buffer; freed at the end of the process. Rank r sits on device r % devices, so that rank counts beyond the number
// of devices can be checked too. Used by one thread, but a member's stream by its rank's thread.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "connect/layout.h"
#include "exec/cuda/launch.h"
#include "exec/record/catalog.h"

namespace tutti::probe {

using exec::cuda::KernelId;
using exec::cuda::Protocol;
inline constexpr int kProtocols = 3;

struct FabricConfig {
  int32_t ranks = 2;
  int devices = 1;
  int32_t nodeRanks = 0;  ///< ranks of a node, for hierarchical algorithms; 0: all
  int32_t channels = 4;
  int32_t slots = 8;
  uint64_t slotBytes = 8 << 10;
  uint64_t shareBytes = 16 << 10;
  uint64_t bufferBytes = 1 << 20;
  uint64_t arenaBytes = 64 << 20;
  uint64_t startCount = 0;  ///< of every counter and epoch, to see them wrap
  uint64_t timeoutNs = 2'000'000'000;
  uint64_t hostMs = 20'000;
};

class Fabric {
 public:
  static constexpr uint64_t kGuardBytes = 256;

  struct Member {
    int device = 0;
    cudaStream_t stream = nullptr;
    std::byte* in = nullptr;  ///< `bufferBytes` with a guard on either side; 256-byte aligned
    std::byte* out = nullptr;
    std::byte* factor = nullptr;
    exec::cuda::Work* works = nullptr;  ///< room for works beyond the inline ones
    exec::cuda::PipeEnd* ends[kProtocols] = {};
    exec::cuda::HandOver* handOver = nullptr;
    std::byte* windows[exec::cuda::kNumWindows] = {};  ///< by windowOf()
    uint64_t* arrivals = nullptr;
    uint64_t* epochs[exec::cuda::kNumWindows] = {};
    exec::cuda::AbortRelay* relay = nullptr;
    exec::cuda::BoardEntry* board = nullptr;
    std::byte* arena = nullptr;
    uint64_t arenaUsed = 0;
  };

  explicit Fabric(const FabricConfig& config);

  int32_t ranks() const { return config_.ranks; }
  const FabricConfig& config() const { return config_; }
  const Member& member(int32_t rank) const { return members_[static_cast<size_t>(rank)]; }
  const connect::Layout& layout() const { return layout_; }

  /// Opens the pipes of the kernel's protocol that the algorithm's programs name, on all ranks and the first `channels` channels.
  void connect(const exec::record::Algorithm& algorithm, Rank root, KernelId kernel, int32_t channels);

  /// The program of a rank in its memory, made at the first call.
  exec::cuda::ProgramView program(int32_t rank, int algorithm, Rank root, KernelId kernel);

  /// What the kernels of a rank see.
  exec::cuda::CommView view(int32_t rank, KernelId kernel, uint64_t launch) const;

  /// Waits until all ranks' streams have ended, or a wait has given up; false (told on stderr): then nothing more can be run.
  bool await();
  void abort() { *reinterpret_cast<volatile uint32_t*>(abort_) = 1; }
  const exec::cuda::Verdict& verdict() const { return *verdict_; }

 private:
  using PipeKey = std::tuple<int, int32_t, int32_t, int32_t, int>;  // protocol, channel, from, to, port
  std::byte* take(int32_t rank, uint64_t bytes);
  void open(const PipeKey& key);
  void addEnd(int32_t rank, int protocol, int32_t channel, const exec::cuda::PipeEnd& end);

  FabricConfig config_;
  connect::Layout layout_;
  std::vector<Member> members_;
  std::map<PipeKey, bool> pipes_;
  std::map<std::tuple<int32_t, int, int32_t, bool>, exec::cuda::ProgramView> programs_;  // rank, algorithm, root, of windows of cells
  std::map<std::tuple<int32_t, int, int32_t>, int> used_;                                // rank, protocol, channel: ends
  exec::cuda::Verdict* verdict_ = nullptr;
  uint32_t* abort_ = nullptr;
  exec::cuda::WaitDesk* desk_ = nullptr;  // of all ranks
};

}  // namespace tutti::probe
