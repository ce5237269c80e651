// Function qualifiers shared by every executor. Header-only; no state.
//
// TUTTI_HD marks a function that host code and CUDA kernels both call; under a host compiler it is plain `inline`.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HD __host__ __device__ __forceinline__
#else
#define TUTTI_HD inline
#endif
