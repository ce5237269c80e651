#include "driver/cuda/driver.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "play.h"

namespace tutti::driver::cuda::driver_test {
namespace {

using namespace play;

constexpr uint64_t kMega = uint64_t{1} << 20;

TEST(Driver, DescribesDevices) {
  World world({.devices = 3, .fabric = true});
  EXPECT_EQ(world.driver->countDevices().value_or(0), 3);
  const auto info = world.driver->describe(2);
  ASSERT_TRUE(info) << info.error().text();
  EXPECT_EQ(info->device, 2);
  EXPECT_EQ(info->pciBusId, "0000:1c:00.0");
  EXPECT_EQ(info->major, 9);
  EXPECT_EQ(info->uuid.bytes.back(), 2);
  EXPECT_TRUE(info->virtualMemory && info->posixFd && info->fabric && info->rdma && info->hostRegister);
  const auto none = world.driver->describe(3);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().text(), "cuDeviceGet(device 3) failed: CUDA_ERROR_INVALID_DEVICE (101)");
  EXPECT_EQ(none.error().code(), Code::UnhandledCudaError);
}

TEST(Driver, WithoutVirtualMemoryNothingOfItIsClaimed) {
  World world({.virtualMemory = false, .fabric = true});
  const auto info = world.driver->describe(0);
  ASSERT_TRUE(info);
  EXPECT_FALSE(info->virtualMemory || info->posixFd || info->fabric || info->rdma);
}

TEST(Driver, FailuresSayWhatWasAsked) {
  World world({.memory = Bytes(8 * kMega)});
  auto handle = world.driver->createMemory(Bytes(16 * kMega), pinnedOn(1, HandleType::PosixFd, true));
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().text(), "cuMemCreate(16777216 bytes on device 1, handle types 1) failed: CUDA_ERROR_OUT_OF_MEMORY (2)");
  EXPECT_TRUE(world.fake->idle());
}

TEST(Driver, WhatCannotBeGivenBackIsHeardOf) {
  World world;
  world.driver->releaseMemory(77);
  ASSERT_EQ(world.lost.size(), 1u);
  EXPECT_EQ(world.lost[0], "cuMemRelease(handle 0x4d) failed: CUDA_ERROR_INVALID_HANDLE (400)");
}

TEST(Driver, ADriverThatHasShutDownHasNothingToGiveBack) {
  World world;
  world.fake->failAt(1, Error::Deinitialized);
  world.driver->releaseMemory(77);
  EXPECT_TRUE(world.lost.empty());
}

TEST(Driver, NumbersWithoutANameAreShown) {
  World world;
  world.fake->failAt(1, static_cast<Error>(4711));
  EXPECT_EQ(world.driver->init().text(), "cuInit(0) failed: unknown error (4711)");
}

TEST(Driver, ContextsAreCurrentForAScope) {
  World world;
  const PrimaryContext first = world.context(0);
  const PrimaryContext second = world.context(1);
  EXPECT_FALSE(world.driver->currentDevice());
  {
    const auto outer = ContextScope::enter(first);
    ASSERT_TRUE(outer);
    EXPECT_EQ(world.driver->currentDevice().value_or(-1), 0);
    {
      const auto inner = ContextScope::enter(second);
      EXPECT_EQ(world.driver->currentDevice().value_or(-1), 1);
      std::thread([&] { EXPECT_EQ(world.driver->currentContext().value_or(first.get()), nullptr) << "of another thread"; }).join();
    }
    EXPECT_EQ(world.driver->currentContext().value_or(nullptr), first.get());
  }
  EXPECT_EQ(world.driver->currentContext().value_or(first.get()), nullptr);
}

TEST(Driver, PeerAccessTwiceIsFine) {
  World world({.devices = 3, .cut = {{0, 2}}});
  const PrimaryContext first = world.context(0);
  const PrimaryContext second = world.context(1);
  const PrimaryContext third = world.context(2);
  const auto scope = ContextScope::enter(first);
  EXPECT_TRUE(world.driver->enablePeerAccess(second.get()).ok());
  EXPECT_TRUE(world.driver->enablePeerAccess(second.get()).ok());
  const Status status = world.driver->enablePeerAccess(third.get());
  EXPECT_NE(status.text().find("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)"), std::string::npos) << status.text();
  EXPECT_FALSE(world.driver->canAccessPeer(2, 0).value_or(true));
  EXPECT_TRUE(world.driver->canAccessPeer(2, 1).value_or(false));
}

TEST(Driver, PointersAreDescribed) {
  World world;
  const PrimaryContext context = world.context(1);
  const auto scope = ContextScope::enter(context);
  const auto plain = world.driver->allocate(Bytes(10000));
  ASSERT_TRUE(plain);
  const auto info = world.driver->describePointer(*plain + 9999);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->type, MemoryType::OnDevice);
  EXPECT_EQ(info->device, 1);
  EXPECT_TRUE(info->legacyIpc);
  EXPECT_EQ(info->range.address, *plain);
  EXPECT_EQ(info->range.bytes, Bytes(10000));
  int own = 0;
  const auto host = world.driver->describePointer(reinterpret_cast<DevicePtr>(&own));
  ASSERT_TRUE(host);
  EXPECT_EQ(host->type, MemoryType::Unregistered);
  EXPECT_EQ(host->device, -1);
  world.driver->freePlain(*plain);
}

