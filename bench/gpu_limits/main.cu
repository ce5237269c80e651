// What two GPUs of this machine can do at best, by kernels that do nothing else: the floors beside which docs/performance/gpu.md puts
// what the library takes.
//
// usage: gpu_limits [--devices A,B] [--bytes N] [--rounds N] [--only host|pages|clusters|engines]
//
// 1. What a kernel costs in a graph, and a kernel that exchanges a flag with the peer: no call whose result depends on a peer takes less.
// 2. What a number of blocks moves, by loads and stores and by the bulk copy engine, in own memory and to and from the peer.
// 3. What the processor takes for the calls of CUDA that a lone call makes (`--only host`: nothing but that).
// 4. How far the pages of a GPU's memory are from its multiprocessors, and what a flag on them costs (`--only pages`).
// 5. What a number of blocks sends to the peer where they are launched in clusters (`--only clusters`).
// 6. What copy engines take in a graph to the peer, by themselves, between kernels, in halves, and with a copy within the GPU beside it,
// behind it or ahead of it (`--only engines`).
// 7. What the traffic of a ring all-reduce of two ranks takes, without a wait in it: no ring on as many blocks takes less.
// Both GPUs do the same at once. Medians. One process; peer access is needed.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host.h"
#include "kernels.cuh"
#include "pages.h"

