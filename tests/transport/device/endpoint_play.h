// What the tests of endpoints share: a process with a GPU for each rank, on the fake driver, and probes that run on the host.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "../../exec/cuda/host_probe.h"
#include "../../memory/device_play.h"
#include "transport/device/endpoint.h"

namespace tutti::transport::device::play {

using memory::play::FakeOptions;
using memory::play::World;

inline EndpointConfig smallConfig() {
  EndpointConfig config;
  config.channels = 3;
  for (auto& ports : config.pipeChannels)
    for (int32_t& channels : ports) channels = 2;
  config.pipeChannels[0][0] = 3;
  for (int32_t& slots : config.slots) slots = 4;
  for (uint64_t& bytes : config.slotBytes) bytes = 1024;
  for (int32_t& channels : config.windowChannels) channels = 2;
  for (uint64_t& bytes : config.shareBytes) bytes = 512;
  return config;
}

/// A process with a GPU for each rank.
struct Process {
  explicit Process(World& on, int32_t devices, bool virtualMemory = true)
      : world(on), executor(*on.fake), segments([this](int32_t d, memory::Place place) {
          return (place == memory::Place::Host ? hostPools : pools)[static_cast<size_t>(d)].get();
        }) {
    for (int32_t d = 0; d < devices; ++d) {
      auto gpu = memory::Gpu::open(*world.driver, d, virtualMemory);
      if (!gpu) {
        status = gpu.error();
        return;
      }
      gpus.push_back(std::move(*gpu));
      budgets.push_back(std::make_unique<memory::Budget>(d, Bytes(0)));
      hostBudgets.push_back(std::make_unique<memory::Budget>(d, Bytes(0)));
      pools.push_back(std::make_unique<memory::ScratchPool>(*gpus.back(), *budgets.back()));
      hostPools.push_back(std::make_unique<memory::ScratchPool>(*gpus.back(), *hostBudgets.back(), memory::Place::Host));
      const auto scope = driver::cuda::ContextScope::enter(gpus.back()->context());
      auto stream = scope ? driver::cuda::OwnedStream::of(*world.driver, world.driver->createStream())
                          : Result<driver::cuda::OwnedStream>(tl::unexpected(scope.error()));
      if (!stream) {
        status = stream.error();
        return;
      }
      streams.push_back(std::move(*stream));
    }
  }
  Surroundings around(int32_t device) {
    const auto d = static_cast<size_t>(device);
    return {gpus[d].get(), pools[d].get(), hostPools[d].get(), &segments,        &pages, &parking,
            &pairs,        &connecting,    &watch,         &executor,           streams[d].get(), /*sharesGpus*/ false, rules};
  }
  Result<std::unique_ptr<Endpoint>> open(const std::shared_ptr<local::Hub>& hub, int32_t rank, const EndpointConfig& config,
                                         int32_t device) {
    return Endpoint::open(hub, Rank(rank), config, around(device));
  }

  World& world;
  Status status;
  PairRules rules;
  exec::cuda::HostProbes executor;
  std::vector<std::unique_ptr<memory::Gpu>> gpus;
  std::vector<std::unique_ptr<memory::Budget>> budgets;
  std::vector<std::unique_ptr<memory::Budget>> hostBudgets;
  std::vector<std::unique_ptr<memory::ScratchPool>> pools;
  std::vector<std::unique_ptr<memory::ScratchPool>> hostPools;
  std::vector<driver::cuda::OwnedStream> streams;
  HostPages pages;
  PairBook pairs;
  Connecting connecting;
  StageWatch watch;
  Parking parking;
  Segments segments;
};

/// As one thread drives all of them. The first that fails, and its status; else Ready.
inline Status connectAll(const std::vector<std::unique_ptr<Endpoint>>& ranks) {
  for (size_t ready = 0; ready < ranks.size(); std::this_thread::yield()) {
    ready = 0;
    for (const auto& rank : ranks) {
      const Poll poll = rank->connect();
      if (poll == Poll::Failed) return rank->status();
      ready += poll == Poll::Ready ? 1 : 0;
    }
  }
  return {};
}

/// Ranks 0 to n - 1 on GPUs 0 to n - 1 of one process.
struct Ranks {
  explicit Ranks(int32_t count, FakeOptions options = {}, PairRules rules = {}, EndpointConfig config = smallConfig())
      : world((options.devices = count, options)), process(world, count), hub(*local::Hub::make(count)) {
    process.rules = std::move(rules);
    for (int32_t r = 0; r < count; ++r) {
      auto opened = process.open(hub, r, config, r);
      EXPECT_TRUE(opened) << opened.error().text();
      rank.push_back(std::move(*opened));
    }
  }
  void connect() {
    const Status status = connectAll(rank);
    ASSERT_TRUE(status.ok()) << status.text();
  }
  /// Whether a device would find memory of the host there.
  bool isOnHost(const void* pointer) const {
    driver::cuda::MemoryType type{};
    (void)world.fake->pointerGetAttribute(&type, driver::cuda::PointerAttribute::MemoryType, reinterpret_cast<uint64_t>(pointer));
    return type == driver::cuda::MemoryType::OnHost;
  }
  World world;
  Process process;
  std::shared_ptr<local::Hub> hub;
  std::vector<std::unique_ptr<Endpoint>> rank;
};

}  // namespace tutti::transport::device::play
