// The kernels of gpu_limits: each does one thing and nothing else.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "exec/cuda/arch/bulk.cuh"
#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/arch/sync.cuh"

namespace tutti::limits {

namespace arch = exec::cuda::arch;
using arch::Words2;

inline constexpr int kThreads = 512;
inline constexpr int kFewThreads = 32;
inline constexpr int kUnroll = 8;
inline constexpr uint32_t kStageBytes = 28672;  // as the Bulk kernel has them
inline constexpr int kStages = 7;

/// Flags of one GPU, a line for each block; `sent` is the block's own count.
struct alignas(128) Flag {
  uint64_t value;
  uint64_t sent;
};

static __global__ void emptyKernel() {
  arch::waitForPrecedingGrids();
  arch::allowNextGrid();
}
/// Holds the threads that it has until it is let go.
static __global__ void __launch_bounds__(1024, 2) holdKernel(volatile int* begun, const volatile int* isOver) {
  if (threadIdx.x == 0) {
    atomicAdd_system(const_cast<int*>(begun), 1);
    while (*isOver == 0) __nanosleep(1000);
  }
  __syncthreads();
}

static __global__ void exchangeKernel(Flag* own, Flag* peer) {
  arch::waitForPrecedingGrids();
  arch::allowNextGrid();
  if (threadIdx.x != 0) return;
  Flag& mine = own[blockIdx.x];
  const uint64_t next = mine.sent + 1;
  arch::storeRelaxedSys(&peer[blockIdx.x].value, next);
  while (arch::loadRelaxedSys(&mine.value) < next) {
  }
  mine.sent = next;
}

static __device__ float2 unpack(uint64_t word) {
  return {__uint_as_float(static_cast<uint32_t>(word)), __uint_as_float(static_cast<uint32_t>(word >> 32))};
}
static __device__ uint64_t addWords(uint64_t a, uint64_t b) {
  const float2 x = unpack(a), y = unpack(b);
  return __float_as_uint(x.x + y.x) | static_cast<uint64_t>(__float_as_uint(x.y + y.y)) << 32;
}

/// What a one-shot all-reduce of 8 bytes cannot do without, of two ranks: its input and its count are loaded, the peer gets a cell and its
/// cell is waited for. `kIsSerial`: one load after the other. `kPosts`: another warp tells the peer which call this is
/// (exec/cuda/verdict.h).
struct LeastCall {
  Flag* own;
  Words2* cells;      ///< of this rank, two banks
  Words2* peerCells;
  const uint64_t* in;
  uint64_t* out;
  Flag* posts;
  Flag* peerPosts;
};
template <bool kIsSerial, bool kPosts>
__global__ void leastKernel(LeastCall call) {
  arch::waitForPrecedingGrids();
  arch::allowNextGrid();
  if (kPosts && threadIdx.x == blockDim.x - 1) {
    const uint64_t posted = arch::loadRelaxedSys(&call.posts->sent) + 1;
    arch::storeRelaxedSys(reinterpret_cast<Words2*>(call.peerPosts), Words2{{posted, 1}});
    call.posts->sent = posted;
  }
  uint64_t next = arch::loadRelaxedSys(&call.own->sent) + 1;
  const uint64_t word = arch::loadWeak(call.in + threadIdx.x + (kIsSerial ? (next >> 62) : 0));
  const uint64_t at = (next & 1) * 1024 + threadIdx.x;
  const uint64_t flag = next << 32;
  arch::storeRelaxedSys(call.peerCells + at, Words2{{(word & 0xffffffffu) | flag, word >> 32 | flag}});
  Words2 cell;
  do {
    cell = arch::loadRelaxedSys(call.cells + at);
  } while (cell.word[0] >> 32 != (next & 0xffffffffu) || cell.word[1] >> 32 != (next & 0xffffffffu));
  call.out[threadIdx.x] = addWords(word, (cell.word[0] & 0xffffffffu) | cell.word[1] << 32);
  __syncthreads();
  if (threadIdx.x == 0) call.own->sent = next;
}

/// Memory of the traffic: each a whole buffer.
struct Memory {
  Words2* source;
  Words2* other;
  Words2* target;
  Words2* slots;      ///< own, the peer writes there
  Words2* peerSlots;
  uint64_t vectors;
};

enum class Plain { Load, LoadPeer, Store, StorePeer, Copy, Push, Pull, PushAndCopy, Ring };

template <int kCount>
__device__ void load(Words2 (&to)[kCount], const Words2* from, uint64_t at) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = arch::loadWeak(from + at + static_cast<uint64_t>(i) * kThreads);
}
template <int kCount>
__device__ void store(const Words2 (&from)[kCount], Words2* to, uint64_t at) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) arch::storeWeak(to + at + static_cast<uint64_t>(i) * kThreads, from[i]);
}
/// Calls body(at) for each of this thread's hunks of kCount vectors of [begin, end).
template <int kCount, class Body>
__device__ void forHunks(uint64_t begin, uint64_t end, Body&& body) {
  constexpr uint64_t kHunk = static_cast<uint64_t>(kThreads) * kCount;
#pragma unroll 1
  for (uint64_t at = begin + blockIdx.x * kHunk; at + kHunk <= end; at += gridDim.x * kHunk) body(at + threadIdx.x);
}

