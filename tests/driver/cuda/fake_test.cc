#include "driver/cuda/fake.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "play.h"

namespace tutti::driver::cuda::fake_test {
namespace {

using namespace play;

constexpr uint64_t kMega = uint64_t{1} << 20;

/// Memory of device `device`, mapped for those that `access` names.
struct Mapped {
  OwnedMemory memory;
  OwnedAddresses addresses;
  OwnedMap map;
};
Mapped mapNew(World& world, Device device, const std::vector<AccessDesc>& access, uint64_t bytes = 2 * kMega) {
  Driver& driver = *world.driver;
  Mapped mapped;
  mapped.memory = std::move(*OwnedMemory::of(driver, driver.createMemory(Bytes(bytes), pinnedOn(device, HandleType::PosixFd, false))));
  mapped.addresses = std::move(*OwnedAddresses::of(driver, driver.reserveAddresses(Bytes(bytes), Bytes(0))));
  EXPECT_TRUE(driver.map(mapped.addresses.get(), mapped.memory.get()).ok());
  mapped.map = OwnedMap(driver, mapped.addresses.get());
  if (!access.empty()) {
    EXPECT_TRUE(driver.setAccess(mapped.addresses.get(), access).ok());
  }
  return mapped;
}

TEST(Fake, MemoryIsRealAndMappedTwiceItIsTheSame) {
  World world;
  const Mapped first = mapNew(world, 0, {readWriteFrom(0)});
  const auto range = world.driver->reserveAddresses(Bytes(2 * kMega), Bytes(0));
  ASSERT_TRUE(range);
  ASSERT_TRUE(world.driver->map(*range, first.memory.get()).ok());
  const AccessDesc access[] = {readWriteFrom(1)};
  ASSERT_TRUE(world.driver->setAccess(*range, access).ok());
  std::memset(reinterpret_cast<void*>(first.addresses.get().address), 0x5a, 2 * kMega);
  EXPECT_EQ(reinterpret_cast<const uint8_t*>(range->address)[2 * kMega - 1], 0x5a);
  EXPECT_TRUE(world.fake->accessible(0, first.addresses.get().address, Bytes(2 * kMega)));
  EXPECT_FALSE(world.fake->accessible(1, first.addresses.get().address, Bytes(1)));
  EXPECT_TRUE(world.fake->accessible(1, range->address + kMega, Bytes(kMega)));
  EXPECT_FALSE(world.fake->accessible(1, range->address + kMega, Bytes(kMega + 1)));
  world.driver->unmap(*range);
  world.driver->freeAddresses(*range);
  EXPECT_EQ(world.fake->used(0), Bytes(2 * kMega));
}

TEST(Fake, ItIsAsStrictAsTheDriver) {
  World world({.devices = 2, .memory = Bytes(8 * kMega), .fabric = true, .fabricPermitted = false, .cut = {{0, 1}}});
  FakeApi& fake = *world.fake;
  MemHandle handle = 0;
  AllocationProp prop = pinnedOn(0, HandleType::PosixFd, false);
  EXPECT_EQ(fake.memCreate(&handle, kMega, &prop, 0), Error::InvalidValue) << "not a multiple of the granularity";
  EXPECT_EQ(fake.memCreate(&handle, 10 * kMega, &prop, 0), Error::OutOfMemory);
  prop.requested = HandleType::Fabric;
  EXPECT_EQ(fake.memCreate(&handle, 2 * kMega, &prop, 0), Error::NotPermitted);
  const Mapped one = mapNew(world, 0, {});
  const Range range = one.addresses.get();
  EXPECT_EQ(fake.memMap(range.address, 2 * kMega, 0, one.memory.get(), 0), Error::AlreadyMapped);
  EXPECT_EQ(fake.memMap(range.address + 2 * kMega, 2 * kMega, 0, one.memory.get(), 0), Error::InvalidValue) << "not reserved";
  EXPECT_EQ(fake.memAddressFree(range.address, 2 * kMega), Error::InvalidValue) << "something is mapped in it";
  EXPECT_EQ(fake.memUnmap(range.address, kMega), Error::NotMapped);
  const AccessDesc other = readWriteFrom(1);
  EXPECT_EQ(fake.memSetAccess(range.address, 2 * kMega, &other, 1), Error::InvalidDevice) << "cut off";
  EXPECT_EQ(fake.memRelease(4711), Error::InvalidHandle);
  DevicePtr address = 0;
  EXPECT_EQ(fake.memAlloc(&address, 100), Error::InvalidContext);
  EXPECT_EQ(fake.memcpyAsync(1, 1, 1, nullptr), Error::InvalidContext);
  const PrimaryContext context = world.context(1);
  const auto scope = ContextScope::enter(context);
  char here[16] = {};
  EXPECT_EQ(fake.memcpyAsync(reinterpret_cast<DevicePtr>(here), range.address, 16, nullptr), Error::IllegalAddress);
}

TEST(Fake, CallsThatGiveBackDoSoAlsoWhenTheyFail) {
  World world;
  {
    const Mapped one = mapNew(world, 0, {});
    world.fake->failAt(1);
  }
  EXPECT_TRUE(world.fake->idle());
  EXPECT_EQ(world.fake->failed(), Call::memUnmap);
  EXPECT_EQ(world.lost.size(), 1u);
}

TEST(Fake, TheNextCallOfAKindFailsOnce) {
  World world;
  world.fake->failNext(Call::memUnmap);
  for (const size_t lost : {1u, 1u}) {
    { const Mapped one = mapNew(world, 0, {}); }
    EXPECT_EQ(world.fake->failed(), Call::memUnmap);
    EXPECT_EQ(world.lost.size(), lost);
  }
  world.fake->failNext(Call::memUnmap);
  world.fake->failAt(0);
  { const Mapped one = mapNew(world, 0, {}); }
  EXPECT_EQ(world.fake->failed(), std::nullopt);
}

TEST(Fake, WhatIsLeftBehindIsCounted) {
  World world;
  const Mapped one = mapNew(world, 0, {readWriteFrom(0)});
  const FakeCounts expected{.handles = 1, .reservations = 1, .mappings = 1, .backings = 1};
  EXPECT_EQ(world.fake->alive(), expected);
  const auto retained = world.driver->retainHandle(one.addresses.get().address);
  ASSERT_TRUE(retained);
  EXPECT_EQ(*retained, one.memory.get());
  EXPECT_EQ(world.fake->alive().handles, 2u);
  world.driver->releaseMemory(*retained);
}

TEST(Fake, AnotherProcessOpensIpcMemory) {
  int toParent[2];
  int toChild[2];
  ASSERT_EQ(pipe(toParent), 0);
  ASSERT_EQ(pipe(toChild), 0);
  const pid_t child = fork();
  if (child == 0) {
    World world;
    const PrimaryContext context = world.context(1);
    const auto scope = ContextScope::enter(context);
    const auto plain = world.driver->allocate(Bytes(5000));
    std::memset(reinterpret_cast<void*>(*plain), 0x3c, 5000);
    const auto handle = world.driver->exportIpc(*plain);
    const bool own = handle && world.driver->openIpc(*handle).has_value();
    char done = 0;
    const bool told = handle && write(toParent[1], &*handle, sizeof *handle) == sizeof *handle && read(toChild[0], &done, 1) == 1;
    const bool changed = reinterpret_cast<const uint8_t*>(*plain)[4999] == 0x77;
    _exit(told && !own && changed ? 0 : 1);
  }
  World world;
  IpcHandle handle;
  ASSERT_EQ(read(toParent[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  {
    const PrimaryContext context = world.context(0);
    const auto scope = ContextScope::enter(context);
    const auto opened = world.driver->openIpc(handle);
    ASSERT_TRUE(opened) << opened.error().text();
    EXPECT_EQ(reinterpret_cast<const uint8_t*>(*opened)[4999], 0x3c);
    reinterpret_cast<uint8_t*>(*opened)[4999] = 0x77;
    world.driver->closeIpc(*opened);
  }
  ASSERT_EQ(write(toChild[1], "x", 1), 1);
  int outcome = -1;
  ASSERT_EQ(waitpid(child, &outcome, 0), child);
  EXPECT_EQ(outcome, 0);
  EXPECT_TRUE(world.fake->idle());
  for (const int fd : {toParent[0], toParent[1], toChild[0], toChild[1]}) close(fd);
}

}  // namespace
}  // namespace tutti::driver::cuda::fake_test
