#include "exec/cuda/launch_table.h"

#include <cuda.h>

#include <cstdint>

namespace tutti::exec::cuda {
namespace {

// The runtime's attributes are the driver's under other names.
static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute) &&
              offsetof(cudaLaunchAttribute, val) == offsetof(CUlaunchAttribute, value));
static_assert(static_cast<int>(cudaLaunchAttributeClusterDimension) == static_cast<int>(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
static_assert(static_cast<int>(cudaLaunchAttributeProgrammaticStreamSerialization) ==
              static_cast<int>(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));

/// A function of the driver, which is not linked; null where it has none.
template <class Function>
Function* functionOf(const char* name, [[maybe_unused]] unsigned version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &result);
#endif
  if (error == cudaSuccess)
    return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function*>(address) : nullptr;
  cudaGetLastError();  // nobody else is to find it
  return nullptr;
}

using LaunchFunction = CUresult(const CUlaunchConfig*, CUfunction, void**, void**);
LaunchFunction* launchFunction() {
  static LaunchFunction* const found = functionOf<LaunchFunction>("cuLaunchKernelEx", 11060);  // the version that brought it
  return found;
}

/// Null: none, or it cannot be asked for.
CUcontext currentContext() {
  using Current = CUresult(CUcontext*);
  static Current* const current = functionOf<Current>("cuCtxGetCurrent", 4000);
  CUcontext context = nullptr;
  return current != nullptr && current(&context) == CUDA_SUCCESS ? context : nullptr;
}

}  // namespace

template <class Entries, class Visit>
void LaunchTable::walk(Entries& entries, const void* function, const void* context, Visit&& visit) {
  const size_t first = (reinterpret_cast<uintptr_t>(function) >> 4) ^ (reinterpret_cast<uintptr_t>(context) >> 8);
  for (size_t i = 0; i < kEntries; ++i) {
    auto& entry = entries[(first + i) % kEntries];
    CUfunc_st* const handle = entry.handle.load(std::memory_order_acquire);  // pairs with add()
    if (visit(entry, handle) || handle == nullptr) return;
  }
}

CUfunc_st* LaunchTable::find(const void* function, const void* context) const {
  CUfunc_st* found = nullptr;
  walk(entries_, function, context, [&](const Entry& entry, CUfunc_st* handle) {
    if (handle != nullptr && entry.function == function && entry.context == context) found = handle;
    return found != nullptr;
  });
  return found;
}

void LaunchTable::add(const void* function) {
  const void* const context = currentContext();
  if (context == nullptr || launchFunction() == nullptr) return;
  const std::lock_guard lock(adding_);
  if (find(function, context) != nullptr) return;
  cudaFunction_t handle = nullptr;
  if (cudaGetFuncBySymbol(&handle, function) != cudaSuccess) {
    cudaGetLastError();  // nobody else is to find it
    return;
  }
  walk(entries_, function, context, [&](Entry& entry, const CUfunc_st* there) {
    if (there != nullptr) return false;
    entry.function = function;
    entry.context = context;
    entry.handle.store(handle, std::memory_order_release);  // pairs with walk()
    return true;
  });
}

cudaError_t LaunchTable::launch(const cudaLaunchConfig_t& config, const void* function, void** arguments) const {
  const void* const context = currentContext();
  CUfunc_st* const handle = context == nullptr ? nullptr : find(function, context);
  if (handle == nullptr) return cudaLaunchKernelExC(&config, function, arguments);
  CUlaunchConfig same{};
  same.gridDimX = config.gridDim.x;
  same.gridDimY = config.gridDim.y;
  same.gridDimZ = config.gridDim.z;
  same.blockDimX = config.blockDim.x;
  same.blockDimY = config.blockDim.y;
  same.blockDimZ = config.blockDim.z;
  same.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
  same.hStream = config.stream;
  same.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
  same.numAttrs = config.numAttrs;
  return static_cast<cudaError_t>(launchFunction()(&same, handle, arguments, nullptr));  // the numbers are the same
}

}  // namespace tutti::exec::cuda
