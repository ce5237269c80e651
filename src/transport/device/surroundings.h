// What an endpoint is made of, and how its control memory is laid out.
//
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <utility>

#include "exec/cuda/launch.h"
#include "memory/device_scratch.h"
#include "transport/device/connecting.h"
#include "transport/device/page.h"
#include "transport/device/pair_book.h"
#include "transport/device/parking.h"
#include "transport/device/segments.h"
#include "transport/device/stages.h"

namespace tutti::transport::device {

/// All of it outlives the endpoint.
struct Surroundings {
  const memory::Gpu* gpu = nullptr;
  memory::ScratchPool* pool = nullptr;
  memory::ScratchPool* hostPool = nullptr;  ///< for what a peer touches whose GPU cannot reach this one
  Segments* segments = nullptr;
  HostPages* pages = nullptr;
  Parking* parking = nullptr;
  PairBook* pairs = nullptr;
  Connecting* connecting = nullptr;
  StageWatch* watch = nullptr;
  exec::cuda::Executor* executor = nullptr;
  driver::cuda::Stream stream = nullptr;  ///< for copies and probes at set-up; of the gpu
  bool sharesGpus = false;                ///< several ranks may be on one GPU
  PairRules rules;
};

inline constexpr uint64_t kLine = 128;  ///< no two counters share a line
constexpr uint64_t roundUpToLine(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

/// As kernels are told of it.
template <class T>
T* asPointer(driver::cuda::DevicePtr address) {
  return reinterpret_cast<T*>(address);
}

/// Where things lie in a rank's control memory; the same on all ranks, because they have the same configuration. What peers touch comes
/// first: where not all of them reach the GPU, those bytes lie on the host instead.
struct ControlLayout {
  ControlLayout(const EndpointConfig& config, int32_t ranks) {
    const auto channels = static_cast<uint64_t>(config.channels);
    uint64_t at = 0;
    const auto take = [&at](uint64_t size) { return std::exchange(at, at + roundUpToLine(size)); };
    board = take(sizeof(exec::cuda::BoardEntry) * exec::cuda::kBoardPeers);
    arrivals = take(exec::cuda::arrivalBytes(config.channels));
    copyFlags = take(static_cast<uint64_t>(ranks) * sizeof(exec::cuda::CopyFlag));
    sharedBytes = at;
    probes = take(static_cast<uint64_t>(ranks) * sizeof(exec::cuda::ProbeSlot));
    copyState = take(sizeof(exec::cuda::CopyState));
    relay = take(sizeof(exec::cuda::AbortRelay));
    nearPages = take(exec::cuda::kMaxLocalRanks * sizeof(exec::cuda::SharePages));
    for (uint64_t& e : epochs) e = take(channels * sizeof(uint64_t));
    handOver = take(channels * exec::cuda::kHandOverLanes * sizeof(exec::cuda::HandOver));
    for (uint64_t& e : ends) e = take(channels * exec::cuda::kMostEnds * sizeof(exec::cuda::PipeEnd));
    bytes = at;
  }
  uint64_t board, arrivals, copyFlags, sharedBytes;
  uint64_t probes;  ///< [rank]: what that rank writes when it tries the path; always on the GPU
  uint64_t copyState, relay, nearPages, handOver, bytes;
  uint64_t epochs[kNumWindows];
  uint64_t ends[kNumProtocols];
};

}  // namespace tutti::transport::device
