#include "memory/device.h"

#include "device_play.h"

namespace tutti::memory::device_test {
namespace {

using namespace play;

TEST(Gpu, KnowsWhoMayAccessIt) {
  World world({.devices = 4, .cut = {{1, 3}}});
  EXPECT_EQ(open(world, 1)->accessors(), (std::vector<driver::cuda::Device>{1, 0, 2}));
  EXPECT_EQ(open(world, 0)->accessors(), (std::vector<driver::cuda::Device>{0, 1, 2, 3}));
}

TEST(Gpu, RoundsUpToWholeUnits) {
  World world({.granularity = Bytes(4 * kMega)});
  const auto gpu = open(world, 0);
  EXPECT_EQ(gpu->granularity(), Bytes(4 * kMega));
  EXPECT_EQ(gpu->roundUp(Bytes(1)), Bytes(4 * kMega));
  EXPECT_EQ(gpu->roundUp(Bytes(4 * kMega)), Bytes(4 * kMega));
  EXPECT_EQ(gpu->roundUp(Bytes(4 * kMega + 1)), Bytes(8 * kMega));
}

TEST(Gpu, OffersOnlyHandlesThatWork) {
  const auto handlesOf = [](const FakeOptions& options) {
    World world(options);
    const auto gpu = open(world, 0);
    EXPECT_EQ(world.fake->alive(), (driver::cuda::FakeCounts{.contexts = 1})) << "trying leaves nothing behind";
    return gpu->handles();
  };
  EXPECT_EQ(handlesOf({}), HandleType::PosixFd);
  EXPECT_EQ(handlesOf({.fabric = true}), HandleType::PosixFdAndFabric);
  EXPECT_EQ(handlesOf({.fabric = true, .fabricPermitted = false}), HandleType::PosixFd);
  EXPECT_EQ(handlesOf({.posixFd = false, .fabric = true}), HandleType::Fabric);
  EXPECT_EQ(handlesOf({.posixFd = false, .fabric = true, .fabricPermitted = false}), HandleType::None);
  EXPECT_EQ(handlesOf({.virtualMemory = false, .fabric = true}), HandleType::None);
}

TEST(Gpu, VirtualMemoryCanBeRefused) {
  World world;
  const auto gpu = open(world, 0, false);
  EXPECT_FALSE(gpu->hasVirtualMemory());
  EXPECT_EQ(gpu->granularity(), Bytes(2 * kMega));
}

TEST(Gpu, EveryCallMayFail) {
  failEveryCall(
      {.devices = 3, .fabric = true},
      [](World& world) -> Status {
        const auto gpu = Gpu::open(*world.driver, 2);
        return gpu ? Status() : gpu.error();
      },
      18);
}

}  // namespace
}  // namespace tutti::memory::device_test
