// The kernel that tries the path between two GPUs (probe.h): a block for each pair.
#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/arch/sync.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/probe.h"

namespace tutti::exec::cuda {
namespace {

/// The threads of a block, with the accesses that pipes are used with.
class BlockSide {
 public:
  __device__ explicit BlockSide(uint32_t* claimed) : claimed_(claimed) {}
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ bool any(bool said) const { return __syncthreads_or(said ? 1 : 0) != 0; }
  __device__ bool claim() const { return atomicExch(claimed_, 1U) == 0; }
  __device__ void store(uint32_t* p, uint32_t v) const { arch::storeRelaxedSys(p, v); }
  __device__ void store(uint64_t* p, uint64_t v) const { arch::storeRelaxedSys(p, v); }
  __device__ uint32_t load(const uint32_t* p) const { return arch::loadRelaxedSys(p); }
  __device__ uint64_t loadAcquire(const uint64_t* p) const { return arch::loadAcquireSys(p); }
  __device__ void storeWeak(uint64_t* p, uint64_t v) const { arch::storeWeak(p, v); }
  __device__ uint64_t loadWeak(const uint64_t* p) const { return arch::loadWeak(p); }
  __device__ void fence() const { arch::fenceAcqRelSys(); }
  __device__ uint64_t nowNs() const { return arch::globalTimerNs(); }
  __device__ void pause() const {}

 private:
  uint32_t* claimed_;
};

__global__ void __launch_bounds__(kProbeThreads, 1) probeKernel(const __grid_constant__ ProbeLaunch launch) {
  __shared__ uint32_t claimed;
  if (threadIdx.x == 0) claimed = 0;
  __syncthreads();
  BlockSide side(&claimed);
  ProbeRun<BlockSide>(launch, launch.pair[blockIdx.x], side).run();
}

}  // namespace

const void* probeFunction() { return reinterpret_cast<const void*>(&probeKernel); }

}  // namespace tutti::exec::cuda
