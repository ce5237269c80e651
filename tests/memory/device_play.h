// What the tests of device memory share.
#pragma once

#include <cstring>
#include <memory>

#include "../driver/cuda/play.h"
#include "memory/device.h"
#include "memory/device_memory.h"

namespace tutti::memory::play {

using driver::cuda::FakeOptions;
using driver::cuda::HandleType;
using driver::cuda::play::failEveryCall;
using driver::cuda::play::openDescriptors;
using driver::cuda::play::World;

constexpr uint64_t kMega = uint64_t{1} << 20;

inline std::unique_ptr<Gpu> open(World& world, int32_t device, bool virtualMemory = true) {
  auto gpu = Gpu::open(*world.driver, device, virtualMemory);
  EXPECT_TRUE(gpu) << gpu.error().text();
  return std::move(*gpu);
}

/// What a device would read at an address of the fake.
inline uint8_t& at(driver::cuda::DevicePtr address) { return *reinterpret_cast<uint8_t*>(address); }

}  // namespace tutti::memory::play