template <Plain kWhat>
__global__ void __launch_bounds__(kThreads, 1) plainKernel(Memory m, uint64_t never) {
  if constexpr (kWhat == Plain::Ring) {
    const uint64_t half = m.vectors / 2;
    forHunks<kUnroll>(0, half, [&](uint64_t at) {
      Words2 value[kUnroll];
      load(value, m.source, at);
      store(value, m.peerSlots, at);
    });
    forHunks<kUnroll / 2>(half, m.vectors, [&](uint64_t at) {
      Words2 a[kUnroll / 2], b[kUnroll / 2];
      load(a, m.source, at);
      load(b, m.slots, at - half);
#pragma unroll
      for (int i = 0; i < kUnroll / 2; ++i)
        for (int w = 0; w < 2; ++w) a[i].word[w] = addWords(a[i].word[w], b[i].word[w]);
      store(a, m.target, at);
      store(a, m.peerSlots, at);
    });
    forHunks<kUnroll>(0, half, [&](uint64_t at) {
      Words2 value[kUnroll];
      load(value, m.slots, at + half);
      store(value, m.target, at);
    });
    return;
  }
  constexpr bool kLoads = kWhat != Plain::Store && kWhat != Plain::StorePeer;
  const Words2* const from = kWhat == Plain::LoadPeer || kWhat == Plain::Pull ? m.peerSlots : m.source;
  Words2* const to = kWhat == Plain::StorePeer || kWhat == Plain::Push || kWhat == Plain::PushAndCopy ? m.peerSlots : m.target;
  uint64_t seen = 0;
  forHunks<kUnroll>(0, m.vectors, [&](uint64_t at) {
    Words2 value[kUnroll] = {};
    if constexpr (kLoads) load(value, from, at);
    if constexpr (kWhat == Plain::Load || kWhat == Plain::LoadPeer) {
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) seen ^= value[i].word[0] ^ value[i].word[1];
    } else {
      store(value, to, at);
      if constexpr (kWhat == Plain::PushAndCopy) store(value, m.target, at);
    }
  });
  if (seen == never) m.target[0].word[0] = seen;  // so that loads are not dropped
}

enum class Bulk { Load, LoadPeer, Store, StorePeer, Copy, Push };

struct BulkShared {
  alignas(128) std::byte stage[kStages][kStageBytes];
  uint64_t full[kStages];
};

/// One thread of a block drives the engine.
template <Bulk kWhat>
__global__ void bulkKernel(Memory m) {
  extern __shared__ __align__(128) std::byte memory[];
  BulkShared& shared = *reinterpret_cast<BulkShared*>(memory);
  if (threadIdx.x != 0) return;
  constexpr bool kLoads = kWhat != Bulk::Store && kWhat != Bulk::StorePeer;
  constexpr bool kStores = kWhat != Bulk::Load && kWhat != Bulk::LoadPeer;
  const auto* const from = reinterpret_cast<const std::byte*>(kWhat == Bulk::LoadPeer ? m.peerSlots : m.source);
  auto* const to = reinterpret_cast<std::byte*>(kWhat == Bulk::StorePeer || kWhat == Bulk::Push ? m.peerSlots : m.target);
  for (int i = 0; i < kStages; ++i) arch::initBarrier(&shared.full[i], 1);
  arch::fenceProxyAsync();
  const uint64_t hunks = m.vectors * sizeof(Words2) / kStageBytes;
  const auto mine = static_cast<uint32_t>(hunks > blockIdx.x ? (hunks - blockIdx.x - 1) / gridDim.x + 1 : 0);
  const auto at = [&](uint32_t n) { return (blockIdx.x + static_cast<uint64_t>(n) * gridDim.x) * kStageBytes; };
  const auto begin = [&](uint32_t n) {
    arch::expectBytes(&shared.full[n % kStages], kStageBytes);
    arch::bulkLoad(shared.stage[n % kStages], from + at(n), kStageBytes, &shared.full[n % kStages]);
  };
  constexpr uint32_t kAhead = kStores ? kStages - 3 : kStages;
  if (kLoads)
    for (uint32_t n = 0; n < min(mine, kAhead); ++n) begin(n);
  for (uint32_t n = 0; n < mine; ++n) {
    if (kLoads)
      while (!arch::hasCompleted(&shared.full[n % kStages], n / kStages % 2)) {
      }
    if (kStores) {
      arch::bulkStore(to + at(n), shared.stage[n % kStages], kStageBytes);
      arch::commitStores();
      arch::awaitStoresRead<2>();  // the stage of hunk n - 3, which is the next to be loaded into, is free
    }
    if (kLoads && n + kAhead < mine) begin(n + kAhead);
  }
  if (kStores) arch::awaitStores();
}

}  // namespace tutti::limits
