#include "engines.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::limits {
namespace {

/// A stream beside the one of a GPU, and what ties both together.
struct Aside {
  cudaStream_t stream;
  cudaEvent_t forked, done;

  template <class Body>
  void run(cudaStream_t main, Body&& body) const {
    LIMITS_CHECK(cudaEventRecord(forked, main));
    LIMITS_CHECK(cudaStreamWaitEvent(stream, forked, 0));
    body(stream);
    LIMITS_CHECK(cudaEventRecord(done, stream));
  }
  void join(cudaStream_t main) const { LIMITS_CHECK(cudaStreamWaitEvent(main, done, 0)); }
};

void copyPart(Words2* to, const Words2* from, uint64_t begin, uint64_t end, cudaStream_t stream) {
  auto* const target = reinterpret_cast<char*>(to);
  const auto* const source = reinterpret_cast<const char*>(from);
  LIMITS_CHECK(cudaMemcpyAsync(target + begin, source + begin, end - begin, cudaMemcpyDefault, stream));
}

/// Whether what `issue` puts on `stream` ends while blocks hold every thread of every multiprocessor, in words: then it needs none.
const char* besideBlocks(const Gpu& gpu, cudaStream_t stream, const std::function<void()>& issue) {
  LIMITS_CHECK(cudaSetDevice(gpu.device));
  issue();  // what is set up the first time
  LIMITS_CHECK(cudaStreamSynchronize(stream));
  int* words = nullptr;  // [begun, isOver]
  LIMITS_CHECK(cudaHostAlloc(&words, 2 * sizeof(int), cudaHostAllocMapped));
  words[0] = words[1] = 0;
  cudaDeviceProp properties{};
  LIMITS_CHECK(cudaGetDeviceProperties(&properties, gpu.device));
  const int blocks = properties.multiProcessorCount * (properties.maxThreadsPerMultiProcessor / 1024);
  launch(holdKernel, {blocks, 1024}, gpu.stream, words, words + 1);
  std::atomic_ref<int> begun(words[0]), isOver(words[1]);
  const auto passes = [](auto&& isTrue) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (!isTrue() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return isTrue();
  };
  const bool isFull = passes([&] { return begun.load() == blocks; });
  issue();
  const bool isDone = passes([&] { return cudaStreamQuery(stream) == cudaSuccess; });
  isOver.store(1);
  LIMITS_CHECK(cudaDeviceSynchronize());
  LIMITS_CHECK(cudaFreeHost(words));
  return !isFull ? "(blocks did not fill the GPU)" : isDone ? "ends" : "waits for them";
}

/// In rows of 4 KiB that lie one behind the other.
cudaError_t copyRows(Words2* to, const Words2* from, uint64_t bytes, cudaStream_t stream) {
  constexpr uint64_t kRow = 4096;
  return cudaMemcpy2DAsync(to, kRow, from, kRow, kRow, bytes / kRow, cudaMemcpyDefault, stream);
}

/// By the call that may be asked not to take multiprocessors.
cudaError_t copyBesideBlocks(Words2* to, const Words2* from, uint64_t bytes, cudaStream_t stream) {
  void* const targets[] = {to};
  const void* const sources[] = {from};
  const size_t sizes[] = {bytes};
  size_t first[] = {0};
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  return cudaMemcpyBatchAsync(targets, sources, sizes, 1, &attributes, first, 1, stream);
}

/// What `issue` puts on the stream, as a graph; null: it cannot be captured.
cudaGraphExec_t capture(cudaStream_t stream, const std::function<cudaError_t()>& issue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  LIMITS_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const cudaError_t issued = issue();
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (issued != cudaSuccess || ended != cudaSuccess) {
    cudaGetLastError();
    std::printf("(not captured: %s, %s) ", cudaGetErrorName(issued), cudaGetErrorName(ended));
    return nullptr;
  }
  LIMITS_CHECK(cudaGraphInstantiate(&made, graph, 0));
  LIMITS_CHECK(cudaGraphDestroy(graph));
  return made;
}

/// Of one of several in a row.
double eagerUs(cudaStream_t stream, cudaEvent_t begin, cudaEvent_t end, const std::function<cudaError_t()>& issue) {
  std::vector<float> all;
  for (int i = 0; i < 15; ++i) {
    float ms = 0;
    LIMITS_CHECK(cudaEventRecord(begin, stream));
    for (int k = 0; k < 20; ++k) LIMITS_CHECK(issue());
    LIMITS_CHECK(cudaEventRecord(end, stream));
    LIMITS_CHECK(cudaStreamSynchronize(stream));
    LIMITS_CHECK(cudaEventElapsedTime(&ms, begin, end));
    all.push_back(ms);
  }
  std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
  return 1e3 * all[all.size() / 2] / 20;
}

/// Which copies need no multiprocessor.
void printBesideBlocks(Machine& machine, cudaStream_t aside) {
  const Gpu& first = machine.gpus()[0];
  constexpr uint64_t bytes = uint64_t{16} << 20;
  LIMITS_CHECK(cudaSetDevice(first.device));
  const auto plain = [&](Words2* to) { return cudaMemcpyAsync(to, first.memory.source, bytes, cudaMemcpyDefault, aside); };
  const std::pair<const char*, std::function<cudaError_t()>> copies[] = {
      {"to the peer", [&] { return plain(machine.gpus()[1].memory.slots); }},
      {"to the peer, rather beside blocks",
       [&] { return copyBesideBlocks(machine.gpus()[1].memory.slots, first.memory.source, bytes, aside); }},
      {"within the GPU", [&] { return plain(first.memory.target); }},
      {"within the GPU, in rows of 4 KiB", [&] { return copyRows(first.memory.target, first.memory.source, bytes, aside); }},
      {"within the GPU, rather beside blocks", [&] { return copyBesideBlocks(first.memory.target, first.memory.source, bytes, aside); }},
  };
  std::printf(
      "\nCopies of 16 MiB: whether they end while blocks hold all multiprocessors, and microseconds (eager, 20 in a row)\n\n"
      "| copy | eager | in a graph | us |\n|---|---|---|---:|\n");
  for (const auto& [what, issue] : copies) {
    std::printf("| %s | ", what);
    std::printf("%s | ", besideBlocks(first, aside, [&] { LIMITS_CHECK(issue()); }));
    cudaGraphExec_t graph = capture(aside, issue);
    const auto replay = [&] { LIMITS_CHECK(cudaGraphLaunch(graph, aside)); };
    std::printf("%s | %.1f |\n", graph == nullptr ? "" : besideBlocks(first, aside, replay),
                eagerUs(aside, first.begin, first.end, issue));
    if (graph != nullptr) LIMITS_CHECK(cudaGraphExecDestroy(graph));
  }
}

}  // namespace

