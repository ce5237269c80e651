// The kernel of plain data behind fences: every algorithm, for large messages.
#include "exec/cuda/fold_plain.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/role_lane.cuh"

namespace tutti::exec::cuda {
namespace {

template <DataType kType>
struct SimpleKind {
  static constexpr Protocol kProtocol = Protocol::Simple;
  static constexpr int kWorkers = 448;

  static __device__ __forceinline__ void runJob(const Job& job, RoleShared& shared) { runPlain<kType>(job, shared.context); }
};

template <DataType kType>
__global__ void __launch_bounds__(RoleLane<SimpleKind<kType>>::kThreads, 1) simpleKernel(const __grid_constant__ Launch launch) {
  __shared__ RoleShared shared;
  runWorks(launch, shared, RoleLane<SimpleKind<kType>>(launch, shared));
}

struct SimpleFunction {
  template <DataType kType>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&simpleKernel<kType>);
  }
};

constexpr BlockSize kSimple{RoleLane<SimpleKind<DataType::U8>>::kThreads, 0};

}  // namespace

const KernelEntry& simpleEntry() {
  static const KernelEntry entry = makeEntry(kSimple, SimpleFunction{});
  return entry;
}

}  // namespace tutti::exec::cuda
