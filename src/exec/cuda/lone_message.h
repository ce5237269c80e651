// What a launch that holds a few messages and nothing else is launched with. Plain values, the same on host and device; made by
// launchKernel() alone, from a Launch.
#pragma once

#include <type_traits>

#include "algo/list.h"
#include "exec/cuda/lone.h"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda {

struct LoneMessage {
  algo::Geometry geometry;
  const std::byte* in = nullptr;  ///< of what is sent, or copied where the peer is this rank
  std::byte* out = nullptr;       ///< for what is received, or copied
  int32_t peer = 0;
  uint32_t elementBytes = 1;
  uint16_t firstBlock = 0;
  uint16_t firstChannel = 0;
  bool sends = false;
};

inline constexpr int kMostLoneMessages = 8;

struct LoneMessages {
  CommView comm;
  int32_t count = 0;
  LoneMessage message[kMostLoneMessages];
};
static_assert(std::is_trivially_copyable_v<LoneMessages>);

constexpr bool isMessage(const Work& work) { return work.algorithm == placeAmong<algo::Message>(algo::AllAlgorithms{}); }

/// Whether the launch is one for the kernel of lone messages: over pipes of cells or lines, and few.
constexpr bool areLoneMessages(const Launch& launch) {
  if (launch.works > kMostLoneMessages || launch.comm.ranks > kMaxLocalRanks) return false;
  for (int32_t w = 0; w < launch.works; ++w)
    if (!isMessage(launch.work[w])) return false;
  return launch.works > 0;
}

constexpr LoneMessages makeMessages(const Launch& launch) {
  LoneMessages messages;
  messages.comm = launch.comm;
  messages.count = launch.works;
  for (int32_t w = 0; w < launch.works; ++w) {
    const Work& work = launch.work[w];
    messages.message[w] = {work.geometry,     work.in,         work.out,          work.root,
                           sizeOf(work.type), work.firstBlock, work.firstChannel, work.firstLane == 0};
  }
  return messages;
}

/// Threads of a block: those that the longest slice keeps busy. The two sides of a message need not agree on it.
constexpr int messageThreads(const Launch& launch, Protocol protocol) {
  int threads = kLeastLoneThreads;
  for (int32_t w = 0; w < launch.works; ++w) {
    const int own = loneThreads(launch.work[w].geometry, launch.work[w].type, protocol);
    threads = own > threads ? own : threads;
  }
  return threads;
}

}  // namespace tutti::exec::cuda
