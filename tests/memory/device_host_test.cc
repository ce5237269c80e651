#include "memory/device_host.h"

#include "device_play.h"
#include "memory/mapping.h"

namespace tutti::memory::device_host_test {
namespace {

using namespace play;

TEST(RegisteredHost, EveryDeviceAddressesIt) {
  World world;
  const auto first = open(world, 0);
  const auto second = open(world, 1);
  const auto memory = Mapping::shareable(Bytes(100000));
  {
    auto registered = RegisteredHost::make(*first, memory->data(), memory->size());
    ASSERT_TRUE(registered) << registered.error().text();
    for (const Gpu* gpu : {first.get(), second.get()}) {
      const auto address = registered->addressFor(*gpu);
      ASSERT_TRUE(address);
      EXPECT_TRUE(world.fake->accessible(gpu->device(), *address, memory->size()));
      memory->data()[99999] = std::byte{3};
      EXPECT_EQ(at(*address + 99999), 3);
    }
    const auto twice = RegisteredHost::make(*second, memory->data(), memory->size());
    EXPECT_NE(twice.error().text().find("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED (712)"), std::string::npos);
    const RegisteredHost moved = std::move(*registered);
    EXPECT_EQ(world.fake->alive().registered, 1u);
  }
  EXPECT_EQ(world.fake->alive().registered, 0u);
  EXPECT_TRUE(world.lost.empty());
}

TEST(RegisteredHost, DevicesThatCannotSaySo) {
  World world({.hostRegister = false});
  const auto gpu = open(world, 1);
  int own = 0;
  EXPECT_EQ(RegisteredHost::make(*gpu, &own, Bytes(sizeof own)).error().text(), "device 1 cannot address memory of the host");
}

TEST(RegisteredHost, EveryCallMayFail) {
  const auto memory = Mapping::shareable(Bytes(8192));
  failEveryCall(
      {},
      [&](World& world) -> Status {
        auto gpu = Gpu::open(*world.driver, 0);
        if (!gpu) return std::move(gpu).error();
        auto registered = RegisteredHost::make(**gpu, memory->data(), memory->size());
        if (!registered) return std::move(registered).error();
        auto address = registered->addressFor(**gpu);
        return address ? Status() : std::move(address).error();
      },
      20);
}

}  // namespace
}  // namespace tutti::memory::device_host_test
