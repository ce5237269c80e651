// The kernels of cells: pipes whose slots hold them, for small messages over rings and trees, and windows of them, for the smallest
// latency.
#include "exec/cuda/kernels.h"
#include "exec/cuda/role_lane.cuh"
#include "exec/cuda/window_lane.cuh"

namespace tutti::exec::cuda {
namespace {

struct CellsKind {
  static constexpr Protocol kProtocol = Protocol::Cells;
  static constexpr int kWorkers = 256;
  using Shared = RoleShared;

  static __device__ __forceinline__ void begin(Shared&) {}
  static __device__ __forceinline__ void runJob(const Job& job, Shared& shared) { runCells(job, shared.context); }
};

__global__ void __launch_bounds__(RoleLane<CellsKind>::kThreads, 1) cellsKernel(const __grid_constant__ Launch launch) {
  __shared__ RoleShared shared;
  runWorks<PipesOnly>(launch, shared, RoleLane<CellsKind>(launch, shared));
}

constexpr int kWindowThreads = 256;

__global__ void __launch_bounds__(kWindowThreads, 1) windowKernel(const __grid_constant__ Launch launch) {
  __shared__ WindowShared shared;
  runWorks<WindowsOnly>(launch, shared, WindowLane<kWindowThreads>(launch, shared));
}

}  // namespace

const KernelEntry& cellsEntry() {
  static const KernelEntry entry{{"cells", Protocol::Cells, true, false, RoleLane<CellsKind>::kThreads, 0, 80},
                                 reinterpret_cast<const void*>(&cellsKernel)};
  return entry;
}
const KernelEntry& windowEntry() {
  static const KernelEntry entry{{"window", Protocol::Cells, false, true, kWindowThreads, 0, 80},
                                 reinterpret_cast<const void*>(&windowKernel)};
  return entry;
}

}  // namespace tutti::exec::cuda
