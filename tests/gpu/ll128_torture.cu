// ll128_torture: whether 128 bytes that 8 threads of a warp store in one go reach a peer together, or in the order of their addresses.
//
//   ll128_torture [--seconds S] [--blocks N] [--devices D]
//
// The protocol of lines (exec/cuda/fold_lines.cuh) is right only where they do. Every two GPUs (or one with itself) exchange lines in both
// directions at once, many blocks and warps, each line checked as the protocol reads it: loaded whole until the flag is right, then every
// byte must be right. Delays are drawn at random on both sides, and other warps of the same blocks keep the links and caches busy. Exit
// status: 0 no line was torn, 1 one was, 2 an error, 3 a wait gave up. The first torn line is told.
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "exec/cuda/arch/memory.cuh"
#include "exec/cuda/arch/sync.cuh"

namespace {

using namespace tutti::exec::cuda;

constexpr int kWarps = 12;  // of a block: even ones send, odd ones receive, the last four make traffic
constexpr int kPairs = 4;
constexpr int kSlots = 16;
constexpr uint64_t kLimitNs = 3'000'000'000;

struct Report {
  unsigned long long lines;
  unsigned long long torn;
  unsigned long long gaveUp;
  unsigned long long flag;
  unsigned long long word;
};

struct Side {
  uint64_t* peerLines;  // [block][pair][slot][4 lines][16 words] in the peer's memory
  uint64_t* ownLines;
  uint64_t* peerFreed;  // [block][pair] in the peer's memory
  uint64_t* ownFreed;
  uint64_t* peerNoise;
  Report* report;
  uint64_t begin;  // number of the first round
  int rounds;
  uint64_t seed;
};

__device__ uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
__device__ void pause(uint64_t random) {
  if ((random & 7) != 0) return;
  __nanosleep(static_cast<unsigned>(random >> 8 & 0x3ff));
}

__device__ void send(const Side& s, int pair, int lane) {
  const uint64_t at = static_cast<uint64_t>(blockIdx.x) * kPairs + pair;
  const uint64_t limit = arch::globalTimerNs() + kLimitNs;
  for (int i = 0; i < s.rounds; ++i) {
    const uint64_t flag = s.begin + i + 1;
    while (flag > kSlots && arch::loadRelaxedSys(s.ownFreed + at * 16) + kSlots < flag) {
      if (arch::globalTimerNs() < limit) continue;
      atomicAdd(&s.report->gaveUp, 1ull);
      return;
    }
    __syncwarp();
    pause(mix(s.seed ^ (flag * 64 + at)));
    const uint64_t base = flag * 0x100000001b3u + at + lane / 8;
    arch::Words2 value{{mix(base + lane % 8 * 2), mix(base + lane % 8 * 2 + 1)}};
    if (lane % 8 == 7) value.word[1] = flag;
    arch::storeRelaxedSys(reinterpret_cast<arch::Words2*>(s.peerLines + (at * kSlots + flag % kSlots) * 64) + lane, value);
  }
}

__device__ void receive(const Side& s, int pair, int lane) {
  const uint64_t at = static_cast<uint64_t>(blockIdx.x) * kPairs + pair;
  const uint64_t limit = arch::globalTimerNs() + kLimitNs;
  for (int i = 0; i < s.rounds; ++i) {
    const uint64_t flag = s.begin + i + 1;
    const auto* line = reinterpret_cast<const arch::Words2*>(s.ownLines + (at * kSlots + flag % kSlots) * 64) + lane;
    arch::Words2 value;
    for (;;) {
      value = arch::loadRelaxedSys(line);
      const unsigned ready = __ballot_sync(0xffffffffu, lane % 8 != 7 || value.word[1] == flag);
      if (ready == 0xffffffffu) break;
      // Lines that are complete are checked as they are: what is read with the flag must be right, also if another line is late.
      if (__any_sync(0xffffffffu, arch::globalTimerNs() >= limit)) {
        if (lane == 0) atomicAdd(&s.report->gaveUp, 1ull);
        return;
      }
    }
    const uint64_t base = flag * 0x100000001b3u + at + lane / 8;
    const bool isRight = value.word[0] == mix(base + lane % 8 * 2) && (lane % 8 == 7 || value.word[1] == mix(base + lane % 8 * 2 + 1));
    if (!isRight && atomicAdd(&s.report->torn, 1ull) == 0) {
      s.report->flag = flag;
      s.report->word = static_cast<unsigned long long>(lane);
    }
    __syncwarp();
    pause(mix(s.seed ^ (flag * 64 + at + 32)));
    if (lane == 0) {
      arch::fenceAcqRelSys();
      arch::storeRelaxedSys(s.peerFreed + at * 16, flag);
    }
  }
  if (lane == 0) atomicAdd(&s.report->lines, 4ull * s.rounds);
}

__device__ void makeNoise(const Side& s, int lane) {
  uint64_t at = mix(s.seed + blockIdx.x * 64 + threadIdx.x);
  for (int i = 0; i < s.rounds; ++i) {
    at = mix(at);
    arch::storeWeak(reinterpret_cast<arch::Words2*>(s.peerNoise) + (at % (1 << 16)) * 32 + lane, {{at, at}});
    if ((at & 15) == 0) __nanosleep(200);
  }
}

__global__ void __launch_bounds__(kWarps * 32, 1) exchangeLines(Side s) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (warp >= 2 * kPairs) {
    makeNoise(s, lane);
  } else if (warp % 2 == 0) {
    send(s, warp / 2, lane);
  } else {
    receive(s, warp / 2, lane);
  }
}

