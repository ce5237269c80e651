// The kernels of bench_gpu: inputs, their comparison, a wait, a product. nvcc sees these alone, the rest of the program is ordinary C++.
//
// Any thread whose device is current. Each only puts work onto the stream; whether that went well, cudaGetLastError tells.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu/draws.h"

namespace tutti::bench::gpu {

void launchFill(std::byte* memory, uint64_t count, const CodeView& codes, uint64_t seed, int rank, cudaStream_t stream);
/// Adds the number of wrong elements to found[0], and takes the index of the first into found[1], which begins with the largest number.
void launchCompare(const std::byte* memory, uint64_t count, const CodeView& codes, uint64_t seed, const Expectation& expectation,
                   unsigned long long* found, cudaStream_t stream);
/// One thread that looks at the clock for so long.
void launchDelay(uint64_t ns, cudaStream_t stream);
/// c = a x b, square matrices of bfloat16 by rows; `size` is a multiple of 16. No fast one: something that computes where there is no
/// cuBLAS.
void launchProduct(const void* a, const void* b, void* c, int size, cudaStream_t stream);

}  // namespace tutti::bench::gpu