namespace {

using namespace tutti::limits;

// The probe's (bench/gpu_probe/check.h) needs fmt, which nvcc cannot read.
void check(cudaError_t error, const char* what, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_limits: line %d: %s: %s\n", line, what, cudaGetErrorString(error));
  std::_Exit(2);
}
#define LIMITS_CHECK(call) check((call), #call, __LINE__)

constexpr int kNodes = 50;  // of a graph, as bench_gpu has them

// ---- host --------------------------------------------------------------------------------------------------------------------

struct Settings {
  std::array<int, 2> device = {0, 1};
  uint64_t bytes = uint64_t{128} << 20;
  int rounds = 15;
  bool hasHost = true;  ///< tables
  bool hasPages = true;
  bool hasClusters = true;
  bool hasEngines = true;
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

void printNodes(Machine& machine) {
  std::printf("A kernel in a graph of %d, microseconds (\"early\": launched before the one ahead of it has ended)\n\n", kNodes);
  std::printf("| blocks x threads | nothing | nothing, early | exchange of a flag | exchange, early |\n|---:|---:|---:|---:|---:|\n");
  constexpr std::array<std::array<int, 2>, 4> kShapes = {{{1, kFewThreads}, {1, kThreads}, {16, kThreads}, {64, kThreads}}};
  for (const auto& [blocks, threads] : kShapes) {
    std::printf("| %d x %d |", blocks, threads);
    for (const bool exchanges : {false, true}) {
      for (const bool isEarly : {false, true}) {
        const double us = machine.graphUs([&](const Gpu& own, const Gpu& peer) {
          if (exchanges) {
            launch(exchangeKernel, {blocks, threads, 0, isEarly}, own.stream, own.flags, peer.flags);
          } else {
            launch(emptyKernel, {blocks, threads, 0, isEarly}, own.stream);
          }
        });
        std::printf(" %.2f |", us);
      }
    }
    std::printf("\n");
  }
}

template <Plain kWhat>
double plainUs(Machine& machine, int blocks, bool isOneWay = false, int clusterBlocks = 1) {
  const auto issue = [&](const Gpu& own, const Gpu&) {
    launch(plainKernel<kWhat>, {blocks, kThreads, 0, false, clusterBlocks}, own.stream, own.memory, ~uint64_t{0});
  };
  return machine.timeUs(issue, isOneWay);
}
template <Bulk kWhat>
double bulkUs(Machine& machine, int blocks) {
  for (const int device : machine.settings().device) {
    LIMITS_CHECK(cudaSetDevice(device));
    LIMITS_CHECK(cudaFuncSetAttribute(bulkKernel<kWhat>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(BulkShared)));
  }
  return machine.timeUs([&](const Gpu& own, const Gpu&) {
    launch(bulkKernel<kWhat>, {blocks, kFewThreads, sizeof(BulkShared)}, own.stream, own.memory);
  });
}

template <bool kIsSerial, bool kPosts>
double leastUs(Machine& machine, int threads) {
  int call = 0;
  return machine.graphUs([&](const Gpu& own, const Gpu& peer) {
    const uint64_t at = static_cast<uint64_t>(call++ % kNodes) * 64;  // vectors: another line for every call
    const LeastCall least{
        own.flags,     own.memory.slots, peer.memory.slots, &own.memory.source[at].word[0], &own.memory.target[at].word[0],
        own.flags + 1, peer.flags + 1};
    launch(leastKernel<kIsSerial, kPosts>, {1, threads, 0, true}, own.stream, least);
  });
}
void printLeast(Machine& machine) {
  for (Gpu& gpu : machine.gpus()) {
    LIMITS_CHECK(cudaSetDevice(gpu.device));
    LIMITS_CHECK(cudaMemset(gpu.flags, 0, sizeof(Flag) * 2));
    LIMITS_CHECK(cudaDeviceSynchronize());
  }
  std::printf("\nThe least that an all-reduce of 8 bytes does, in such a graph, early, microseconds\n\n");
  std::printf("| threads | loads side by side | one after the other | side by side, and a post |\n|---:|---:|---:|---:|\n");
  for (const int threads : {32, 64, 512}) {
    const double aside = leastUs<false, false>(machine, threads);
    const double serial = leastUs<true, false>(machine, threads);
    std::printf("| %d | %.2f | %.2f | %.2f |\n", threads, aside, serial, leastUs<false, true>(machine, threads));
  }
}

void printRates(Machine& machine) {
  const uint64_t bytes = machine.settings().bytes;
  const auto rate = [&](double us) { std::printf(" %.0f |", static_cast<double>(bytes) / us / 1e3); };
  std::printf("\nGB/s of each GPU by blocks, %llu MiB, both at once; \"ring\": microseconds of an all-reduce's traffic\n\n",
              static_cast<unsigned long long>(bytes >> 20));
  std::printf(
      "| blocks | load | load peer | store | store peer | copy | push | pull | push and copy | bulk load | bulk load peer "
      "| bulk store | bulk store peer | bulk copy | bulk push | push, one way | pull, one way | ring, us |\n|");
  for (int i = 0; i < 18; ++i) std::printf("---:|");
  std::printf("\n");
  for (const int blocks : {1, 2, 4, 8, 12, 16, 24, 32, 64, 128}) {
    std::printf("| %d |", blocks);
    rate(plainUs<Plain::Load>(machine, blocks));
    rate(plainUs<Plain::LoadPeer>(machine, blocks));
    rate(plainUs<Plain::Store>(machine, blocks));
    rate(plainUs<Plain::StorePeer>(machine, blocks));
    rate(plainUs<Plain::Copy>(machine, blocks));
    rate(plainUs<Plain::Push>(machine, blocks));
    rate(plainUs<Plain::Pull>(machine, blocks));
    rate(plainUs<Plain::PushAndCopy>(machine, blocks));
    rate(bulkUs<Bulk::Load>(machine, blocks));
    rate(bulkUs<Bulk::LoadPeer>(machine, blocks));
    rate(bulkUs<Bulk::Store>(machine, blocks));
    rate(bulkUs<Bulk::StorePeer>(machine, blocks));
    rate(bulkUs<Bulk::Copy>(machine, blocks));
    rate(bulkUs<Bulk::Push>(machine, blocks));
    rate(plainUs<Plain::Push>(machine, blocks, true));
    rate(plainUs<Plain::Pull>(machine, blocks, true));
    std::printf(" %.0f |\n", plainUs<Plain::Ring>(machine, blocks));
    std::fflush(stdout);
  }
}

/// GB/s by blocks; a column for each size of clusters.
template <Plain kWhat>
void printClusters(Machine& machine, const char* what, bool isOneWay) {
  constexpr int kSizes[] = {1, 2, 4, 8};
  std::printf("\nGB/s of each GPU by blocks in clusters, %llu MiB, %s\n\n| blocks |",
              static_cast<unsigned long long>(machine.settings().bytes >> 20), what);
  for (const int size : kSizes) std::printf(size == 1 ? " single blocks |" : " clusters of %d |", size);
  std::printf("\n|---:|---:|---:|---:|---:|\n");
  for (const int blocks : {8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64}) {
    std::printf("| %d |", blocks);
    for (const int size : kSizes) {
      if (blocks % size != 0) {
        std::printf(" |");
        continue;
      }
      std::printf(" %.0f |", static_cast<double>(machine.settings().bytes) / plainUs<kWhat>(machine, blocks, isOneWay, size) / 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}
void printClusters(Machine& machine) {
  int major = 0;
  LIMITS_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, machine.settings().device[0]));
  if (major < 9) {
    std::printf("\nNo clusters: this GPU is older than sm_90\n");
    return;
  }
  printClusters<Plain::Push>(machine, "stored to the peer, one way", true);
  printClusters<Plain::PushAndCopy>(machine, "stored to the peer, one way, and to own memory", true);
  printClusters<Plain::Push>(machine, "stored to the peer, both ways", false);
}

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

void printEngines(Machine& machine) {
  std::array<Aside, 2> asides{};
  for (int i = 0; i < 2; ++i) {
    LIMITS_CHECK(cudaSetDevice(machine.gpus()[i].device));
    LIMITS_CHECK(cudaStreamCreateWithFlags(&asides[i].stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&asides[i].forked, &asides[i].done}) LIMITS_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
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
      {"beside, as a plane", besides(
                                 [&](const Gpu& own, const Gpu&, cudaStream_t stream) {
                                   constexpr uint64_t kPitch = 4096;
                                   LIMITS_CHECK(cudaMemcpy2DAsync(own.memory.target, kPitch, own.memory.source, kPitch, kPitch,
                                                                  bytes / kPitch, cudaMemcpyDefault, stream));
                                 },
                                 push)},
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

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "gpu_limits: %s; usage: gpu_limits [--devices A,B] [--bytes N] [--rounds N] [--only host|pages|clusters|engines]\n",
               why.c_str());
  std::exit(2);
}

uint64_t number(const std::string& name, const char* text, uint64_t least, uint64_t most) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 10);
  if (end == text || *end != 0 || value < least || value > most)
    refuse(name + " " + text + ": a number of " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) refuse(name + ": no value");
    const char* const value = argv[i + 1];
    if (name == "--bytes") {
      settings.bytes = number(name, value, uint64_t{16} << 20, uint64_t{4} << 30) >> 20 << 20;
    } else if (name == "--rounds") {
      settings.rounds = static_cast<int>(number(name, value, 1, 10000));
    } else if (name == "--devices") {
      const char* const comma = std::strchr(value, ',');
      if (comma == nullptr) refuse("--devices " + std::string(value) + ": two numbers, such as 0,1");
      settings.device = {static_cast<int>(number(name, std::string(value, comma).c_str(), 0, 63)),
                         static_cast<int>(number(name, comma + 1, 0, 63))};
    } else if (name == "--only") {
      settings.hasHost = std::strcmp(value, "host") == 0;
      settings.hasPages = std::strcmp(value, "pages") == 0;
      settings.hasClusters = std::strcmp(value, "clusters") == 0;
      settings.hasEngines = std::strcmp(value, "engines") == 0;
      settings.hasRest = false;
      if (!settings.hasHost && !settings.hasPages && !settings.hasClusters && !settings.hasEngines)
        refuse("--only " + std::string(value) + ": host, pages, clusters, or engines");
    } else {
      refuse("unknown option " + name);
    }
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  int present = 0;
  LIMITS_CHECK(cudaGetDeviceCount(&present));
  if (settings.device[0] == settings.device[1] || std::max(settings.device[0], settings.device[1]) >= present)
    refuse("two different devices of " + std::to_string(present) + " are needed");
  Machine machine(settings);
  LIMITS_CHECK(cudaSetDevice(settings.device[0]));
  if (settings.hasHost) printHostCalls(machine.gpus()[0].stream);
  if (settings.hasPages) printPages(settings.device);
  if (settings.hasClusters) printClusters(machine);
  if (settings.hasEngines) printEngines(machine);
  if (!settings.hasRest) return 0;
  printNodes(machine);
  printLeast(machine);
  printRates(machine);
}
