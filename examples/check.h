// What an example does when a call fails: it says which, and why, and ends.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "nccl.h"

inline void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", call, ncclGetErrorString(result), ncclGetLastError(nullptr));
  std::exit(1);
}

inline void expect(bool isTrue, const char* what) {
  if (isTrue) return;
  std::fprintf(stderr, "wrong result: %s\n", what);
  std::exit(1);
}

#define CHECK(call) check((call), #call)
