// The kernels of cells: pipes whose slots hold them, for small messages over rings and trees, and windows of them, for the smallest
// latency.
#include "exec/cuda/kernels.h"
#include "exec/cuda/role_lane.cuh"
#include "exec/cuda/window_lane.cuh"

namespace tutti::exec::cuda {
namespace {

template <DataType kType>
struct CellsKind {
  static constexpr Protocol kProtocol = Protocol::Cells;
  static constexpr int kWorkers = 256;

  static __device__ __forceinline__ void runJob(const Job& job, RoleShared& shared) { runCells<kType>(job, shared.context); }
};

template <DataType kType>
__global__ void __launch_bounds__(RoleLane<CellsKind<kType>>::kThreads, 1) cellsKernel(const __grid_constant__ Launch launch) {
  __shared__ RoleShared shared;
  runWorks(launch, shared, RoleLane<CellsKind<kType>>(launch, shared));
}

constexpr int kWindowThreads = 256;

template <DataType kType>
__global__ void __launch_bounds__(kWindowThreads, 1) windowKernel(const __grid_constant__ Launch launch) {
  __shared__ WindowShared shared;
  runWorks(launch, shared, WindowLane<kType, kWindowThreads>(launch, shared));
}

struct CellsFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&cellsKernel<kType>);
  }
};
struct WindowFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&windowKernel<kType>);
  }
};

constexpr BlockSize kCells{RoleLane<CellsKind<DataType::U8>>::kThreads, 0};
constexpr BlockSize kWindow{kWindowThreads, 0};

}  // namespace

const KernelEntry& cellsEntry() {
  static const KernelEntry entry = makeEntry(kCells, CellsFunction{});
  return entry;
}
const KernelEntry& windowEntry() {
  static const KernelEntry entry = makeEntry(kWindow, WindowFunction{});
  return entry;
}

}  // namespace tutti::exec::cuda
