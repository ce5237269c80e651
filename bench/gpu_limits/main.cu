// What two GPUs of this machine can do at best, by kernels that do nothing else: the floors beside which docs/performance/gpu.md puts
// what the library takes.
//
// usage: gpu_limits [--devices A,B] [--bytes N] [--rounds N] [--only host|pages|clusters|engines|links] [--json FILE]
//
// 1. What a kernel costs in a graph, and a kernel that exchanges a flag with the peer: no call whose result depends on a peer takes less.
// 2. What a number of blocks moves, by loads and stores and by the bulk copy engine, in own memory and to and from the peer.
// 3. What the processor takes for the calls of CUDA that a lone call makes (`--only host`: nothing but that).
// 4. How far the pages of a GPU's memory are from its multiprocessors, and what a flag on them costs (`--only pages`).
// 5. What a number of blocks sends to the peer where they are launched in clusters (`--only clusters`).
// 6. What copy engines take in a graph to the peer, by themselves, between kernels, in halves, and with a copy within the GPU beside it,
// behind it, ahead of it, in pieces or in rows; and which of these copies need no multiprocessor (`--only engines`).
// 7. What the traffic of a ring all-reduce of two ranks takes, without a wait in it: no ring on as many blocks takes less.
// 8. What the link carries at most, both ways: by stores and loads of any number of blocks, and by copy engines (`--only links`; --json
// keeps it as a line {"limits": {"storesGBps": …, "loadsGBps": …, "enginesGBps": …, "bytes": …}} for bench/gpu/goals).
// Both GPUs do the same at once. Medians. One process; peer access is needed.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "engines.h"
#include "host.h"
#include "machine.cuh"
#include "pages.h"

namespace {

using namespace tutti::limits;

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr,
               "gpu_limits: %s; usage: gpu_limits [--devices A,B] [--bytes N] [--rounds N] [--only host|pages|clusters|engines|links] "
               "[--json FILE]\n",
               why.c_str());
  std::exit(2);
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

/// GB/s of the best number of blocks, alone and in clusters.
template <Plain kWhat>
double bestRate(Machine& machine, bool hasClusters) {
  double leastUs = std::numeric_limits<double>::infinity();
  for (const int blocks : {8, 16, 24, 32, 40, 48, 64, 96})
    for (const int size : {1, 4, 8})
      if (size == 1 || hasClusters) leastUs = std::min(leastUs, plainUs<kWhat>(machine, blocks, false, size));
  return static_cast<double>(machine.settings().bytes) / leastUs / 1e3;
}

void printLinks(Machine& machine) {
  int major = 0;
  LIMITS_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, machine.settings().device[0]));
  const uint64_t bytes = machine.settings().bytes;
  const double stores = bestRate<Plain::Push>(machine, major >= 9);
  const double loads = bestRate<Plain::Pull>(machine, major >= 9);
  const double us = machine.timeUs([bytes](const Gpu& own, const Gpu& peer) {
    LIMITS_CHECK(cudaMemcpyAsync(peer.memory.slots, own.memory.source, bytes, cudaMemcpyDefault, own.stream));
  });
  const double engines = static_cast<double>(bytes) / us / 1e3;
  std::printf("\nGB/s of each GPU to the other, both at once, %llu MiB, the best of 8 to 96 blocks, alone and in clusters\n\n"
              "| stores | loads | copy engines |\n|---:|---:|---:|\n| %.0f | %.0f | %.0f |\n",
              static_cast<unsigned long long>(bytes >> 20), stores, loads, engines);
  if (machine.settings().json.empty()) return;
  std::FILE* const file = std::fopen(machine.settings().json.c_str(), "w");
  if (file == nullptr) refuse("cannot write " + machine.settings().json);
  std::fprintf(file, "{\"limits\": {\"storesGBps\": %.1f, \"loadsGBps\": %.1f, \"enginesGBps\": %.1f, \"bytes\": %llu}}\n", stores, loads,
               engines, static_cast<unsigned long long>(bytes));
  (void)std::fclose(file);
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
      settings.hasLinks = std::strcmp(value, "links") == 0;
      settings.hasRest = false;
      if (!settings.hasHost && !settings.hasPages && !settings.hasClusters && !settings.hasEngines && !settings.hasLinks)
        refuse("--only " + std::string(value) + ": host, pages, clusters, engines, or links");
    } else if (name == "--json") {
      settings.json = value;
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
  if (settings.hasLinks) printLinks(machine);
  if (!settings.hasRest) return 0;
  printNodes(machine);
  printLeast(machine);
  printRates(machine);
}
