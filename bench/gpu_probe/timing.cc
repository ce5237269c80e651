#include <algorithm>
#include <barrier>
#include <thread>

#include "check.h"
#include "runner.h"

namespace tutti::probe {

Timing Runner::time(const Job& job, const Repeat& repeat) {
  const int32_t ranks = fabric_.ranks();
  launchOf_.resize(static_cast<size_t>(ranks), launches_);
  connect(job);
  const auto count = static_cast<size_t>(ranks);
  std::vector<std::vector<double>> us(static_cast<size_t>(repeat.rounds) + 1, std::vector<double>(count));
  std::vector<cudaEvent_t> began(count);
  std::vector<cudaEvent_t> ended(count);
  bool ok = true;
  std::barrier meet(ranks);

  const auto drive = [&](int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    PROBE_CHECK(cudaSetDevice(fabric_.member(rank).device));
    const cudaStream_t stream = fabric_.member(rank).stream;
    PROBE_CHECK(cudaEventCreate(&began[r]));
    PROBE_CHECK(cudaEventCreate(&ended[r]));
    cudaGraphExec_t executable = nullptr;
    if (repeat.graph) {
      cudaGraph_t graph = nullptr;
      PROBE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (int i = 0; i < repeat.ops; ++i) enqueue(job, rank);
      PROBE_CHECK(cudaStreamEndCapture(stream, &graph));
      PROBE_CHECK(cudaGraphInstantiate(&executable, graph, 0));
      PROBE_CHECK(cudaGraphDestroy(graph));
      PROBE_CHECK(cudaGraphUpload(executable, stream));
      PROBE_CHECK(cudaStreamSynchronize(stream));
    }
    for (size_t round = 0; round < us.size(); ++round) {  // round 0 warms up
      meet.arrive_and_wait();
      PROBE_CHECK(cudaEventRecord(began[r], stream));
      for (int i = 0; i < repeat.replays; ++i) {
        if (repeat.graph) {
          PROBE_CHECK(cudaGraphLaunch(executable, stream));
        } else {
          for (int k = 0; k < repeat.ops; ++k) enqueue(job, rank);
        }
      }
      PROBE_CHECK(cudaEventRecord(ended[r], stream));
      meet.arrive_and_wait();
      if (rank == 0) ok = ok && fabric_.await();
      meet.arrive_and_wait();
      if (!ok) return;
      PROBE_CHECK(cudaSetDevice(fabric_.member(rank).device));
      float ms = 0;
      PROBE_CHECK(cudaEventElapsedTime(&ms, began[r], ended[r]));
      us[round][r] = static_cast<double>(ms) * 1e3 / (static_cast<double>(repeat.ops) * repeat.replays);
    }
    if (executable != nullptr) PROBE_CHECK(cudaGraphExecDestroy(executable));
    PROBE_CHECK(cudaEventDestroy(began[r]));
    PROBE_CHECK(cudaEventDestroy(ended[r]));
  };
  {
    std::vector<std::jthread> drivers;
    for (int32_t r = 0; r < ranks; ++r) drivers.emplace_back(drive, r);
  }
  launches_ = *std::max_element(launchOf_.begin(), launchOf_.end());
  std::vector<double> slowest;
  for (size_t round = 1; round < us.size(); ++round) slowest.push_back(*std::max_element(us[round].begin(), us[round].end()));
  std::sort(slowest.begin(), slowest.end());
  return {ok, slowest[slowest.size() / 2], slowest.front(), slowest.back()};
}

}  // namespace tutti::probe
