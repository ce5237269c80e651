// Driver calls that fail one after the other, beneath whatever a communicator does: what is said of each, and what is left.
//
// Owner: the test, one at a time. The thread of the test.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/gpu/faults.h"
#include "driver/cuda/api.h"

namespace tutti::conformance {

/// The driver calls that have been made to fail.
class FailedCalls {
 public:
  void add(driver::cuda::Call call) { words_[static_cast<size_t>(call) / 32] |= 1u << (static_cast<size_t>(call) % 32); }
  bool has(driver::cuda::Call call) const { return (words_[static_cast<size_t>(call) / 32] >> (static_cast<size_t>(call) % 32) & 1) != 0; }
  /// As numbers of a child process (ProcessRanks), from `first` on.
  void note(faults::ProcessRanks::Self& self, int first) const {
    for (int w = 0; w < kWords; ++w) self.note(first + w, words_[w]);
  }
  void take(const faults::ProcessRanks& children, int child, int first) {
    for (int w = 0; w < kWords; ++w) words_[w] |= static_cast<uint32_t>(children.number(child, first + w));
  }

 private:
  static constexpr int kWords = 4;
  uint32_t words_[kWords] = {};
};

inline int64_t openDescriptors() {
  int64_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (folder != nullptr && readdir(folder) != nullptr) ++count;
  if (folder != nullptr) closedir(folder);
  return count;
}

/// Until the descriptors are as many as before, or for a while: those of services that end by themselves are open a moment longer.
inline void expectDescriptors(int64_t before, const std::string& when) {
  int64_t now = openDescriptors();
  for (const faults::Stopwatch watch; now > before && watch.seconds() < 3 * faults::kSlow; now = openDescriptors())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(now, before) << "descriptors are left: " << when;
}

/// Kernels that run on the host (HostKernels) ask the driver too, and have words of their own.
inline bool isTextOfFailure(const std::string& text) {
  return text.find("CUDA_ERROR_OUT_OF_MEMORY (2)") != std::string::npos || text.find("no context is current") != std::string::npos;
}

/// What has come of calls of which one of the driver failed.
inline void expectNamed(driver::cuda::Call failed, ncclResult_t result, const std::string& text, const std::string& when) {
  EXPECT_EQ(result, ncclUnhandledCudaError) << when << ": " << text;
  EXPECT_TRUE(isTextOfFailure(text)) << when << ": " << text;
  if (failed == driver::cuda::Call::ctxGetDevice && text.find("no context is current") != std::string::npos) return;
  EXPECT_NE(text.find(std::string(driver::cuda::symbolOf(failed)) + "("), std::string::npos) << when << ": " << text;
}

}  // namespace tutti::conformance
