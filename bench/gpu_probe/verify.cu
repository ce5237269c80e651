#include <atomic>
#include <cstring>
#include <thread>

#include "algo/oneshot.h"
#include "algo/ring.h"
#include "check.h"
#include "reference.h"
#include "verify.h"

namespace tutti::probe {
namespace {

constexpr unsigned char kPoison = 0xa5;

__global__ void fillInputs(std::byte* buffer, DataType type, uint64_t seed, int32_t rank, uint64_t count) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint32_t bits = inputBits(type, seed, rank, i);
    if (type == DataType::F32) {
      reinterpret_cast<uint32_t*>(buffer)[i] = bits;
    } else {
      reinterpret_cast<uint16_t*>(buffer)[i] = static_cast<uint16_t>(bits);
    }
  }
}

void prepare(const Fabric& fabric, const Job& job, uint64_t seed) {
  const uint64_t offset = job.offsetElems * sizeOf(job.type);
  for (int32_t r = 0; r < fabric.ranks(); ++r) {
    const Fabric::Member& m = fabric.member(r);
    PROBE_CHECK(cudaSetDevice(m.device));
    const uint64_t whole = offset + job.bytes() + 2 * Fabric::kGuardBytes;
    PROBE_CHECK(cudaMemsetAsync(m.out - Fabric::kGuardBytes, kPoison, whole, m.stream));
    fillInputs<<<512, 256, 0, m.stream>>>((job.inPlace ? m.out : m.in) + offset, job.type, seed, r, job.count);
    PROBE_CHECK(cudaGetLastError());
  }
  for (int32_t r = 0; r < fabric.ranks(); ++r) PROBE_CHECK(cudaStreamSynchronize(fabric.member(r).stream));
}

uint32_t expected(const Fabric& fabric, const Job& job, uint64_t seed, uint64_t index, uint64_t chunkElems) {
  if (job.algo == Algo::Ring) return expectedBits<algo::RingAllReduce>(job.type, seed, index, chunkElems, fabric.hostViews());
  return expectedBits<algo::OneShotAllReduce>(job.type, seed, index, chunkElems, fabric.hostViews());
}

/// Elements of [begin, end) that differ from what the host expects, over all ranks.
uint64_t compare(const Fabric& fabric, const Job& job, uint64_t seed, const std::vector<std::vector<std::byte>>& got, uint64_t begin,
                 uint64_t end, std::atomic<int>& told) {
  const uint64_t chunkElems = job.geometry(fabric.ranks()).chunkElems;
  const uint32_t size = sizeOf(job.type);
  const uint64_t first = Fabric::kGuardBytes + job.offsetElems * size;
  uint64_t wrong = 0;
  for (uint64_t i = begin; i < end; ++i) {
    const uint32_t want = expected(fabric, job, seed, i, chunkElems);
    for (int32_t r = 0; r < fabric.ranks(); ++r) {
      uint32_t bits = 0;
      std::memcpy(&bits, got[r].data() + first + i * size, size);
      if (bits == want) continue;
      ++wrong;
      if (told.fetch_add(1) < 4)
        std::fprintf(stderr, "  rank %d element %llu of %llu: got %08x, expected %08x\n", r, static_cast<unsigned long long>(i),
                     static_cast<unsigned long long>(job.count), bits, want);
    }
  }
  return wrong;
}

uint64_t countOverwritten(const Job& job, const std::vector<std::byte>& got) {
  const uint64_t first = Fabric::kGuardBytes + job.offsetElems * sizeOf(job.type);
  uint64_t changed = 0;
  for (uint64_t i = 0; i < got.size(); ++i) {
    if (i == first) i += job.bytes();
    if (i < got.size() && got[i] != std::byte{kPoison}) ++changed;
  }
  return changed;
}

}  // namespace

VerifyResult verify(Fabric& fabric, const Job& job, uint64_t seed, bool graph) {
  VerifyResult result;
  prepare(fabric, job, seed);
  result.ran = Runner(fabric).runOnce(job, graph);
  if (!result.ran) return result;

  std::vector<std::vector<std::byte>> got(fabric.ranks());
  const uint64_t whole = job.offsetElems * sizeOf(job.type) + job.bytes() + 2 * Fabric::kGuardBytes;
  for (int32_t r = 0; r < fabric.ranks(); ++r) {
    got[r].resize(whole);
    PROBE_CHECK(cudaSetDevice(fabric.member(r).device));
    PROBE_CHECK(cudaMemcpy(got[r].data(), fabric.member(r).out - Fabric::kGuardBytes, whole, cudaMemcpyDeviceToHost));
    result.overwritten += countOverwritten(job, got[r]);
  }

  const uint64_t threads = job.count < 100000 ? 1 : std::thread::hardware_concurrency();
  const uint64_t share = (job.count + threads - 1) / threads;
  std::atomic<uint64_t> wrong = 0;
  std::atomic<int> told = 0;
  {
    std::vector<std::jthread> workers;
    for (uint64_t t = 0; t < threads; ++t) {
      workers.emplace_back(
          [&, t] { wrong += compare(fabric, job, seed, got, std::min(t * share, job.count), std::min((t + 1) * share, job.count), told); });
    }
  }
  result.wrong = wrong;
  return result;
}

}  // namespace tutti::probe
