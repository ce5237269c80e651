#include "memory/device_allocator.h"

#include <thread>

#include "device_play.h"

namespace tutti::memory::device_allocator_test {
namespace {

using namespace play;

TEST(DeviceAllocator, EveryReachableDeviceMayUseIt) {
  World world({.devices = 3, .cut = {{1, 2}}});
  const auto gpu = open(world, 1);
  Budget budget(1, Bytes(0));
  DeviceAllocator allocator;
  const auto memory = allocator.allocate(*gpu, budget, Bytes(100));
  ASSERT_TRUE(memory) << memory.error().text();
  const auto address = reinterpret_cast<driver::cuda::DevicePtr>(*memory);
  EXPECT_TRUE(world.fake->accessible(0, address, Bytes(100)));
  EXPECT_TRUE(world.fake->accessible(1, address, Bytes(100)));
  EXPECT_FALSE(world.fake->accessible(2, address, Bytes(1)));
  const auto info = world.driver->describePointer(address);
  EXPECT_EQ(info->handles, HandleType::PosixFd) << "others can be given it";
  EXPECT_EQ(budget.usage().of(Purpose::User), Bytes(2 * kMega));
  EXPECT_FALSE(allocator.free(static_cast<char*>(*memory) + 1));
  EXPECT_TRUE(allocator.free(*memory));
  EXPECT_FALSE(allocator.free(*memory));
  EXPECT_EQ(budget.usage().text(), "nothing");
  EXPECT_EQ(world.fake->used(1), Bytes(0));
}

TEST(DeviceAllocator, BothKindsAreFreed) {
  World world;
  const auto withVirtual = open(world, 0);
  const auto without = open(world, 1, false);
  Budget budget(0, Bytes(0));
  DeviceAllocator allocator;
  const auto first = allocator.allocate(*withVirtual, budget, Bytes(5));
  const auto second = allocator.allocate(*without, budget, Bytes(5));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(world.fake->alive().plain, 1u);
  EXPECT_EQ(allocator.liveAllocations(), 2u);
  EXPECT_TRUE(allocator.free(*second));
  EXPECT_TRUE(allocator.free(*first));
  EXPECT_EQ(world.fake->alive(), (driver::cuda::FakeCounts{.contexts = 2}));
}

TEST(DeviceAllocator, EveryCallMayFail) {
  for (const bool virtualMemory : {true, false}) {
    failEveryCall(
        {},
        [&](World& world) -> Status {
          auto gpu = Gpu::open(*world.driver, 0, virtualMemory);
          if (!gpu) return std::move(gpu).error();
          Budget budget(0, Bytes(0));
          DeviceAllocator allocator;
          const auto memory = allocator.allocate(**gpu, budget, Bytes(3 * kMega));
          if (!memory) return memory.error();
          EXPECT_TRUE(allocator.free(*memory));
          EXPECT_EQ(budget.usage().text(), "nothing");
          return {};
        },
        18);
  }
}

TEST(DeviceAllocator, ManyThreads) {
  World world;
  const auto gpu = open(world, 0);
  Budget budget(0, Bytes(0));
  DeviceAllocator allocator;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const auto memory = allocator.allocate(*gpu, budget, Bytes(1));
        ASSERT_TRUE(memory) << memory.error().text();
        ASSERT_TRUE(allocator.free(*memory));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.liveAllocations(), 0u);
  EXPECT_EQ(world.fake->used(0), Bytes(0));
}

}  // namespace
}  // namespace tutti::memory::device_allocator_test