void printEngines(Machine& machine) {
  std::array<Aside, 2> asides{};
  for (int i = 0; i < 2; ++i) {
    LIMITS_CHECK(cudaSetDevice(machine.gpus()[i].device));
    LIMITS_CHECK(cudaStreamCreateWithFlags(&asides[i].stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&asides[i].forked, &asides[i].done}) LIMITS_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  printBesideBlocks(machine, asides[0].stream);
  uint64_t bytes = 0;
  const auto asideOf = [&](const Gpu& gpu) -> const Aside& { return asides[&gpu - machine.gpus().data()]; };
  const auto exchange = [](const Gpu& own, const Gpu& peer) { launch(exchangeKernel, {1, 32}, own.stream, own.flags, peer.flags); };
  const auto push = [&](const Gpu& own, const Gpu& peer) { copyPart(peer.memory.slots, own.memory.source, 0, bytes, own.stream); };
  const auto keep = [&](const Gpu& own, cudaStream_t stream) { copyPart(own.memory.target, own.memory.source, 0, bytes, stream); };
  using Body = std::function<void(const Gpu&, const Gpu&)>;
  const auto exchanged = [&](const Body& body) {
    return Body([&, body](const Gpu& own, const Gpu& peer) {
      exchange(own, peer);
      body(own, peer);
      exchange(own, peer);
    });
  };
  const auto besides = [&](const std::function<void(const Gpu&, const Gpu&, cudaStream_t)>& other, const Body& main) {
    return exchanged([&, other, main](const Gpu& own, const Gpu& peer) {
      asideOf(own).run(own.stream, [&](cudaStream_t stream) { other(own, peer, stream); });
      main(own, peer);
      asideOf(own).join(own.stream);
    });
  };
  const auto keepAside = [&](const Gpu& own, const Gpu&, cudaStream_t stream) { keep(own, stream); };
  const auto keepInRows = [&](const Gpu& own, const Gpu&, cudaStream_t stream) {
    LIMITS_CHECK(copyRows(own.memory.target, own.memory.source, bytes, stream));
  };
  const std::pair<const char*, Body> ways[] = {
      {"copy", push},
      {"between kernels",
       [&](const Gpu& own, const Gpu& peer) {
         launch(emptyKernel, {1, 32}, own.stream);
         push(own, peer);
         launch(emptyKernel, {1, 32}, own.stream);
       }},
      {"between exchanges of a flag (all that follow)", exchanged(push)},
      {"in halves, side by side",
       besides([&](const Gpu& own, const Gpu& peer,
                   cudaStream_t stream) { copyPart(peer.memory.slots, own.memory.source, 0, bytes / 2, stream); },
               [&](const Gpu& own, const Gpu& peer) { copyPart(peer.memory.slots, own.memory.source, bytes / 2, bytes, own.stream); })},
      {"a copy within the GPU alone", exchanged([&](const Gpu& own, const Gpu&) { keep(own, own.stream); })},
      {"beside the one to the peer", besides(keepAside, push)},
      {"behind it", exchanged([&](const Gpu& own, const Gpu& peer) {
         push(own, peer);
         keep(own, own.stream);
       })},
      {"begun ahead of the exchange",
       [&](const Gpu& own, const Gpu& peer) {
         asideOf(own).run(own.stream, [&](cudaStream_t stream) { keep(own, stream); });
         exchange(own, peer);
         push(own, peer);
         exchange(own, peer);
         asideOf(own).join(own.stream);
       }},
      {"beside, in eight pieces", besides(
                                      [&](const Gpu& own, const Gpu&, cudaStream_t stream) {
                                        for (uint64_t i = 0; i < 8; ++i)
                                          copyPart(own.memory.target, own.memory.source, bytes / 8 * i, bytes / 8 * (i + 1), stream);
                                      },
                                      push)},
      {"beside, in rows of 4 KiB", besides(keepInRows, push)},
      {"in rows, alone", exchanged([&](const Gpu& own, const Gpu& peer) { keepInRows(own, peer, own.stream); })},
  };
  std::printf("\nCopies by engines in a graph of %d, both GPUs to each other, microseconds\n\n| KiB |", kNodes);
  for (const auto& [what, way] : ways) std::printf(" %s |", what);
  std::printf("\n|");
  for (size_t i = 0; i <= std::size(ways); ++i) std::printf("---:|");
  std::printf("\n");
  for (bytes = 4 << 10; bytes <= machine.settings().bytes; bytes *= bytes < (1 << 20) ? 16 : 2) {
    std::printf("| %llu |", static_cast<unsigned long long>(bytes >> 10));
    for (const auto& [what, way] : ways) {
      std::printf(" %.1f |", machine.graphUs(way));
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

}  // namespace tutti::limits
