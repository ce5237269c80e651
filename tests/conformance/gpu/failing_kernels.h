// Kernels of which one cannot be launched, as when a device has fallen off its bus or a module does not load.
//
// Owner: comm::Devices; the plan outlives it. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "exec/cuda/launch.h"

namespace tutti::conformance {

/// Which launch of all devices fails; 0: none. Counted from the last set(), in the order in which they come.
class FailingLaunch {
 public:
  static constexpr const char* kText = "the launch that a test lets fail";

  void set(int64_t nth) {
    what_ = nullptr;
    left_ = nth;
  }
  /// What has failed: a function of exec::cuda::Executor; nullptr: nothing yet.
  const char* what() const { return what_; }

  Status count(const char* what) {
    if (left_.fetch_sub(1) != 1) return {};
    what_ = what;
    return {Code::UnhandledCudaError, kText};
  }

 private:
  std::atomic<int64_t> left_{0};
  std::atomic<const char*> what_{nullptr};
};

/// Does nothing for a launch that fails.
class FailingKernels final : public exec::cuda::Executor {
 public:
  FailingKernels(std::unique_ptr<exec::cuda::Executor> kernels, FailingLaunch& failing) : kernels_(std::move(kernels)), failing_(failing) {}

  Status load(exec::cuda::KernelUses& uses) override {
    TUTTI_TRY(failing_.count("load"));
    return kernels_->load(uses);
  }
  Status launch(exec::cuda::KernelId kernel, const exec::cuda::Launch& launch, const exec::cuda::LaunchOptions& options,
                void* stream) override {
    TUTTI_TRY(failing_.count("launch"));
    return kernels_->launch(kernel, launch, options, stream);
  }
  Status probe(const exec::cuda::ProbeLaunch& launch, void* stream) override {
    TUTTI_TRY(failing_.count("probe"));
    return kernels_->probe(launch, stream);
  }
  Status nearPages(const exec::cuda::NearLaunch& launch, void* stream) override {
    TUTTI_TRY(failing_.count("nearPages"));
    return kernels_->nearPages(launch, stream);
  }
  Status copies(const exec::cuda::CopyLaunch& launch, exec::cuda::CopyStage stage, void* stream) override {
    TUTTI_TRY(failing_.count("copies"));
    return kernels_->copies(launch, stage, stream);
  }
  Status moved(const exec::cuda::MovedLaunch& launch, const exec::cuda::Grid& grid, void* stream) override {
    TUTTI_TRY(failing_.count("moved"));
    return kernels_->moved(launch, grid, stream);
  }
  Status mapped(const exec::cuda::MappedLaunch& launch, const exec::cuda::Grid& grid, void* stream) override {
    TUTTI_TRY(failing_.count("mapped"));
    return kernels_->mapped(launch, grid, stream);
  }

 private:
  std::unique_ptr<exec::cuda::Executor> kernels_;
  FailingLaunch& failing_;
};

}  // namespace tutti::conformance
