// What the tests of communicators on GPUs share: the fake driver, and kernels that are only written down.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "comm/devices.h"
#include "driver/cuda/fake.h"

namespace tutti::comm::play {

using driver::cuda::FakeApi;
using driver::cuda::FakeOptions;
using exec::cuda::KernelId;

struct Launched {
  KernelId kernel;
  exec::cuda::Launch launch;
  exec::cuda::LaunchOptions options;
  void* stream;
};

/// Kernels of a GPU that takes one block of each a multiprocessor.
class WrittenDown final : public exec::cuda::Executor {
 public:
  /// `fake`: where launches on streams that are captured become nodes; null: nowhere.
  explicit WrittenDown(std::vector<Launched>& launches, FakeApi* const* fake = nullptr) : launches_(launches), fake_(fake) {}
  Status load(exec::cuda::KernelUses& uses) override {
    for (auto& use : uses.of) use.blocksPerMultiprocessor = 1;
    uses.lone.blocksPerMultiprocessor = uses.mapped.blocksPerMultiprocessor = 1;
    return {};
  }
  Status launch(KernelId kernel, const exec::cuda::Launch& launch, const exec::cuda::LaunchOptions& options, void* stream) override {
    launches_.push_back({kernel, launch, options, stream});
    const auto on = static_cast<driver::cuda::Stream>(stream);
    if (fake_ != nullptr && (*fake_)->isCapturing(on)) {
      EXPECT_EQ((*fake_)->enqueue(on, [] {}), driver::cuda::Error::Success);
    }
    return {};
  }
  /// All paths are good; addresses of a fake device are the host's.
  Status probe(const exec::cuda::ProbeLaunch& launch, void*) override {
    for (int32_t p = 0; p < launch.pairs; ++p) {
      std::atomic_ref<exec::cuda::ProbeEnd> end(launch.pair[p].desk->report.end);
      end.store(exec::cuda::ProbeEnd::Passed, std::memory_order_release);
    }
    return {};
  }

  /// Addresses of a fake device are the host's.
  Status nearPages(const exec::cuda::NearLaunch& launch, void*) override {
    for (int32_t writer = 0; writer < launch.ranks; ++writer) launch.pages[writer].laterIn[0] = 1;
    return {};
  }

  Status copies(const exec::cuda::CopyLaunch& launch, exec::cuda::CopyStage, void*) override {
    copies_.push_back(launch);
    return {};
  }
  Status moved(const exec::cuda::MovedLaunch&, const exec::cuda::Grid&, void*) override { return {}; }
  Status mapped(const exec::cuda::MappedLaunch&, const exec::cuda::Grid&, void*) override { return {}; }

 private:
  std::vector<Launched>& launches_;
  std::vector<exec::cuda::CopyLaunch> copies_;
  FakeApi* const* fake_;
};

/// The devices of a process of its own.
struct Gpus {
  explicit Gpus(FakeOptions options = {})
      : devices(
            [this, options]() -> Result<std::unique_ptr<driver::cuda::Api>> {
              auto api = std::make_unique<FakeApi>(options);
              fake = api.get();
              return std::unique_ptr<driver::cuda::Api>(std::move(api));
            },
            [this] { return std::make_unique<WrittenDown>(launches, &fake); }) {}
  FakeApi* fake = nullptr;
  std::vector<Launched> launches;
  Devices devices;
};

}  // namespace tutti::comm::play
