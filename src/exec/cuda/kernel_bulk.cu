// The kernel of plain data that streams through shared memory: every algorithm, for large messages on few blocks; from sm_90 on.
#include "exec/cuda/kernels.h"
#include "exec/cuda/stream_lane.cuh"

namespace tutti::exec::cuda {
namespace {

template <DataType kType>
__global__ void __launch_bounds__(kStreamThreads, 1) bulkKernel(const __grid_constant__ Launch launch) {
  __shared__ StreamShared shared;
  runWorks(launch, shared, StreamLane<kType>(launch, shared));
}

struct BulkFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&bulkKernel<kType>);
  }
};

}  // namespace

const KernelEntry& bulkEntry() {
  static const KernelEntry entry = makeEntry({kStreamThreads, kStages * kStageBytes}, BulkFunction{});
  return entry;
}

}  // namespace tutti::exec::cuda