TEST(Driver, CapturesAreSeen) {
  World world;
  const PrimaryContext context = world.context(0);
  const auto scope = ContextScope::enter(context);
  const auto stream = OwnedStream::of(*world.driver, world.driver->createStream());
  ASSERT_TRUE(stream);
  EXPECT_EQ(world.driver->captureInfo(stream->get())->status, CaptureStatus::None);
  ASSERT_EQ(world.fake->beginCapture(stream->get()), Error::Success);
  const auto info = world.driver->captureInfo(stream->get());
  EXPECT_EQ(info->status, CaptureStatus::Active);
  EXPECT_NE(info->id, 0u);
  EXPECT_NE(info->graph, nullptr);
  EXPECT_TRUE(info->after.empty());
  Graph graph = nullptr;
  ASSERT_EQ(world.fake->endCapture(stream->get(), &graph), Error::Success);
  EXPECT_EQ(world.fake->destroyGraph(graph), Error::Success);
  EXPECT_EQ(world.driver->exchangeCaptureMode(CaptureMode::Relaxed).value_or(CaptureMode::Relaxed), CaptureMode::Global);
  EXPECT_EQ(world.driver->exchangeCaptureMode(CaptureMode::Global).value_or(CaptureMode::Global), CaptureMode::Relaxed);
}

TEST(Driver, UnfinishedWorkIsNoError) {
  World world;
  const PrimaryContext context = world.context(0);
  const auto scope = ContextScope::enter(context);
  const auto stream = OwnedStream::of(*world.driver, world.driver->createStream());
  const auto event = OwnedEvent::of(*world.driver, world.driver->createEvent());
  ASSERT_TRUE(stream && event);
  EXPECT_TRUE(world.driver->record(event->get(), stream->get()).ok());
  world.fake->setBusy(true);
  EXPECT_FALSE(world.driver->isOver(event->get()).value_or(true));
  EXPECT_FALSE(world.driver->isIdle(stream->get()).value_or(true));
  world.fake->setBusy(false);
  EXPECT_TRUE(world.driver->isOver(event->get()).value_or(false));
  EXPECT_TRUE(world.driver->isIdle(stream->get()).value_or(false));
}

TEST(Driver, RowsAreCopiedToTheLastByte) {
  World world;
  const PrimaryContext context = world.context(0);
  const auto scope = ContextScope::enter(context);
  const auto stream = OwnedStream::of(*world.driver, world.driver->createStream());
  ASSERT_TRUE(stream);
  std::vector<uint8_t> from(100'100);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 / 5 + i / 4096);
  for (const size_t bytes : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{8192}, size_t{100'003}}) {
    std::vector<uint8_t> to(from.size(), 0xa5);
    const auto addressOf = [](const uint8_t& byte) { return reinterpret_cast<DevicePtr>(&byte); };
    ASSERT_TRUE(world.driver->copyInRows(addressOf(to[3]), addressOf(from[1]), Bytes(bytes), stream->get()).ok());
    ASSERT_TRUE(world.driver->synchronize(stream->get()).ok());
    EXPECT_TRUE(std::equal(from.begin() + 1, from.begin() + 1 + static_cast<ptrdiff_t>(bytes), to.begin() + 3)) << bytes;
    EXPECT_EQ(std::count(to.begin(), to.begin() + 3, 0xa5), 3) << bytes;
    EXPECT_EQ(to[bytes + 3], 0xa5) << bytes;
  }
}

Status useEverything(World& world) {
  Driver& driver = *world.driver;
  auto info = driver.describe(0);
  if (!info) return info.error();
  auto context = PrimaryContext::retain(driver, *info);
  if (!context) return context.error();
  auto scope = ContextScope::enter(*context);
  if (!scope) return scope.error();
  auto stream = OwnedStream::of(driver, driver.createStream());
  if (!stream) return stream.error();
  auto event = OwnedEvent::of(driver, driver.createEvent());
  if (!event) return event.error();
  auto memory = OwnedMemory::of(driver, driver.createMemory(Bytes(4 * kMega), pinnedOn(0, HandleType::PosixFd, false)));
  if (!memory) return memory.error();
  auto addresses = OwnedAddresses::of(driver, driver.reserveAddresses(Bytes(4 * kMega), Bytes(2 * kMega)));
  if (!addresses) return addresses.error();
  TUTTI_TRY(driver.map(addresses->get(), memory->get()));
  const OwnedMap map(driver, addresses->get());
  const AccessDesc access[] = {readWriteFrom(0)};
  TUTTI_TRY(driver.setAccess(addresses->get(), access));
  TUTTI_TRY(driver.fill(addresses->get().address, 7, Bytes(4 * kMega), stream->get()));
  TUTTI_TRY(driver.copyInRows(addresses->get().address + kMega, addresses->get().address, Bytes(10'000), stream->get()));
  TUTTI_TRY(driver.record(event->get(), stream->get()));
  TUTTI_TRY(driver.wait(stream->get(), event->get()));
  TUTTI_TRY(driver.synchronize(stream->get()));
  auto fd = driver.exportFd(memory->get());
  if (!fd) return fd.error();
  auto again = OwnedMemory::of(driver, driver.importFd(fd->get()));
  return again ? Status() : again.error();
}

TEST(Driver, EveryCallMayFail) { failEveryCall({}, useEverything, 27); }

}  // namespace
}  // namespace tutti::driver::cuda::driver_test
