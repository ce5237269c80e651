// What a lone call is launched with: its rounds, which the host has put together from the algorithm's template. Plain values, the same on
// host and device; made by launchKernel() alone, from a Launch.
//
// In a round every rank does the same with several peers, so that a kernel can do it for all of them at once, in this order: it sends, it
// copies, it combines, it takes, it waits for whoever else has to arrive; then all its threads meet.
#pragma once

#include <type_traits>

#include "algo/list.h"
#include "exec/cuda/loops.h"
#include "exec/cuda/work.h"

namespace tutti::exec::cuda {

/// Threads of a block at least: two warps, so that the one that posts on the boards is not the one that all wait for. And at most: with
/// lines each thread has more in its registers.
inline constexpr int kLeastLoneThreads = 64;
constexpr int mostLoneThreads(Protocol protocol) { return protocol == Protocol::Lines ? 384 : 512; }

/// What is done with several peers, each with a chunk of its own number or all with one.
struct Bundle {
  algo::ChunkRef chunk;
  uint32_t peers = 0;  ///< bits
  bool isSame = true;
  bool scales = false;

  TUTTI_HD bool has(int32_t peer) const { return (peers >> peer & 1) != 0; }
  TUTTI_HD algo::ChunkRef of(int32_t peer) const { return {isSame ? chunk.chunk : peer, chunk.buffer}; }
};

struct Round {
  Bundle stores;
  uint32_t empties = 0;  ///< bits: peers that get nothing but have to see that this rank has arrived
  bool hasCopy = false;
  algo::ChunkRef copyFrom;
  algo::ChunkRef copyTo;
  bool combines = false;  ///< the peers' contributions and `own`, into `result`
  bool forwards = false;  ///< the result goes to `nextPeers` as soon as it is there, one round ahead
  algo::ChunkRef own;
  algo::ChunkRef result;
  uint32_t nextPeers = 0;
  Bundle loads;
  uint32_t awaits = 0;  ///< bits: peers of whom nothing is taken, but who have to arrive
};
inline constexpr int kMostRounds = 2;

struct Rounds {
  int32_t count = 0;
  Round round[kMostRounds];
};

struct LoneLaunch {
  CommView comm;
  Work work;
  Numbers numbers;
  Rounds rounds;
};
static_assert(std::is_trivially_copyable_v<LoneLaunch>);

/// What these kernels can run: algorithms over windows that combine, and those that only move. A kernel is compiled for one sort.
using LoneReductions = algo::TypeList<algo::OneShotAllReduce, algo::TwoShotAllReduce, algo::DirectReduceScatter, algo::DirectReduce>;
using LoneMoves =
    algo::TypeList<algo::DirectAllGather, algo::DirectAllToAll, algo::DirectBroadcast, algo::DirectGather, algo::DirectScatter>;

template <class Wanted, class... Algorithms>
constexpr uint8_t placeAmong(algo::TypeList<Algorithms...>) {
  constexpr bool kIs[] = {__is_same(Wanted, Algorithms)...};
  uint8_t place = 0;
  while (!kIs[place]) ++place;
  return place;
}
template <class... Algorithms>
constexpr bool holds(algo::TypeList<Algorithms...>, uint8_t place) {
  return ((placeAmong<Algorithms>(algo::AllAlgorithms{}) == place) || ...);
}
constexpr bool isLoneReduction(uint8_t place) { return holds(LoneReductions{}, place); }
constexpr bool mayBeLone(uint8_t place) { return isLoneReduction(place) || holds(LoneMoves{}, place); }

/// The rounds of a rank. None where the algorithm, by its place in algo/list.h, is not one that mayBeLone().
Rounds makeRounds(uint8_t algorithm, int32_t rank, int32_t ranks, int32_t root);

/// Threads of a block: those that the longest slice keeps busy. Ranks need not agree on it.
constexpr int loneThreads(const algo::Geometry& g, DataType type, Protocol protocol) {
  uint64_t elems = g.sliceElems < g.partElems ? g.sliceElems : g.partElems;
  elems = elems < g.totalElems ? elems : g.totalElems;
  const uint64_t bytes = elems * sizeOf(type);
  const uint64_t units = protocol == Protocol::Lines ? (bytes + kLineDataBytes - 1) / kLineDataBytes * (kLineBytes / kCellBytes)
                                                     : (bytes + kCellDataBytes - 1) / kCellDataBytes;
  const uint64_t threads = (units + 31) / 32 * 32;
  const auto most = static_cast<uint64_t>(mostLoneThreads(protocol));
  return static_cast<int>(threads > most ? most : threads < kLeastLoneThreads ? kLeastLoneThreads : threads);
}

}  // namespace tutti::exec::cuda
