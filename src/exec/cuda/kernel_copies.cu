// The kernels of one block around copies (copies.h).
#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/copies.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/wait.cuh"

namespace tutti::exec::cuda {
namespace {

/// The threads of a warp, each for its peers.
class WarpSide {
 public:
  __device__ explicit WarpSide(const CopyLaunch& launch) : launch_(launch) {}
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ void meet() const { __syncthreads(); }
  __device__ void fence() const { arch::fenceAcqRelSys(); }
  __device__ void post() const { postOnBoards(launch_.wait); }
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

__global__ void __launch_bounds__(kCopyThreads, 1) copiesKernel(const __grid_constant__ CopyLaunch launch) {
  WarpSide side(launch);
  CopyStep<WarpSide>(launch, side).run();
}

}  // namespace

const void* copiesFunction() { return reinterpret_cast<const void*>(&copiesKernel); }

}  // namespace tutti::exec::cuda
