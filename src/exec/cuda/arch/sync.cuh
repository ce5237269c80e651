// Barriers of a thread block and clocks: one PTX instruction a function.
#pragma once

#include <cstdint>

namespace tutti::exec::cuda::arch {

/// Barrier `id` (1 to 15; 0 is __syncthreads) of `threads` threads, a multiple of 32; by whole warps, which need not be converged. Without
/// ".aligned", which stands for one and the same instruction in all threads: warps of different roles meet here from different places.
__device__ __forceinline__ void barrier(int id, int threads) {
  __syncwarp();  // else one lane of a divergent warp waits for all of it, and racecheck takes the others for absent
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// __syncthreads() behind code that lets the lanes of a warp drift apart: for the same reason.
__device__ __forceinline__ void barrierOfBlock() {
  __syncwarp();
  __syncthreads();
}

/// Waits until the grids that this one was launched behind have ended and their stores are visible; returns at once where
/// the launch did not ask for programmatic dependence.
__device__ __forceinline__ void waitForPrecedingGrids() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // older devices have no such launches
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// From now on, and when all blocks have said so, the next grid may be put on the device, if it was launched so (it waits at the function
/// above).
__device__ __forceinline__ void allowNextGrid() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Of the multiprocessor's clock; wraps.
__device__ __forceinline__ uint32_t cycles() {
  uint32_t t;
  asm volatile("mov.u32 %0, %clock;" : "=r"(t)::"memory");
  return t;
}
/// Nanoseconds, the same clock for the whole GPU; ticks coarsely.
__device__ __forceinline__ uint64_t globalTimerNs() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

}  // namespace tutti::exec::cuda::arch
