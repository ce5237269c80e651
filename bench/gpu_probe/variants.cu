#include <vector>

#include "algo/oneshot.h"
#include "algo/ring.h"
#include "check.h"
#include "exec/cuda/kernel.cuh"
#include "exec/cuda/peer_lane.cuh"
#include "exec/cuda/pipe_lane.cuh"
#include "variants.h"

namespace tutti::probe {

using namespace exec::cuda;

namespace {
struct Entry {
  Algo algo;
  DataType type;
  KernelShape shape;
  Kernel kernel;
};

template <DataType kType, int kThreads>
void addOneShot(std::vector<Entry>& list) {
  using Lane = PeerLane<WordReduction<kType, ReduceOp::Sum>, PeerShape<kThreads>>;
  const auto* function = reinterpret_cast<const void*>(&runLanes<algo::OneShotAllReduce, Lane>);
  list.push_back({Algo::OneShot, kType, {kThreads, 1}, {function, Lane::kThreads}});
}
template <DataType kType, int kWorkers, int kUnroll>
void addRing(std::vector<Entry>& list) {
  using Lane = PipeLane<WordReduction<kType, ReduceOp::Sum>, PipeShape<kWorkers, kUnroll>>;
  const auto* function = reinterpret_cast<const void*>(&runLanes<algo::RingAllReduce, Lane>);
  list.push_back({Algo::Ring, kType, {kWorkers, kUnroll}, {function, Lane::kThreads}});
}
template <DataType kType>
void addType(std::vector<Entry>& list) {
  addOneShot<kType, 128>(list);
  addOneShot<kType, 256>(list);
  addOneShot<kType, 512>(list);
  addRing<kType, 512, 4>(list);
  addRing<kType, 256, 8>(list);
}

const std::vector<Entry>& all() {
  static const std::vector<Entry> list = [] {
    std::vector<Entry> l;
    addType<DataType::F32>(l);
    addType<DataType::BF16>(l);
    addType<DataType::F16>(l);
    addOneShot<DataType::F32, 1024>(l);
    addRing<DataType::F32, 256, 4>(l);
    addRing<DataType::F32, 448, 8>(l);
    addRing<DataType::F32, 384, 8>(l);
    return l;
  }();
  return list;
}
}  // namespace

Kernel findKernel(Algo algo, DataType type, KernelShape shape) {
  for (const Entry& e : all()) {
    const bool sameUnroll = algo == Algo::OneShot || e.shape.unroll == shape.unroll;
    if (e.algo == algo && e.type == type && e.shape.workers == shape.workers && sameUnroll) return e.kernel;
  }
  return {};
}

void loadKernels() {
  for (const Entry& e : all()) {
    cudaFuncAttributes attributes{};
    PROBE_CHECK(cudaFuncGetAttributes(&attributes, e.kernel.function));
    if (attributes.localSizeBytes != 0) {
      std::fprintf(stderr, "kernel of %d threads uses %zu bytes of local memory\n", e.kernel.threads, attributes.localSizeBytes);
      std::_Exit(2);
    }
  }
}

}  // namespace tutti::probe
