// The probe's answer to a CUDA error: say where, and leave.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace tutti::probe {

inline void check(cudaError_t error, const char* what, const char* file, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, cudaGetErrorString(error));
  std::_Exit(2);
}

}  // namespace tutti::probe

#define PROBE_CHECK(call) ::tutti::probe::check((call), #call, __FILE__, __LINE__)
