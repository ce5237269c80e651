// What the ranks of a communicator on one host tell each other about their GPU memory: a block of host memory that all of them see, and of
// which the first page is registered with CUDA, so that kernels see it too.
//
// Lies in the hub's arena, zeroed when it is made. Each card is written by one rank before its `state` (release), and read by others after
// it (acquire); it does not change afterwards.
// 1. Everything makes sense after every single store: a process may die anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "exec/cuda/verdict.h"
#include "exec/cuda/window.h"
#include "transport/device/segment_server.h"

namespace tutti::transport::device {

using exec::cuda::kNumProtocols;
using exec::cuda::kNumWindows;
/// More than any algorithm uses (algo/).
inline constexpr int32_t kPorts = 8;

/// What all ranks have to have agreed on before they map each other's memory.
struct EndpointConfig {
  int32_t channels = 1;  ///< of the arrays; no port and no window has more
  int32_t pipeChannels[kNumProtocols][kPorts] = {};
  int32_t slots[kNumProtocols] = {};       ///< of a pipe
  uint64_t slotBytes[kNumProtocols] = {};  ///< of memory
  int32_t windowChannels[kNumWindows] = {};
  int32_t checks = 1;  ///< calls are compared
  uint64_t shareBytes[kNumWindows] = {};
  friend bool operator==(const EndpointConfig&, const EndpointConfig&) = default;
};

/// Where a bank lies.
struct BankPlace {
  SegmentName segment;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

enum class CardState : uint32_t { Empty, Written };

struct alignas(64) Card {
  std::atomic<CardState> state;
  BankPlace place;
};

/// What a rank says of itself.
struct alignas(64) RankCard {
  std::atomic<CardState> state;
  std::atomic<uint32_t> left;  ///< 1: its kernels have ended and it maps nothing of others any more (release; pairs with Parking's acquire)
  BankPlace control;           ///< board, counters and ends: Layout of endpoint.cc
  uint8_t gpu[16];             ///< of the device
  EndpointConfig config;
  Card window[kNumWindows];
};

/// The part that kernels see.
struct alignas(4096) KernelPage {
  uint32_t abort;  ///< exec/cuda/verdict.h: WaitControl; Hub::stopDevices sets it
  alignas(128) exec::cuda::Verdict verdict;
};

struct PipeCards {
  Card receiver;  ///< slots, and the counters of filled ones
  Card sender;    ///< counters of freed slots
};

class Page {
 public:
  Page() = default;
  Page(std::byte* memory, int32_t ranks) : memory_(memory), ranks_(ranks) {}
  static uint64_t bytesFor(int32_t ranks) {
    const auto n = static_cast<uint64_t>(ranks);
    return sizeof(KernelPage) + n * sizeof(RankCard) + n * n * kNumProtocols * kPorts * sizeof(PipeCards);
  }
  KernelPage& kernel() const { return *reinterpret_cast<KernelPage*>(memory_); }
  RankCard& rank(int32_t rank) const { return reinterpret_cast<RankCard*>(memory_ + sizeof(KernelPage))[rank]; }
  /// The pipes of a port from one rank to another.
  PipeCards& pipes(exec::cuda::Protocol protocol, int32_t port, int32_t from, int32_t to) const {
    const int32_t at = ((static_cast<int32_t>(protocol) * kPorts + port) * ranks_ + from) * ranks_ + to;
    return reinterpret_cast<PipeCards*>(memory_ + sizeof(KernelPage) + static_cast<size_t>(ranks_) * sizeof(RankCard))[at];
  }
  int32_t ranks() const { return ranks_; }

 private:
  std::byte* memory_ = nullptr;
  int32_t ranks_ = 0;
};

}  // namespace tutti::transport::device
