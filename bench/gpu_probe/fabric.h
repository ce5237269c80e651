// The ranks of the probe, the memory they share and the pipes between them, all in one process.
//
// Owner of every device buffer; freed at the end of the process. Rank r sits on device r % devices, so that rank counts
// beyond the number of devices can be checked too. Used by one thread, except a member's stream: its rank's thread may use it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "algo/layout.h"
#include "exec/cuda/launch.h"

namespace tutti::probe {

struct PipeConfig {
  int32_t channels = 16;
  int32_t slots = 8;
  uint64_t slotBytes = 128 << 10;
};

/// How long a wait may take: on the device, and (longer) until the host sets the abort word.
struct Limits {
  uint64_t deviceNs = 2'000'000'000;
  uint64_t hostMs = 20'000;
};

class Fabric {
 public:
  static constexpr int32_t kMaxChannels = 128;
  static constexpr uint64_t kFifoBytes = uint64_t{512} << 20;  ///< per rank, shared by all channels
  static constexpr uint32_t kCellsPerSlice = 4096;
  static constexpr uint64_t kGuardBytes = 256;

  struct Member {
    int device = 0;
    cudaStream_t stream = nullptr;
    std::byte* in = nullptr;  ///< `bufferBytes` with a guard on either side; 256-byte aligned
    std::byte* out = nullptr;
    std::byte* fifo = nullptr;
    uint64_t* words = nullptr;  ///< filled, freed, recvDone, sendDone of every channel, each in a line of its own
    exec::cuda::LanePipes* pipes = nullptr;
    std::byte* window = nullptr;
    uint32_t* epochs = nullptr;
    int32_t* order = nullptr;
    exec::cuda::AbortRelay* relay = nullptr;
  };

  Fabric(int32_t ranks, int devices, uint64_t bufferBytes, Limits limits);

  int32_t ranks() const { return static_cast<int32_t>(members_.size()); }
  const Member& member(int32_t rank) const { return members_[rank]; }

  /// Gives every rank fresh pipes to its neighbours in the ring `order` (rank at position i). No kernel may be running.
  void connectRing(const std::vector<int32_t>& order, const PipeConfig& config);

  exec::cuda::Call call(int32_t rank) const;
  exec::cuda::PipeView pipes(int32_t rank) const;
  exec::cuda::WindowView window(int32_t rank) const;
  /// The same views with host pointers, for the reference.
  const std::vector<algo::LayoutView>& hostViews() const { return hostViews_; }

  /// Waits for `event` of each rank, or for a verdict; false: a wait gave up or the host's own limit passed (told on stderr).
  bool await(const std::vector<cudaEvent_t>& events);

 private:
  enum Word { kFilled, kFreed, kRecvDone, kSendDone, kWords };
  uint64_t* word(int32_t rank, int32_t channel, Word which) const;
  algo::LayoutView view(int32_t rank, const int32_t* order) const;

  Limits limits_;
  std::vector<Member> members_;
  std::vector<int32_t> order_;
  std::vector<algo::LayoutView> hostViews_;
  PipeConfig config_;
  exec::cuda::Verdict* verdict_ = nullptr;
  uint32_t* abort_ = nullptr;
};

}  // namespace tutti::probe