void check(cudaError_t error, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "ll128_torture.cu:%d: %s\n", line, cudaGetErrorString(error));
  std::_Exit(2);
}
#define CHECK(call) check((call), __LINE__)

template <class T>
T* allocate(uint64_t count) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, count * sizeof(T)));
  CHECK(cudaMemset(p, 0, count * sizeof(T)));
  return static_cast<T*>(p);
}

struct Rank {
  int device;
  cudaStream_t stream;
  uint64_t* lines;
  uint64_t* freed;
  uint64_t* noise;
  Report* report;
};

Rank makeRank(int device, int blocks) {
  CHECK(cudaSetDevice(device));
  Rank r{device, nullptr, nullptr, nullptr, nullptr, nullptr};
  CHECK(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
  r.lines = allocate<uint64_t>(static_cast<uint64_t>(blocks) * kPairs * kSlots * 64);
  r.freed = allocate<uint64_t>(static_cast<uint64_t>(blocks) * kPairs * 16);
  r.noise = allocate<uint64_t>(uint64_t{1} << 22);
  r.report = allocate<Report>(1);
  CHECK(cudaDeviceSynchronize());
  return r;
}

/// Both directions between two ranks for some seconds; the status of the program.
int torture(int first, int second, int blocks, double seconds) {
  Rank ranks[2] = {makeRank(first, blocks), makeRank(second, blocks)};
  uint64_t begin = 0;
  constexpr int kRounds = 4000;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Report total{};
  while (std::chrono::steady_clock::now() < end && total.torn + total.gaveUp == 0) {
    for (int i = 0; i < 2; ++i) {
      const Rank& own = ranks[i];
      const Rank& peer = ranks[1 - i];
      CHECK(cudaSetDevice(own.device));
      exchangeLines<<<blocks, kWarps * 32, 0, own.stream>>>(
          Side{peer.lines, own.lines, peer.freed, own.freed, peer.noise, own.report, begin, kRounds, begin * 2 + static_cast<uint64_t>(i)});
      CHECK(cudaGetLastError());
    }
    begin += kRounds;
    total = {};
    for (const Rank& r : ranks) {
      CHECK(cudaSetDevice(r.device));
      CHECK(cudaStreamSynchronize(r.stream));
      Report report;
      CHECK(cudaMemcpy(&report, r.report, sizeof report, cudaMemcpyDeviceToHost));
      total.lines += report.lines;
      total.torn += report.torn;
      total.gaveUp += report.gaveUp;
      if (report.torn != 0) total.flag = report.flag, total.word = report.word;
    }
  }
  std::printf("ll128_torture: devices %d and %d, %d blocks, %.0f s: %llu lines, %llu torn, %llu waits gave up\n", first, second, blocks,
              seconds, total.lines, total.torn, total.gaveUp);
  if (total.torn != 0) std::printf("  first torn: round %llu, thread %llu of the warp\n", total.flag, total.word);
  std::fflush(stdout);
  return total.torn != 0 ? 1 : total.gaveUp != 0 ? 3 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 20;
  int blocks = 48;
  int present = 0;
  CHECK(cudaGetDeviceCount(&present));
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--blocks") == 0) blocks = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--devices") == 0) present = std::min(present, std::atoi(argv[i + 1]));
  }
  alarm(static_cast<unsigned>(seconds) + 60);
  for (int a = 0; a < present; ++a) {
    CHECK(cudaSetDevice(a));
    for (int b = 0; b < present; ++b)
      if (a != b) CHECK(cudaDeviceEnablePeerAccess(b, 0));
  }
  if (present == 1) return torture(0, 0, blocks / 2, seconds);
  const int pairs = present * (present - 1) / 2;
  int status = 0;
  for (int a = 0; a < present; ++a)
    for (int b = a + 1; b < present; ++b) status = std::max(status, torture(a, b, blocks, seconds / pairs));
  return status;
}
