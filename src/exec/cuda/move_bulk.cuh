// Moves by the bulk copy engine: one thread drives a ring of stages in dynamic shared memory; the other workers have nothing to do.
//
// Owner of the stages: the block, for as long as its kernel runs. Only where all addresses are multiples of 16 bytes.
// 1. Load n lands in stage n % kBulkStages and completes its barrier for the (n / kBulkStages)-th time.
// 2. The driver returns when all its stores have been made, so that a fence of the signaller after the barrier orders them.
#pragma once

#include "exec/cuda/arch/bulk.cuh"
#include "exec/cuda/fold_plain.cuh"

namespace tutti::exec::cuda {

inline constexpr int kBulkStages = 6;
inline constexpr uint32_t kBulkStageBytes = 16 << 10;
inline constexpr uint32_t kBulkBytes = kBulkStages * kBulkStageBytes;
/// Shorter moves are sooner done by all workers.
inline constexpr uint64_t kLeastBulkBytes = 8 << 10;

struct BulkShared {
  uint64_t barrier[kBulkStages];
  uint32_t loads;  ///< the driver's, since the kernel began
};

__device__ __forceinline__ void beginBulk(BulkShared& shared) {
  if constexpr (arch::kHasBulk) {
    if (threadIdx.x == 0) {
      shared.loads = 0;
      for (int i = 0; i < kBulkStages; ++i) arch::initBarrier(&shared.barrier[i]);
      arch::fenceProxyAsync();
    }
  }
}

__device__ __forceinline__ uint32_t stageBytes(uint64_t bytes, uint32_t stage) {
  return static_cast<uint32_t>(min(bytes - static_cast<uint64_t>(stage) * kBulkStageBytes, static_cast<uint64_t>(kBulkStageBytes)));
}

/// The driver: `bytes` from source 0 to all targets.
__device__ __forceinline__ void driveBulk(const Job& job, BulkShared& shared, std::byte* stages, uint64_t bytes) {
  if constexpr (arch::kHasBulk) {
    const auto total = static_cast<uint32_t>((bytes + kBulkStageBytes - 1) / kBulkStageBytes);
    const uint32_t before = shared.loads;
    const auto load = [&](uint32_t n) {
      const uint32_t stage = (before + n) % kBulkStages;
      arch::expectBytes(&shared.barrier[stage], stageBytes(bytes, n));
      arch::bulkLoad(stages + stage * kBulkStageBytes, job.source[0] + static_cast<uint64_t>(n) * kBulkStageBytes, stageBytes(bytes, n),
                     &shared.barrier[stage]);
    };
    arch::fenceProxyAsync();
    constexpr uint32_t kAhead = kBulkStages - 1;
    for (uint32_t n = 0; n < min(total, kAhead); ++n) load(n);
    for (uint32_t n = 0; n < total; ++n) {
      const uint32_t stage = (before + n) % kBulkStages;
      while (!arch::hasCompleted(&shared.barrier[stage], (before + n) / kBulkStages & 1)) {
      }
      for (int t = 0; t < job.targets; ++t)
        arch::bulkStore(job.target[t] + static_cast<uint64_t>(n) * kBulkStageBytes, stages + stage * kBulkStageBytes, stageBytes(bytes, n));
      arch::commitStores();
      if (n + kAhead < total) {
        arch::awaitStoresRead<1>();  // the stage of load n + kAhead is that of store n - 1
        load(n + kAhead);
      }
    }
    shared.loads = before + total;
    arch::awaitStores();
  }
}

/// Whether the job is for the engine; then it has been carried out. All workers call it.
__device__ __forceinline__ bool tryBulk(const Job& job, const LoopContext& context, BulkShared& shared, std::byte* stages) {
  if (!arch::kHasBulk || context.bulkBytes == 0 || job.bytes < kLeastBulkBytes || !isVectorAligned(job)) return false;
  if (context.worker() == 0) driveBulk(job, shared, stages, job.bytes / sizeof(arch::Words2) * sizeof(arch::Words2));
  const uint64_t done = job.bytes / sizeof(arch::Words2) * sizeof(arch::Words2);
  const MovePass pass{job, context.numbers.elementBytes};
  for (uint64_t at = done + 8 * static_cast<uint64_t>(context.worker()); at < job.bytes; at += 8 * static_cast<uint64_t>(context.workers))
    pass.word(at);
  return true;
}

}  // namespace tutti::exec::cuda
