// Two GPUs of this machine, what is timed on both at once, and launching onto them. For gpu_limits alone: what fails ends the program.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels.cuh"

namespace tutti::limits {

// The probe's (bench/gpu_probe/check.h) needs fmt, which nvcc cannot read.
inline void check(cudaError_t error, const char* what, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_limits: line %d: %s: %s\n", line, what, cudaGetErrorString(error));
  std::_Exit(2);
}
#define LIMITS_CHECK(call) check((call), #call, __LINE__)

constexpr int kNodes = 50;  // of a graph, as bench_gpu has them

struct Settings {
  std::array<int, 2> device = {0, 1};
  uint64_t bytes = uint64_t{128} << 20;
  int rounds = 15;
  bool hasHost = true;  ///< tables
  bool hasPages = true;
  bool hasClusters = true;
  bool hasEngines = true;
  bool hasLinks = true;
  std::string json;  ///< where links are kept; empty: nowhere
  bool hasRest = true;
};

struct Gpu {
  int device;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  Flag* flags;
  Memory memory;
};

template <class T>
T* allocate(uint64_t bytes) {
  void* memory = nullptr;
  LIMITS_CHECK(cudaMalloc(&memory, bytes));
  LIMITS_CHECK(cudaMemset(memory, 0, bytes));
  return static_cast<T*>(memory);
}

class Machine {
 public:
  explicit Machine(const Settings& settings) : settings_(settings) {
    for (int i = 0; i < 2; ++i) {
      Gpu& g = gpu_[i];
      g.device = settings.device[i];
      LIMITS_CHECK(cudaSetDevice(g.device));
      LIMITS_CHECK(cudaDeviceEnablePeerAccess(settings.device[1 - i], 0));
      LIMITS_CHECK(cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking));
      LIMITS_CHECK(cudaEventCreate(&g.begin));
      LIMITS_CHECK(cudaEventCreate(&g.end));
      g.flags = allocate<Flag>(1024 * sizeof(Flag));
      for (Words2** m : {&g.memory.source, &g.memory.other, &g.memory.target, &g.memory.slots}) *m = allocate<Words2>(settings.bytes);
      g.memory.vectors = settings.bytes / sizeof(Words2);
    }
    for (int i = 0; i < 2; ++i) gpu_[i].memory.peerSlots = gpu_[1 - i].memory.slots;
  }

  const Settings& settings() const { return settings_; }
  std::array<Gpu, 2>& gpus() { return gpu_; }

  using Issue = std::function<void(const Gpu& own, const Gpu& peer)>;

  /// Microseconds of what `issue` puts on both GPUs' streams at once: medians of the larger of the two.
  double timeUs(const Issue& issue, bool isOneWay = false) {
    return medianUs([&](int i) {
      if (i == 0 || !isOneWay) issue(gpu_[i], gpu_[1 - i]);
    });
  }
  /// The same, of kNodes times in a graph, for one.
  double graphUs(const Issue& issue) {
    std::array<cudaGraphExec_t, 2> graphs{};
    for (int i = 0; i < 2; ++i) {
      const Gpu& g = gpu_[i];
      LIMITS_CHECK(cudaSetDevice(g.device));
      cudaGraph_t graph;
      LIMITS_CHECK(cudaStreamBeginCapture(g.stream, cudaStreamCaptureModeThreadLocal));
      for (int n = 0; n < kNodes; ++n) issue(g, gpu_[1 - i]);
      LIMITS_CHECK(cudaStreamEndCapture(g.stream, &graph));
      LIMITS_CHECK(cudaGraphInstantiate(&graphs[i], graph, 0));
      LIMITS_CHECK(cudaGraphDestroy(graph));
    }
    const double us = medianUs([&](int i) { LIMITS_CHECK(cudaGraphLaunch(graphs[i], gpu_[i].stream)); }) / kNodes;
    for (cudaGraphExec_t graph : graphs) LIMITS_CHECK(cudaGraphExecDestroy(graph));
    return us;
  }

 private:
  double medianUs(const std::function<void(int)>& issue) {
    std::vector<double> all;
    std::array<float, 2> ms{};
    std::barrier meet(2);
    const auto runOne = [&](int i) {
      const Gpu& g = gpu_[i];
      LIMITS_CHECK(cudaSetDevice(g.device));
      for (int round = -2; round < settings_.rounds; ++round) {
        meet.arrive_and_wait();
        LIMITS_CHECK(cudaEventRecord(g.begin, g.stream));
        issue(i);
        LIMITS_CHECK(cudaEventRecord(g.end, g.stream));
        LIMITS_CHECK(cudaStreamSynchronize(g.stream));
        LIMITS_CHECK(cudaEventElapsedTime(&ms[i], g.begin, g.end));
        meet.arrive_and_wait();
        if (i == 0 && round >= 0) all.push_back(1e3 * std::max(ms[0], ms[1]));
        meet.arrive_and_wait();
      }
    };
    std::thread other([&] { runOne(1); });
    runOne(0);
    other.join();
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

  Settings settings_;
  std::array<Gpu, 2> gpu_;
};

struct Shape {
  int blocks;
  int threads;
  uint32_t sharedBytes = 0;
  bool isEarly = false;
  int clusterBlocks = 1;
};

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Shape& shape, cudaStream_t stream, Arguments... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.sharedBytes;
  config.stream = stream;
  config.attrs = attributes;
  if (shape.isEarly) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.clusterBlocks > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(shape.clusterBlocks);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  LIMITS_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace tutti::limits
