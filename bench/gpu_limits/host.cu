#include "host.h"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "exec/cuda/arch/sync.cuh"

namespace tutti::limits {
namespace {

constexpr int kBatch = 100;  // calls that are timed together: a stream takes more without a wait
constexpr int kBatches = 41;

/// As many bytes as a brief call has (exec/cuda/brief.h).
struct Parameters {
  unsigned char bytes[376];
};
__global__ void takesParameters(const __grid_constant__ Parameters) {
  exec::cuda::arch::waitForPrecedingGrids();
  exec::cuda::arch::allowNextGrid();
}

void need(bool isRight, const char* what) {
  if (isRight) return;
  std::fprintf(stderr, "gpu_limits: %s\n", what);
  std::_Exit(2);
}

/// A function of the driver, which is not linked.
template <class Function>
Function* driverFunction(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  need(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result) == cudaSuccess && found != nullptr, name);
  return reinterpret_cast<Function*>(found);
}

double medianUs(cudaStream_t stream, const std::function<bool()>& call) {
  std::vector<double> all;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kBatch; ++i) need(call(), "a call of CUDA failed");
    all.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / kBatch);
    need(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
  }
  std::nth_element(all.begin(), all.begin() + kBatches / 2, all.end());
  return all[kBatches / 2];
}

bool launch(cudaStream_t stream, bool isEarly) {
  static Parameters parameters{};
  void* arguments[] = {&parameters};
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = isEarly ? 1 : 0;
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&takesParameters), arguments) == cudaSuccess;
}

/// The same by the driver's own function, which looks nothing up.
bool launchByDriver(CUresult (*call)(const CUlaunchConfig*, CUfunction, void**, void**), CUfunction function, cudaStream_t stream) {
  static Parameters parameters{};
  void* arguments[] = {&parameters};
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return call(&config, function, arguments, nullptr) == CUDA_SUCCESS;
}

}  // namespace

void printHostCalls(cudaStream_t stream) {
  const auto push = driverFunction<CUresult(CUcontext)>("cuCtxPushCurrent");
  const auto pop = driverFunction<CUresult(CUcontext*)>("cuCtxPopCurrent");
  const auto current = driverFunction<CUresult(CUcontext*)>("cuCtxGetCurrent");
  const auto record = driverFunction<CUresult(CUevent, CUstream)>("cuEventRecord");
  const auto wait = driverFunction<CUresult(CUstream, CUevent, unsigned)>("cuStreamWaitEvent");
  const auto status = driverFunction<CUresult(CUstream, CUstreamCaptureStatus*)>("cuStreamIsCapturing");
  const auto idOf = driverFunction<CUresult(CUstream, unsigned long long*)>("cuStreamGetId");
  const auto launchEx = driverFunction<CUresult(const CUlaunchConfig*, CUfunction, void**, void**)>("cuLaunchKernelEx");
  cudaFunction_t function = nullptr;
  need(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(&takesParameters)) == cudaSuccess, "cudaGetFuncBySymbol");
  cudaKernel_t handle = nullptr;
  need(cudaGetKernel(&handle, reinterpret_cast<const void*>(&takesParameters)) == cudaSuccess, "cudaGetKernel");
  cudaEvent_t event = nullptr;
  need(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess, "cudaEventCreateWithFlags");
  CUcontext context = nullptr;
  need(current(&context) == CUDA_SUCCESS, "cuCtxGetCurrent");

  const auto enters = [&] { return push(context) == CUDA_SUCCESS && pop(&context) == CUDA_SUCCESS; };
  const auto looks = [&] {
    CUstreamCaptureStatus found{};
    return status(stream, &found) == CUDA_SUCCESS;
  };
  const auto names = [&] {
    unsigned long long id = 0;
    return idOf(stream, &id) == CUDA_SUCCESS;
  };
  const auto records = [&] { return record(event, stream) == CUDA_SUCCESS; };
  const auto waits = [&] { return wait(stream, event, 0) == CUDA_SUCCESS; };
  const auto tells = [&](const char* what, const std::function<bool()>& call) {
    std::printf("| %s | %.2f |\n", what, medianUs(stream, call));
  };
  std::printf(
      "Processor time of calls of CUDA, microseconds, medians of batches of %d on a stream that was idle\n\n| call | us |\n|---|---:|\n",
      kBatch);
  tells("context pushed and popped", enters);
  tells("context asked for", [&] { return current(&context) == CUDA_SUCCESS; });
  tells("whether a stream is captured", looks);
  tells("number of a stream", names);
  tells("event recorded", records);
  tells("event of the same stream waited for", waits);
  tells("kernel of 376 bytes of parameters launched", [&] { return launch(stream, false); });
  tells("the same, early", [&] { return launch(stream, true); });
  tells("the same, early, by the driver's function", [&] { return launchByDriver(launchEx, function, stream); });
  tells("the same, by a handle for all devices", [&] { return launchByDriver(launchEx, reinterpret_cast<CUfunction>(handle), stream); });
  tells("launched and recorded", [&] { return launch(stream, true) && records(); });
  tells("waited for, launched and recorded", [&] { return waits() && launch(stream, true) && records(); });
  tells("context, capture, wait, launch, record: a lone call", [&] {
    return push(context) == CUDA_SUCCESS && looks() && waits() && launch(stream, true) && records() && pop(&context) == CUDA_SUCCESS;
  });
  std::printf("\n");
  need(cudaEventDestroy(event) == cudaSuccess, "cudaEventDestroy");
}

}  // namespace tutti::limits
