// What a lone one-shot or two-shot of one slice is launched with, when it runs on a kernel of its own type and operation. Plain values, the
// same on host and device; made by launchKernel() alone, from a Launch for the Window kernel.
#pragma once

#include <utility>

#include "algo/list.h"
#include "exec/cuda/loops.h"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda {

/// Threads of a block at most, and at least: two warps, so that the one that posts on the boards is not the one that all wait for.
inline constexpr int kSmallThreads = 512;
inline constexpr int kLeastSmallThreads = 64;

struct SmallLaunch {
  CommView comm;
  Work work;
  Numbers numbers;
};
static_assert(std::is_trivially_copyable_v<SmallLaunch>);

template <class Wanted, class... Algorithms>
constexpr uint8_t placeAmong(algo::TypeList<Algorithms...>) {
  constexpr bool kIs[] = {__is_same(Wanted, Algorithms)...};
  uint8_t place = 0;
  while (!kIs[place]) ++place;
  return place;
}
/// Their places in algo/list.h.
inline constexpr uint8_t kOneShot = placeAmong<algo::OneShotAllReduce>(algo::AllAlgorithms{});
inline constexpr uint8_t kTwoShot = placeAmong<algo::TwoShotAllReduce>(algo::AllAlgorithms{});

/// Whether a launch for the Window kernel may run on a small one: the same answer on all ranks, since it depends on the call alone. The
/// algorithms' verbs keep their round, so a lane that ran a second slice would have to be made anew.
inline bool isSmall(const Launch& launch) {
  const Work& first = launch.work[0];
  return launch.works == 1 && first.geometry.slices == 1 && (first.algorithm == kOneShot || first.algorithm == kTwoShot);
}

/// Threads of a block: one for each cell of the longest slice.
constexpr int smallThreads(const algo::Geometry& g, DataType type) {
  uint64_t elems = g.sliceElems < g.partElems ? g.sliceElems : g.partElems;
  elems = elems < g.totalElems ? elems : g.totalElems;
  const uint64_t cells = (elems * sizeOf(type) + kCellDataBytes - 1) / kCellDataBytes;
  const uint64_t threads = (cells + 31) / 32 * 32;
  return threads > kSmallThreads ? kSmallThreads : threads < kLeastSmallThreads ? kLeastSmallThreads : static_cast<int>(threads);
}

}  // namespace tutti::exec::cuda
