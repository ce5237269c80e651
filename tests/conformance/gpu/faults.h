// What tests of faults on GPUs share. Any thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "config/params.h"
#include "conformance/gpu/fake_gpus.h"
#include "conformance/harness.h"
#include "faults/process_ranks.h"
#include "tutti.h"

namespace tutti::conformance {

/// Numbers of the environment are read once; a test that changes one begins and ends anew.
class ScopedSetting {
 public:
  ScopedSetting(const char* name, const std::string& value) : env_(std::make_unique<ScopedEnv>(name, value)) { config::resetForTest(); }
  ~ScopedSetting() {
    env_.reset();
    config::resetForTest();
  }
  ScopedSetting(const ScopedSetting&) = delete;
  ScopedSetting& operator=(const ScopedSetting&) = delete;

 private:
  std::unique_ptr<ScopedEnv> env_;
};

/// Ones in memory of the GPU that is current.
class GpuInts {
 public:
  explicit GpuInts(size_t count) : count_(count) {
    EXPECT_EQ(ncclMemAlloc(&memory_, count * sizeof(int)), ncclSuccess) << ncclGetLastError(nullptr);
    for (size_t i = 0; i < count; ++i) data()[i] = 1;
  }
  ~GpuInts() { EXPECT_EQ(ncclMemFree(memory_), ncclSuccess); }
  GpuInts(const GpuInts&) = delete;
  GpuInts& operator=(const GpuInts&) = delete;
  int* data() const { return static_cast<int*>(memory_); }
  size_t count() const { return count_; }

 private:
  void* memory_ = nullptr;
  size_t count_;
};

inline ncclResult_t sum(const GpuInts& data, size_t count, ncclComm_t comm, cudaStream_t stream = nullptr) {
  return ncclAllReduce(data.data(), data.data(), count, ncclInt, ncclSum, comm, stream);
}

/// "host" of tuttiCommGetMemory, and what is on the GPU beside it.
inline std::pair<uint64_t, uint64_t> usage(ncclComm_t comm) {
  char text[512] = {};
  EXPECT_EQ(tuttiCommGetMemory(comm, text, sizeof text, nullptr), ncclSuccess);
  const auto number = [&](const char* key) {
    const char* const at = std::strstr(text, key);
    return at == nullptr ? uint64_t{0} : std::strtoull(at + std::strlen(key), nullptr, 10);
  };
  return {number("\"host\":"), number("\"pipes\":") + number("\"windows\":")};
}

inline ncclResult_t stateOf(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

/// Asks until it is not in progress any more, or so long: set-ups are driven by those who ask.
inline ncclResult_t settle(ncclComm_t comm, double seconds) {
  ncclResult_t state = ncclInProgress;
  for (const faults::Stopwatch watch; state == ncclInProgress && watch.seconds() < seconds;) state = stateOf(comm);
  return state;
}

/// Asks until there is an error, or so long.
inline ncclResult_t awaitError(ncclComm_t comm, double seconds) {
  ncclResult_t state = ncclSuccess;
  for (const faults::Stopwatch watch; watch.seconds() < seconds;) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    if (state != ncclSuccess && state != ncclInProgress) return state;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return state;
}

}  // namespace tutti::conformance
