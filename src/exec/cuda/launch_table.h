// Kernels as the driver knows them, so that a launch looks nothing up: the runtime takes some 0.2 to 0.4 us longer
// (docs/decisions/0052).
//
// Owner: whoever launches (launch.cc: makeExecutor). Any thread; a kernel is added before it is launched, with its context current both
// times. What the current context has no entry for is launched by the runtime, and so is everything where the driver lacks the function.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

struct CUfunc_st;  // NOLINT(readability-identifier-naming)

namespace tutti::exec::cuda {

class LaunchTable {
 public:
  LaunchTable() = default;
  LaunchTable(const LaunchTable&) = delete;
  LaunchTable& operator=(const LaunchTable&) = delete;

  /// `function`: as the runtime knows it. It has been loaded on the current device.
  void add(const void* function);
  /// As cudaLaunchKernelExC.
  cudaError_t launch(const cudaLaunchConfig_t& config, const void* function, void** arguments) const;

 private:
  struct Entry {
    const void* function = nullptr;
    const void* context = nullptr;
    std::atomic<CUfunc_st*> handle = nullptr;  ///< set last; null: the entry is free. None is ever changed or freed
  };
  static constexpr size_t kEntries = 4096;  ///< the kernels of some twenty devices; a power of two

  /// Calls visit(entry, handle) for the entries at which the kernel may be, up to the first free one, whose handle is null, until it
  /// returns true.
  template <class Entries, class Visit>
  static void walk(Entries& entries, const void* function, const void* context, Visit&& visit);
  CUfunc_st* find(const void* function, const void* context) const;

  std::array<Entry, kEntries> entries_;
  std::mutex adding_;
};

}  // namespace tutti::exec::cuda
