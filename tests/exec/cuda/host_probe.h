// Probes of paths between GPUs without a GPU: the steps of exec/cuda/probe.h on threads of the host, over the very slots that they name.
//
// What a device stores in memory of one that it is lossy to (driver::cuda::FakeOptions) is dropped.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/status.h"
#include "driver/cuda/fake.h"
#include "exec/cuda/launch.h"

namespace tutti::exec::cuda {

/// All threads of a block, as one.
class HostProbeSide {
 public:
  /// Stores in `lost` do not arrive; null: all do.
  explicit HostProbeSide(const ProbeSlot* lost) : lost_(lost) {}
  int thread() const { return 0; }
  int threads() const { return 1; }
  bool any(bool said) const { return said; }
  bool claim() { return !std::exchange(isClaimed_, true); }
  template <class T>
  void store(T* p, std::type_identity_t<T> v) const {
    if (!isLost(p)) std::atomic_ref<T>(*p).store(v, std::memory_order_release);  // fence() and a relaxed store
  }
  template <class T>
  T load(const T* p) const {
    return std::atomic_ref<T>(const_cast<T&>(*p)).load(std::memory_order_relaxed);
  }
  uint64_t loadAcquire(const uint64_t* p) const {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(*p)).load(std::memory_order_acquire);
  }
  void storeWeak(uint64_t* p, uint64_t v) const {
    if (!isLost(p)) *p = v;
  }
  uint64_t loadWeak(const uint64_t* p) const { return *p; }
  void fence() const {}
  uint64_t nowNs() const {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
  /// No yield: on a busy machine that gives the core away for as long as others compute.
  void pause() const { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

 private:
  bool isLost(const void* p) const { return lost_ != nullptr && p >= lost_ && p < lost_ + 1; }
  const ProbeSlot* lost_;
  bool isClaimed_ = false;
};

/// On the current device's stream; blocks run at the same time, as on a GPU.
inline Status playProbes(driver::cuda::FakeApi& fake, const ProbeLaunch& launch, void* stream) {
  std::vector<bool> loses;
  for (int32_t p = 0; p < launch.pairs; ++p)
    loses.push_back(fake.losesAt(reinterpret_cast<driver::cuda::DevicePtr>(launch.pair[p].theirs)));
  const auto play = [copy = std::make_shared<const ProbeLaunch>(launch), loses] {
    std::vector<std::thread> blocks;
    for (int32_t p = 0; p < copy->pairs; ++p)
      blocks.emplace_back([&launch = *copy, p, isLossy = loses[static_cast<size_t>(p)]] {
        HostProbeSide side(isLossy ? launch.pair[p].theirs : nullptr);
        ProbeRun<HostProbeSide>(launch, launch.pair[p], side).run();
      });
    for (std::thread& block : blocks) block.join();
  };
  const driver::cuda::Error failed = fake.enqueue(static_cast<driver::cuda::Stream>(stream), play);
  return failed == driver::cuda::Error::Success
             ? Status()
             : error(Code::UnhandledCudaError, "the probe's launch failed: {}", static_cast<int>(failed));
}

/// As if some pages were near, by chance: both sides of a window have to go by it.
inline void playNearPages(const NearLaunch& launch) {
  const uint32_t mask = nearBlocks(launch) < 32 ? (uint32_t{1} << nearBlocks(launch)) - 1 : ~uint32_t{0};
  for (int32_t writer = 0; writer < launch.ranks; ++writer) {
    const auto pair = static_cast<uint32_t>(1 + 2 * (launch.rank * kMaxLocalRanks + writer));
    for (uint32_t bank = 0; bank < 2 && writer != launch.rank; ++bank)
      launch.pages[writer].laterIn[bank] = (0x9e3779b9U * pair + 0x7f4a7c15U * bank) & mask;
  }
}
/// At once: a driver whose next calls fail waits for nothing, and the memory may be gone when the stream comes to it.
inline Status playNearPages(driver::cuda::FakeApi& fake, const NearLaunch& launch, void* stream) {
  const driver::cuda::Error failed = fake.enqueue(static_cast<driver::cuda::Stream>(stream), [] {});
  if (failed == driver::cuda::Error::Success) playNearPages(launch);
  return failed == driver::cuda::Error::Success
             ? Status()
             : error(Code::UnhandledCudaError, "the launch for near pages failed: {}", static_cast<int>(failed));
}

/// Kernels of which there are probes alone.
class HostProbes final : public Executor {
 public:
  explicit HostProbes(driver::cuda::FakeApi& fake) : fake_(fake) {}
  Status load(KernelUses&) override { return {}; }
  Status launch(KernelId, const Launch&, const LaunchOptions&, void*) override {
    return error(Code::InternalError, "no kernels but probes are here");
  }
  Status probe(const ProbeLaunch& launch, void* stream) override { return playProbes(fake_, launch, stream); }
  Status nearPages(const NearLaunch& launch, void* stream) override { return playNearPages(fake_, launch, stream); }
  Status moved(const MovedLaunch&, const Grid&, void*) override { return error(Code::InternalError, "no kernels but probes are here"); }
  Status mapped(const MappedLaunch&, const Grid&, void*) override { return error(Code::InternalError, "no kernels but probes are here"); }
  Status copies(const CopyLaunch&, CopyStage, void*) override { return error(Code::InternalError, "no kernels but probes are here"); }

 private:
  driver::cuda::FakeApi& fake_;
};

}  // namespace tutti::exec::cuda
