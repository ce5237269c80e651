// The kernel of plain data behind fences: every algorithm, for large messages. The bulk variant is the same code with stages in shared
// memory.
#include "exec/cuda/kernels.h"
#include "exec/cuda/move_bulk.cuh"
#include "exec/cuda/role_lane.cuh"

namespace tutti::exec::cuda {
namespace {

struct SimpleShared : RoleShared {
  BulkShared bulk;
};

extern __shared__ __align__(128) std::byte bulkStages[];

template <DataType kType>
struct SimpleKind {
  static constexpr Protocol kProtocol = Protocol::Simple;
  static constexpr int kWorkers = 448;
  using Shared = SimpleShared;

  static __device__ __forceinline__ void begin(Shared& shared) { beginBulk(shared.bulk); }
  static __device__ __forceinline__ void runJob(const Job& job, Shared& shared) {
    if (!job.isMove) {
      runLoop<PlainFold, kType>(job, shared.context);
    } else if (!tryBulk(job, shared.context, shared.bulk, bulkStages)) {
      passOver<kMoveUnroll>(job, shared.context, true, MovePass{job, shared.context.numbers.elementBytes});
    }
  }
};

template <DataType kType>
__global__ void __launch_bounds__(RoleLane<SimpleKind<kType>>::kThreads, 1) simpleKernel(const __grid_constant__ Launch launch) {
  __shared__ SimpleShared shared;
  runWorks(launch, shared, RoleLane<SimpleKind<kType>>(launch, shared));
}

struct SimpleFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&simpleKernel<kType>);
  }
};

constexpr int kThreads = RoleLane<SimpleKind<DataType::U8>>::kThreads;

KernelEntry entryOf(const BlockSize& block) { return makeEntry(block, SimpleFunction{}); }

}  // namespace

const KernelEntry& simpleEntry() {
  static const KernelEntry entry = entryOf({kThreads, 0});
  return entry;
}
const KernelEntry& bulkEntry() {
  static const KernelEntry entry = entryOf({kThreads, kBulkBytes});
  return entry;
}

}  // namespace tutti::exec::cuda
