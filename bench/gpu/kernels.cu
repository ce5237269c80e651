#include "gpu/kernels.h"

#include <cuda_bf16.h>

#include <type_traits>

namespace tutti::bench::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 528;  // some for every SM of the largest GPUs

template <class Element>
__global__ void fillKernel(Element* memory, uint64_t count, CodeView codes, uint64_t seed, int rank) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    memory[i] = static_cast<Element>(inputCode(codes, seed, rank, i));
}

template <class Element>
__global__ void compareKernel(const Element* memory, uint64_t count, CodeView codes, uint64_t seed, Expectation expectation,
                              unsigned long long* found) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    if (memory[i] == static_cast<Element>(expectedCode(codes, seed, expectation, i))) continue;
    atomicAdd(found, 1ull);
    atomicMin(found + 1, static_cast<unsigned long long>(i));
  }
}

__device__ uint64_t nowNs() {
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void delayKernel(uint64_t ns) {
  const uint64_t end = nowNs() + ns;
  while (nowNs() < end) {
  }
}

/// A tile of 16 x 16 a block.
__global__ void productKernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int size) {
  constexpr int kTile = 16;
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const int row = static_cast<int>(blockIdx.y) * kTile + static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int from = 0; from < size; from += kTile) {
    left[threadIdx.y][threadIdx.x] = __bfloat162float(a[row * size + from + static_cast<int>(threadIdx.x)]);
    right[threadIdx.y][threadIdx.x] = __bfloat162float(b[(from + static_cast<int>(threadIdx.y)) * size + column]);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  c[row * size + column] = __float2bfloat16(sum);
}

/// Calls visit(Element*) with an unsigned type of that size.
template <class Visit>
void withElement(uint32_t bytes, Visit&& visit) {
  switch (bytes) {
    case 1: return visit(static_cast<uint8_t*>(nullptr));
    case 2: return visit(static_cast<uint16_t*>(nullptr));
    case 4: return visit(static_cast<uint32_t*>(nullptr));
    default: return visit(static_cast<uint64_t*>(nullptr));
  }
}

}  // namespace

void launchFill(std::byte* memory, uint64_t count, const CodeView& codes, uint64_t seed, int rank, cudaStream_t stream) {
  withElement(codes.elementBytes, [&](auto* element) {
    fillKernel<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<decltype(element)>(memory), count, codes, seed, rank);
  });
}

void launchCompare(const std::byte* memory, uint64_t count, const CodeView& codes, uint64_t seed, const Expectation& expectation,
                   unsigned long long* found, cudaStream_t stream) {
  withElement(codes.elementBytes, [&](auto* element) {
    using Element = std::remove_pointer_t<decltype(element)>;
    compareKernel<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<const Element*>(memory), count, codes, seed, expectation, found);
  });
}

void launchDelay(uint64_t ns, cudaStream_t stream) { delayKernel<<<1, 1, 0, stream>>>(ns); }

void launchProduct(const void* a, const void* b, void* c, int size, cudaStream_t stream) {
  const unsigned tiles = static_cast<unsigned>(size) / 16;
  productKernel<<<dim3(tiles, tiles), dim3(16, 16), 0, stream>>>(static_cast<const __nv_bfloat16*>(a), static_cast<const __nv_bfloat16*>(b),
                                                                 static_cast<__nv_bfloat16*>(c), size);
}

}  // namespace tutti::bench::gpu
