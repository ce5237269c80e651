// How a warp carries out the stages of calls on windows (copies.h).
#pragma once

#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/copies.h"
#include "exec/cuda/wait.cuh"

namespace tutti::exec::cuda {

static_assert(kCopyThreads == 32);

/// The threads of the first warp of a block, each for its peers.
class WarpSide {
 public:
  __device__ explicit WarpSide(const CopyLaunch& launch) : launch_(launch) {}
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return kCopyThreads; }
  __device__ void meet() const { __syncwarp(); }
  __device__ void fence() const { arch::fenceAcqRelSys(); }
  __device__ void post() const { postOnBoards(launch_.wait); }
  __device__ bool hasGivenUp() const { return __any_sync(0xffffffffu, arch::loadRelaxedSys(&launch_.wait.relay->stop) != 0) != 0; }
  __device__ uint64_t load(const uint64_t* p) const { return arch::loadRelaxedSys(p); }
  __device__ uint64_t loadAcquire(const uint64_t* p) const { return arch::loadAcquireSys(p); }
  __device__ void store(uint64_t* p, uint64_t v) const { arch::storeRelaxedSys(p, v); }
  template <class Attempt>
  __device__ bool await(Waiting waiting, int peer, uint64_t expected, Attempt&& attempt) const {
    return waitUntil(launch_.wait, noteOf(waiting, peer), expected, attempt);
  }
  __device__ void report(Waiting waiting, int peer, uint64_t expected, uint64_t seen) const {
    reportGiveUp(launch_.wait, noteOf(waiting, peer), expected, seen);
  }

 private:
  __device__ WaitNote noteOf(Waiting waiting, int peer) const { return {waiting, launch_.rank, peer, 0, 0}; }
  const CopyLaunch& launch_;
};

}  // namespace tutti::exec::cuda
