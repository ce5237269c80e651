// The kernel of lines: pipes whose slots hold them, for middle sizes, on machines that keep lines of 128 bytes in order.
#include "exec/cuda/fold_lines.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/role_lane.cuh"

namespace tutti::exec::cuda {
namespace {

struct LinesKind {
  static constexpr Protocol kProtocol = Protocol::Lines;
  static constexpr int kWorkers = 448;
  using Shared = RoleShared;

  static __device__ __forceinline__ void begin(Shared&) {}
  static __device__ __forceinline__ void runJob(const Job& job, Shared& shared) { runLines(job, shared.context); }
};

__global__ void __launch_bounds__(RoleLane<LinesKind>::kThreads, 1) linesKernel(const __grid_constant__ Launch launch) {
  __shared__ RoleShared shared;
  runWorks<PipesOnly>(launch, shared, RoleLane<LinesKind>(launch, shared));
}

}  // namespace

const KernelEntry& linesEntry() {
  static const KernelEntry entry{{"lines", Protocol::Lines, true, false, RoleLane<LinesKind>::kThreads, 0, 80},
                                 reinterpret_cast<const void*>(&linesKernel)};
  return entry;
}

}  // namespace tutti::exec::cuda
