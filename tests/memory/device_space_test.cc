#include "memory/device_space.h"

#include "device_play.h"

namespace tutti::memory::device_space_test {
namespace {

using namespace play;
using driver::cuda::FakeCounts;

constexpr uint64_t kGiga = uint64_t{1} << 30;

TEST(AddressSpace, StridesAreWholeUnitsOfFourGiga) {
  EXPECT_EQ(AddressSpace::strideFor(Bytes(0)), Bytes(4 * kGiga));
  EXPECT_EQ(AddressSpace::strideFor(Bytes(4 * kGiga)), Bytes(4 * kGiga));
  EXPECT_EQ(AddressSpace::strideFor(Bytes(4 * kGiga + 1)), Bytes(8 * kGiga));
  EXPECT_EQ(AddressSpace::strideFor(Bytes(141 * kGiga)), Bytes(144 * kGiga));
}

TEST(AddressSpace, PeersLieAtTheirStride) {
  World world({.devices = 4});
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::vector<DeviceMemory> memories;
  for (int32_t device = 0; device < 4; ++device) {
    gpus.push_back(open(world, device));
    const driver::cuda::Device own[] = {device};
    memories.push_back(std::move(*DeviceMemory::allocate(*gpus.back(), Bytes((2 + 2 * static_cast<uint64_t>(device)) * kMega), own)));
    at(memories.back().address() + 77) = static_cast<uint8_t>(10 + device);
  }
  {
    const auto space = AddressSpace::reserve(*gpus[2], 4, Bytes(4 * kGiga));
    ASSERT_TRUE(space) << space.error().text();
    const SpaceView view = space->view();
    EXPECT_EQ(view.stride, 4 * kGiga);
    EXPECT_EQ(view.base % gpus[2]->granularity().value, 0u);
    EXPECT_EQ(world.fake->alive().reservations, 5u) << "one for all peers";
    std::vector<PeerMapping> mappings;
    for (int32_t peer = 0; peer < 4; ++peer) {
      auto mapping = space->map(peer, 6 * kMega, memories[static_cast<size_t>(peer)].allocation());
      ASSERT_TRUE(mapping) << mapping.error().text();
      EXPECT_EQ(mapping->address(), view.base + static_cast<uint64_t>(peer) * 4 * kGiga + 6 * kMega);
      EXPECT_EQ(at(view.at(peer, 6 * kMega + 77)), 10 + peer);
      EXPECT_TRUE(world.fake->accessible(2, mapping->address(), mapping->size()));
      EXPECT_FALSE(world.fake->accessible(1, mapping->address(), Bytes(1))) << "it is this rank's alone";
      mappings.push_back(std::move(*mapping));
    }
    // Grown: more of one peer, beside what is there.
    auto more = space->map(1, 0, memories[0].allocation());
    ASSERT_TRUE(more) << more.error().text();
    EXPECT_EQ(at(view.at(1, 77)), 10);
    EXPECT_EQ(world.fake->alive().mappings, 4u + 5u);
  }
  EXPECT_EQ(world.fake->alive().reservations, 4u);
  EXPECT_TRUE(world.lost.empty());
}

TEST(AddressSpace, WhatDoesNotFitIsRefused) {
  World world({.memory = Bytes(6 * kGiga)});
  const auto gpu = open(world, 0);
  EXPECT_EQ(AddressSpace::reserve(*gpu, 0, Bytes(4 * kGiga)).error().code(), Code::InvalidArgument);
  EXPECT_EQ(AddressSpace::reserve(*gpu, 2, Bytes(2 * kGiga)).error().code(), Code::InvalidArgument);
  EXPECT_EQ(AddressSpace::reserve(*gpu, 2, Bytes(0)).error().code(), Code::InvalidArgument);
  EXPECT_EQ(AddressSpace::reserve(*open(world, 0, false), 2, Bytes(4 * kGiga)).error().code(), Code::InvalidUsage);
  const auto space = AddressSpace::reserve(*gpu, 2, Bytes(4 * kGiga));
  ASSERT_TRUE(space);
  const auto small = Allocation::create(*gpu, Bytes(4 * kMega));
  const auto large = Allocation::create(*gpu, Bytes(4 * kGiga + 2 * kMega));
  ASSERT_TRUE(small && large);
  EXPECT_EQ(space->map(2, 0, *small).error().code(), Code::InvalidArgument);
  EXPECT_EQ(space->map(-1, 0, *small).error().code(), Code::InvalidArgument);
  EXPECT_EQ(space->map(0, kMega, *small).error().code(), Code::InvalidArgument);
  EXPECT_EQ(space->map(0, 4 * kGiga - 2 * kMega, *small).error().code(), Code::InvalidArgument) << "reaches into the next peer's part";
  EXPECT_EQ(space->map(0, 0, *large).error().code(), Code::InvalidArgument);
  const auto last = space->map(1, 4 * kGiga - 4 * kMega, *small);
  ASSERT_TRUE(last) << last.error().text();
  const auto twice = space->map(1, 4 * kGiga - 4 * kMega, *small);
  EXPECT_NE(twice.error().text().find("CUDA_ERROR_ALREADY_MAPPED (208) [map memory of peer 1]"), std::string::npos) << twice.error().text();
}

TEST(AddressSpace, SharedMemoryStaysWhenItsHolderGoes) {
  World world;
  const auto first = open(world, 0);
  const auto second = open(world, 1);
  const auto space = AddressSpace::reserve(*first, 2, AddressSpace::strideFor(second->info().memory));
  ASSERT_TRUE(space);
  PeerMapping mapping;
  {
    const driver::cuda::Device own[] = {1};
    const auto memory = DeviceMemory::allocate(*second, Bytes(1), own);
    at(memory->address()) = 5;
    const auto shared = memory->share(ShareKind::PosixFd);
    auto mapped = space->mapShared(1, 0, shared->ticket, shared->fd.get());
    ASSERT_TRUE(mapped) << mapped.error().text();
    mapping = std::move(*mapped);
  }
  EXPECT_EQ(at(space->view().at(1, 0)), 5);
  EXPECT_EQ(world.fake->alive(), (FakeCounts{.contexts = 2, .handles = 1, .reservations = 1, .mappings = 1, .backings = 1}));
  mapping = PeerMapping();
  EXPECT_EQ(world.fake->alive(), (FakeCounts{.contexts = 2, .reservations = 1}));
}

TEST(AddressSpace, EveryCallMayFail) {
  failEveryCall(
      {},
      [](World& world) -> Status {
        auto first = Gpu::open(*world.driver, 0);
        if (!first) return std::move(first).error();
        auto second = Gpu::open(*world.driver, 1);
        if (!second) return std::move(second).error();
        auto space = AddressSpace::reserve(**first, 2, Bytes(4 * kGiga));
        if (!space) return std::move(space).error();
        auto memory = DeviceMemory::allocate(**second, Bytes(1), (*second)->accessors());
        if (!memory) return std::move(memory).error();
        auto mapped = space->map(1, 0, memory->allocation());
        if (!mapped) return std::move(mapped).error();
        auto shared = memory->share(ShareKind::PosixFd);
        if (!shared) return std::move(shared).error();
        auto imported = space->mapShared(0, 2 * kMega, shared->ticket, shared->fd.get());
        return imported ? Status() : std::move(imported).error();
      },
      50);
}

}  // namespace
}  // namespace tutti::memory::device_space_test
