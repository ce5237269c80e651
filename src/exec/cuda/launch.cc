#include "exec/cuda/launch.h"

#include <cuda_runtime.h>

namespace tutti::exec::cuda {
namespace {

const KernelEntry& entryOf(KernelId kernel) {
  switch (kernel) {
    case KernelId::Window: return windowEntry();
    case KernelId::Cells: return cellsEntry();
    case KernelId::Lines: return linesEntry();
    case KernelId::Simple: return simpleEntry();
    case KernelId::Bulk: break;
  }
  return bulkEntry();
}

Status checkCuda(cudaError_t error, const char* what, const char* kernel) {
  return error == cudaSuccess ? Status()
                              : tutti::error(Code::UnhandledCudaError, "{} of kernel {}: {}", what, kernel, cudaGetErrorString(error));
}

Status load(const KernelEntry& entry, KernelUse* use) {
  if (entry.info.sharedBytes > 0) {
    const cudaError_t error = cudaFuncSetAttribute(entry.function, cudaFuncAttributeMaxDynamicSharedMemorySize, entry.info.sharedBytes);
    if (error != cudaSuccess) return checkCuda(error, "setting the shared memory", entry.info.name);
  }
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, entry.function); error != cudaSuccess)
    return checkCuda(error, "loading", entry.info.name);
  int blocks = 0;
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, entry.function, entry.info.threads,
                                                                          static_cast<size_t>(entry.info.sharedBytes));
  if (error != cudaSuccess) return checkCuda(error, "asking for the occupancy", entry.info.name);
  if (use != nullptr)
    *use = {attributes.numRegs, static_cast<int32_t>(attributes.localSizeBytes), static_cast<int32_t>(attributes.sharedSizeBytes), blocks};
  return {};
}

}  // namespace

const KernelInfo& kernelInfo(KernelId kernel) { return entryOf(kernel).info; }

Status loadKernels(KernelUse* uses) {
  int device = 0;
  int major = 0;
  int minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess) return checkCuda(error, "asking for the architecture", "any");
  for (int k = 0; k < kNumKernels; ++k) {
    const KernelEntry& entry = entryOf(static_cast<KernelId>(k));
    if (10 * major + minor < entry.info.minimumArch) continue;
    if (Status status = load(entry, uses == nullptr ? nullptr : uses + k); !status.ok()) return status;
  }
  return {};
}

int32_t mostSteps(KernelId kernel) { return kernel == KernelId::Window ? kMostWindowSteps : kMostSteps; }

bool fits(KernelId kernel, algo::Needs needs, int32_t steps, int32_t fan) {
  const KernelInfo& info = kernelInfo(kernel);
  const bool runs = needs == algo::Needs::Pipe ? info.runsPipes : info.runsWindows;
  return runs && steps <= mostSteps(kernel) && fan <= kMostFan;
}

Status launchKernel(KernelId kernel, const Launch& launch, const LaunchOptions& options, void* stream) {
  const KernelEntry& entry = entryOf(kernel);
  Launch parameters = launch;
  parameters.bulkBytes = static_cast<uint32_t>(entry.info.sharedBytes);
  void* arguments[] = {&parameters};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(options.blocks));
  config.blockDim = dim3(static_cast<unsigned>(entry.info.threads));
  config.dynamicSmemBytes = static_cast<size_t>(entry.info.sharedBytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = options.mayOverlap ? 1 : 0;
  return checkCuda(cudaLaunchKernelExC(&config, entry.function, arguments), "launching", entry.info.name);
}

}  // namespace tutti::exec::cuda
