#include "pages.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <vector>

namespace tutti::limits {
namespace {

constexpr int kPages = 64;
constexpr int kTurns = 200;
constexpr int kSkipped = 8;  // of them, until both kernels run
constexpr int kWordsPerPage = 1024;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_limits: %s: %s\n", what, cudaGetErrorString(error));
  std::_Exit(2);
}

/// An atomic is carried out where its line is at home, so it tells how far that is; loads may be answered by a copy that is nearer.
__device__ uint32_t leastCycles(uint32_t* word) {
  uint32_t least = UINT32_MAX;
  for (int i = 0; i < 6; ++i) {
    uint32_t value = 0;
    const uint32_t began = clock();
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 0;" : "=r"(value) : "l"(word) : "memory");
    if (value == UINT32_MAX) __trap();  // the clock is read once the value is there
    const uint32_t took = clock() - began;
    if (i > 0) least = min(least, took);
  }
  return least;
}
__global__ void timeAtomics(uint32_t* memory, uint32_t* cycles) {
  for (int page = 0; page < kPages; ++page) cycles[page] = leastCycles(memory + page * kWordsPerPage);
}
/// Whether the block is in the half of `near` and not in that of `far`.
__global__ void tellHalf(uint32_t* near, uint32_t* far, uint32_t* isNear) {
  if (threadIdx.x == 0) isNear[blockIdx.x] = leastCycles(near) < leastCycles(far) ? 1 : 0;
}

__global__ void passFlag(const uint32_t* own, uint32_t* peers, bool begins, uint32_t first, uint64_t* ns) {
  uint64_t began = 0, ended = 0;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    if (turn == kSkipped) asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
    const uint32_t flag = first + turn;
    uint32_t seen = flag - 1;
    if (begins) asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(peers), "r"(flag) : "memory");
    while (seen != flag) asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(own) : "memory");
    if (!begins) asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(peers), "r"(flag) : "memory");
  }
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ended));
  *ns = (ended - began) / (kTurns - kSkipped);
}

struct Side {
  int device = 0;
  cudaStream_t stream = nullptr;
  uint32_t* memory = nullptr;
  uint32_t* cycles = nullptr;
  uint64_t* ns = nullptr;
  std::vector<uint32_t> seen = std::vector<uint32_t>(kPages);
  int near = 0, far = 0;  ///< pages

  explicit Side(int number) : device(number) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    check(cudaMalloc(&memory, uint64_t{kPages} * kWordsPerPage * sizeof *memory), "memory");
    check(cudaMemset(memory, 0, uint64_t{kPages} * kWordsPerPage * sizeof *memory), "memory");
    check(cudaMalloc(&cycles, kPages * sizeof *cycles), "memory");
    check(cudaMalloc(&ns, sizeof *ns), "memory");
    check(cudaDeviceSynchronize(), "memory");
    timeAtomics<<<1, 1, 0, stream>>>(memory, cycles);
    check(cudaStreamSynchronize(stream), "atomics");
    check(cudaMemcpy(seen.data(), cycles, kPages * sizeof *cycles, cudaMemcpyDeviceToHost), "cycles");
    near = static_cast<int>(std::min_element(seen.begin(), seen.end()) - seen.begin());
    far = static_cast<int>(std::max_element(seen.begin(), seen.end()) - seen.begin());
  }
};

/// There and back, with the flags on these pages of either: the least of several tries.
uint64_t roundTripNs(Side& a, Side& b, int pageOfA, int pageOfB, uint32_t& first) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 5; ++i, first += kTurns + 1) {
    for (const auto& [side, peer, page, peersPage] : {std::tuple(&a, &b, pageOfA, pageOfB), std::tuple(&b, &a, pageOfB, pageOfA)}) {
      check(cudaSetDevice(side->device), "cudaSetDevice");
      passFlag<<<1, 1, 0, side->stream>>>(side->memory + page * kWordsPerPage, peer->memory + peersPage * kWordsPerPage, side == &a, first,
                                          side->ns);
    }
    for (Side* side : {&b, &a}) {
      check(cudaSetDevice(side->device), "cudaSetDevice");
      check(cudaStreamSynchronize(side->stream), "flags");
    }
    uint64_t ns = 0;
    check(cudaMemcpy(&ns, a.ns, sizeof ns, cudaMemcpyDeviceToHost), "flags");
    least = std::min(least, ns);
  }
  return least;
}

void printHalves(const Side& side, int blocks, int threads) {
  static_assert(kPages >= 64);
  check(cudaSetDevice(side.device), "cudaSetDevice");
  tellHalf<<<blocks, threads, 0, side.stream>>>(side.memory + side.near * kWordsPerPage, side.memory + side.far * kWordsPerPage,
                                                side.cycles);
  check(cudaStreamSynchronize(side.stream), "halves");
  std::vector<uint32_t> halves(static_cast<size_t>(blocks));
  check(cudaMemcpy(halves.data(), side.cycles, halves.size() * sizeof halves[0], cudaMemcpyDeviceToHost), "halves");
  std::printf("GPU %d, %3d threads:  ", side.device, threads);
  for (const uint32_t isNear : halves) std::printf("%c", isNear != 0 ? 'x' : '.');
  std::printf("\n");
}

}  // namespace

void printPages(const std::array<int, 2>& devices) {
  Side a(devices[0]), b(devices[1]);
  std::printf("\nCycles of an atomic from the first multiprocessor, pages of 4 KiB in a row\n\n");
  for (const Side* side : {&a, &b}) {
    std::printf("GPU %d:", side->device);
    for (const uint32_t cycles : side->seen) std::printf(" %u", cycles);
    std::printf("\n");
  }
  std::printf("\nBlocks of a grid that are in the half of the first multiprocessor (x), by threads of a block\n\n");
  for (Side* side : {&a, &b})
    for (const int threads : {64, 512})
      for (const int blocks : {8, 16, 32, 64}) printHalves(*side, blocks, threads);
  uint32_t first = 1;
  std::printf("\nA flag to the peer and back, ns, by the pages that the flags lie on\n\n| | near for GPU %d | far |\n|---|---:|---:|\n",
              b.device);
  for (const bool isNear : {true, false}) {
    const int page = isNear ? a.near : a.far;
    std::printf("| %s GPU %d | %llu |", isNear ? "near for" : "far from", a.device,
                static_cast<unsigned long long>(roundTripNs(a, b, page, b.near, first)));
    std::printf(" %llu |\n", static_cast<unsigned long long>(roundTripNs(a, b, page, b.far, first)));
  }
}

}  // namespace tutti::limits
