#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>

#include "algo/oneshot.h"
#include "algo/ring.h"
#include "check.h"
#include "runner.h"

namespace tutti::probe {

algo::Geometry Job::geometry(int32_t ranks) const {
  const int32_t chunks = algo == Algo::Ring ? algo::RingAllReduce::chunks(ranks) : algo::OneShotAllReduce::chunks(ranks);
  return algo::makeGeometry(algo::Division::Shares, count, chunks, type, channels, sliceBytes);
}

void Runner::enqueue(const Job& job, int32_t rank) const {
  const Kernel kernel = findKernel(job.algo, job.type, job.shape);
  if (kernel.function == nullptr) {
    std::fprintf(stderr, "no kernel of %d workers and unroll %d\n", job.shape.workers, job.shape.unroll);
    std::_Exit(2);
  }
  const Fabric::Member& m = fabric_.member(rank);
  exec::cuda::PipeLaunch pipe;
  pipe.call = fabric_.call(rank);
  pipe.call.geometry = job.geometry(fabric_.ranks());
  pipe.call.out = m.out + job.offsetElems * sizeOf(job.type);
  pipe.call.in = job.inPlace ? pipe.call.out : m.in + job.offsetElems * sizeOf(job.type);
  pipe.pipes = fabric_.pipes(rank);
  exec::cuda::PeerLaunch peer;
  peer.call = pipe.call;
  peer.window = fabric_.window(rank);
  void* arguments[] = {job.algo == Algo::Ring ? static_cast<void*>(&pipe) : static_cast<void*>(&peer)};

  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(job.channels));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.stream = m.stream;
  config.attrs = &attribute;
  config.numAttrs = job.overlap ? 1 : 0;
  PROBE_CHECK(cudaLaunchKernelExC(&config, kernel.function, arguments));
}

cudaGraphExec_t Runner::capture(const Job& job, int32_t rank, int ops) const {
  const cudaStream_t stream = fabric_.member(rank).stream;
  PROBE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < ops; ++i) enqueue(job, rank);
  cudaGraph_t graph = nullptr;
  PROBE_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  PROBE_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  PROBE_CHECK(cudaGraphDestroy(graph));
  PROBE_CHECK(cudaGraphUpload(executable, stream));
  PROBE_CHECK(cudaStreamSynchronize(stream));
  return executable;
}

bool Runner::runOnce(const Job& job, bool graph, int32_t absent) {
  std::vector<cudaEvent_t> ended(fabric_.ranks());
  std::vector<cudaGraphExec_t> graphs(fabric_.ranks());
  for (int32_t r = 0; r < fabric_.ranks(); ++r) {
    PROBE_CHECK(cudaSetDevice(fabric_.member(r).device));
    PROBE_CHECK(cudaEventCreateWithFlags(&ended[r], cudaEventDisableTiming));
    if (graph) graphs[r] = capture(job, r, 1);
  }
  for (int32_t r = 0; r < fabric_.ranks(); ++r) {
    PROBE_CHECK(cudaSetDevice(fabric_.member(r).device));
    if (graph) {
      PROBE_CHECK(cudaGraphLaunch(graphs[r], fabric_.member(r).stream));
    } else if (r != absent) {
      enqueue(job, r);
    }
    PROBE_CHECK(cudaEventRecord(ended[r], fabric_.member(r).stream));
  }
  const bool ok = fabric_.await(ended);
  if (!ok) return false;
  for (int32_t r = 0; r < fabric_.ranks(); ++r) {
    PROBE_CHECK(cudaEventDestroy(ended[r]));
    if (graph) PROBE_CHECK(cudaGraphExecDestroy(graphs[r]));
  }
  return true;
}

Timing Runner::time(const Job& job, const Repeat& repeat) {
  const int32_t ranks = fabric_.ranks();
  std::vector<cudaEvent_t> began(ranks);
  std::vector<cudaEvent_t> ended(ranks);
  std::vector<std::vector<double>> us(repeat.rounds + 1, std::vector<double>(ranks));
  std::vector<double> launchMs(ranks);
  bool ok = true;
  std::barrier meet(ranks);

  const auto drive = [&](int32_t r) {
    PROBE_CHECK(cudaSetDevice(fabric_.member(r).device));
    const cudaStream_t stream = fabric_.member(r).stream;
    PROBE_CHECK(cudaEventCreate(&began[r]));
    PROBE_CHECK(cudaEventCreate(&ended[r]));
    cudaGraphExec_t graph = repeat.graph ? capture(job, r, repeat.ops) : nullptr;
    for (int round = 0; round <= repeat.rounds; ++round) {  // round 0 warms up
      meet.arrive_and_wait();
      const auto start = std::chrono::steady_clock::now();
      PROBE_CHECK(cudaEventRecord(began[r], stream));
      for (int i = 0; i < repeat.replays; ++i) {
        if (repeat.graph) {
          PROBE_CHECK(cudaGraphLaunch(graph, stream));
        } else {
          for (int k = 0; k < repeat.ops; ++k) enqueue(job, r);
        }
      }
      PROBE_CHECK(cudaEventRecord(ended[r], stream));
      launchMs[r] = std::max(launchMs[r], std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      meet.arrive_and_wait();
      if (r == 0) ok = ok && fabric_.await(ended);
      meet.arrive_and_wait();
      if (!ok) return;
      float ms = 0;
      PROBE_CHECK(cudaEventElapsedTime(&ms, began[r], ended[r]));
      us[round][r] = ms * 1e3 / (static_cast<double>(repeat.ops) * repeat.replays);
    }
    if (graph != nullptr) PROBE_CHECK(cudaGraphExecDestroy(graph));
    PROBE_CHECK(cudaEventDestroy(began[r]));
    PROBE_CHECK(cudaEventDestroy(ended[r]));
  };
  {
    std::vector<std::jthread> drivers;
    for (int32_t r = 0; r < ranks; ++r) drivers.emplace_back(drive, r);
  }
  std::vector<double> slowest;
  for (int round = 1; round <= repeat.rounds; ++round) slowest.push_back(*std::max_element(us[round].begin(), us[round].end()));
  std::sort(slowest.begin(), slowest.end());
  return {ok, slowest[slowest.size() / 2], slowest.front(), slowest.back(), *std::max_element(launchMs.begin(), launchMs.end())};
}

}  // namespace tutti::probe
