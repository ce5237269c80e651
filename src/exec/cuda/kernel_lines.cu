// The kernel of lines: pipes whose slots hold them, for middle sizes, on machines that keep lines of 128 bytes in order.
#include "exec/cuda/fold_lines.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/role_lane.cuh"

namespace tutti::exec::cuda {
namespace {

template <DataType kType>
struct LinesKind {
  static constexpr Protocol kProtocol = Protocol::Lines;
  static constexpr int kWorkers = 448;

  static __device__ __forceinline__ void runJob(const Job& job, RoleShared& shared) { runLines<kType>(job, shared.context); }
};

template <DataType kType>
__global__ void __launch_bounds__(RoleLane<LinesKind<kType>>::kThreads, 1) linesKernel(const __grid_constant__ Launch launch) {
  __shared__ RoleShared shared;
  runWorks(launch, shared, RoleLane<LinesKind<kType>>(launch, shared));
}

struct LinesFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&linesKernel<kType>);
  }
};

constexpr BlockSize kLines{RoleLane<LinesKind<DataType::U8>>::kThreads, 0};

}  // namespace

const KernelEntry& linesEntry() {
  static const KernelEntry entry = makeEntry(kLines, LinesFunction{});
  return entry;
}

}  // namespace tutti::exec::cuda
