// The probe's answer to an error it cannot go on after: say where, and leave.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "core/status.h"

namespace tutti::probe {

inline void check(cudaError_t error, const char* what, const char* file, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, cudaGetErrorString(error));
  std::_Exit(2);
}
inline void check(const Status& status, const char* what, const char* file, int line) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, status.text().c_str());
  std::_Exit(2);
}

}  // namespace tutti::probe

#define PROBE_CHECK(call) ::tutti::probe::check((call), #call, __FILE__, __LINE__)
