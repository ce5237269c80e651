// GPUs of a process that are none: the library under test opens a fake driver and kernels that run on the host.
//
// Owner: the test; one at a time, made before the library is used and closed when nothing of it is left. Any thread may choose a GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "driver/cuda/fake.h"
#include "exec/cuda/launch.h"

namespace tutti::conformance {

class FakeGpus {
 public:
  explicit FakeGpus(int count) : FakeGpus(driver::cuda::FakeOptions{.devices = count}) {}
  /// What the library launches passes through what `dress` makes of the kernels that run on the host.
  using Dress = std::function<std::unique_ptr<exec::cuda::Executor>(std::unique_ptr<exec::cuda::Executor> kernels)>;
  explicit FakeGpus(const driver::cuda::FakeOptions& options, Dress dress = nullptr);
  /// The library lets go of all; an expectation of the test that nothing is left.
  ~FakeGpus();
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  driver::cuda::FakeApi& driver() { return *fake_; }
  /// The same for a user with a driver::cuda::Driver of its own; this outlives it.
  std::unique_ptr<driver::cuda::Api> borrow();
  /// What lies on the GPUs, in words; all of it is the library's or ncclMemAlloc's.
  std::string alive() const;
  /// A user's stream on the GPU that is current; NULL when the driver refuses.
  driver::cuda::Stream makeStream();

 private:
  std::unique_ptr<driver::cuda::FakeApi> fake_;
};

/// The GPU is this thread's current one for a scope, as cudaSetDevice would have it.
class UseGpu {
 public:
  UseGpu(FakeGpus& gpus, int device);
  ~UseGpu();
  UseGpu(const UseGpu&) = delete;
  UseGpu& operator=(const UseGpu&) = delete;

 private:
  driver::cuda::FakeApi& fake_;
  const int device_;
};

/// What a user does with cudaStreamSynchronize on a stream of the current GPU; NULL: its default one.
void synchronize(FakeGpus& gpus, driver::cuda::Stream stream = nullptr);

}  // namespace tutti::conformance
