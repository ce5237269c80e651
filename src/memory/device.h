// A GPU as memory code sees it: its context, and how memory on it is made, mapped and shared.
//
// Owner: one for each device of the process (comm/process.h), at a fixed address; everything that lies on the device keeps a pointer to it
// and must go first. Any thread; nothing changes after open().
// 1. The primary context is kept as long as this lives: driver and CUDA runtime work in the same one.
// 2. `handles` holds only what has been seen to work: a fabric handle needs more than a device that knows the word.
#pragma once

#include <memory>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "driver/cuda/owners.h"

namespace tutti::memory {

class Gpu {
 public:
  /// Device `ordinal` of an initialised driver. `virtualMemory` false: as if the device had none (NCCL_CUMEM_ENABLE=0).
  static Result<std::unique_ptr<Gpu>> open(driver::cuda::Driver& driver, int32_t ordinal, bool virtualMemory = true);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() = default;

  driver::cuda::Driver& driver() const { return context_.driver(); }
  const driver::cuda::PrimaryContext& context() const { return context_; }
  driver::cuda::Device device() const { return context_.device(); }
  const driver::cuda::DeviceInfo& info() const { return context_.info(); }

  bool hasVirtualMemory() const { return virtualMemory_; }
  driver::cuda::HandleType handles() const { return handles_; }
  /// Memory comes in multiples of it, and is mapped at multiples of it. Also without virtual memory a size to grow by.
  Bytes granularity() const { return granularity_; }
  Bytes roundUp(Bytes bytes) const;
  driver::cuda::AllocationProp properties() const;
  /// The devices of this process that may access memory of this one, itself the first.
  const std::vector<driver::cuda::Device>& accessors() const { return accessors_; }

 private:
  explicit Gpu(driver::cuda::PrimaryContext context) : context_(std::move(context)) {}
  Status learn(bool virtualMemory);
  Status learnFabric();

  driver::cuda::PrimaryContext context_;
  bool virtualMemory_ = false;
  driver::cuda::HandleType handles_ = driver::cuda::HandleType::None;
  Bytes granularity_;
  std::vector<driver::cuda::Device> accessors_;
};

/// Lets kernels and copies of `reader` use plain memory of `owner` in the same process; virtual memory has its own access lists.
Status allowPlainAccess(const Gpu& reader, const Gpu& owner);

}  // namespace tutti::memory
