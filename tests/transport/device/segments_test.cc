#include "transport/device/segments.h"

#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "../../memory/device_play.h"
#include "segment_play.h"

namespace tutti::transport::device::segments_test {
namespace {

using namespace play;
using driver::cuda::DevicePtr;
using driver::cuda::FakeCounts;
using driver::cuda::FakeOptions;
using driver::cuda::play::failEveryCall;
using driver::cuda::play::World;
using memory::Bank;
using memory::Budget;
using memory::Gpu;
using memory::Purpose;
using memory::ScratchPool;
using memory::play::at;
using memory::play::kMega;

/// A process as far as segments are concerned: devices, a pool for each, and who serves them. Members go in the right order.
struct Host {
  explicit Host(World& world, int32_t devices = 2, bool virtualMemory = true, milliseconds limit = Segments::kLimit) {
    for (int32_t device = 0; device < devices && status.ok(); ++device) {
      auto gpu = Gpu::open(*world.driver, device, virtualMemory);
      if (!gpu) {
        status = std::move(gpu).error();
        break;
      }
      gpus.push_back(std::move(*gpu));
      budgets.push_back(std::make_unique<Budget>(device, Bytes(0)));
      pools.push_back(std::make_unique<ScratchPool>(*gpus.back(), *budgets.back()));
      hostPools.push_back(std::make_unique<ScratchPool>(*gpus.back(), *budgets.back(), memory::Place::Host));
    }
    segments.emplace(
        [this](int32_t device, memory::Place place) {
          const auto& of = place == memory::Place::Host ? hostPools : pools;
          if (place != memory::Place::Host && place != memory::Place::Device) return static_cast<ScratchPool*>(nullptr);
          return device >= 0 && static_cast<size_t>(device) < of.size() ? of[static_cast<size_t>(device)].get() : nullptr;
        },
        limit);
  }
  Bank take(int32_t device, uint64_t bytes, memory::Place place = memory::Place::Device) const {
    auto bank = (place == memory::Place::Host ? hostPools : pools)[static_cast<size_t>(device)]->take(Purpose::Pipes, Bytes(bytes));
    EXPECT_TRUE(bank) << bank.error().text();
    return bank ? std::move(*bank) : Bank();
  }
  SegmentName nameOf(int32_t device, const Bank& bank) {
    const auto key = segments->key();
    EXPECT_TRUE(key) << key.error().text();
    return {key.value_or(ProcessKey{}), device, bank.place(), bank.segmentNumber()};
  }

  Status status;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::vector<std::unique_ptr<Budget>> budgets;
  std::vector<std::unique_ptr<ScratchPool>> pools;
  std::vector<std::unique_ptr<ScratchPool>> hostPools;
  std::optional<Segments> segments;
};

TEST(Segments, DevicesOfAProcessShareItsOwnMapping) {
  const NothingIsLeft check;
  World world({.devices = 3});
  {
    Host host(world, 3);
    EXPECT_FALSE(host.segments->serves());
    const Bank bank = host.take(0, 4096);
    const SegmentName name = host.nameOf(0, bank);
    EXPECT_TRUE(host.segments->serves());
    const FakeCounts before = world.fake->alive();
    for (const int32_t reader : {1, 0, 2, 1}) {
      const auto reached = host.segments->reach(*host.gpus[reader], name);
      ASSERT_TRUE(reached) << reached.error().text();
      EXPECT_TRUE(*reached);
      EXPECT_EQ(reached->address() + bank.offset(), bank.address());
      EXPECT_TRUE(world.fake->accessible(reader, bank.address(), bank.size()));
    }
    EXPECT_EQ(world.fake->alive(), before) << "nothing is mapped anew";
    EXPECT_EQ(host.segments->mapped(), 0u);
  }
  EXPECT_TRUE(world.fake->idle());
  EXPECT_TRUE(world.lost.empty());
}

TEST(Segments, PlainMemoryOfTheProcessToo) {
  World world({.virtualMemory = false});
  Host host(world);
  const Bank bank = host.take(1, 4096);
  EXPECT_FALSE(world.fake->accessible(0, bank.address(), bank.size()));
  const auto reached = host.segments->reach(*host.gpus[0], host.nameOf(1, bank));
  ASSERT_TRUE(reached) << reached.error().text();
  EXPECT_EQ(reached->address(), bank.memory().address());
  EXPECT_TRUE(world.fake->accessible(0, bank.address(), bank.size()));
}

TEST(Segments, WhatIsNotThereIsAnError) {
  World world;
  Host host(world);
  World otherWorld;
  Host other(otherWorld);
  Bank bank = host.take(0, 4096);
  SegmentName name = host.nameOf(0, bank);
  const Gpu& own = *host.gpus[1];
  const Gpu& alien = *other.gpus[1];
  for (const int32_t device : {-1, 2, INT32_MAX, INT32_MIN}) {
    const SegmentName nowhere{name.process, device, memory::Place::Device, name.number};
    EXPECT_EQ(host.segments->reach(own, nowhere).error().code(), Code::InvalidArgument);
    EXPECT_EQ(other.segments->reach(alien, nowhere).error().code(), Code::InvalidArgument);
  }
  bank = Bank();
  host.pools[0]->trim();
  EXPECT_EQ(host.segments->reach(own, name).error().text(), "device 0 has no segment 1 of scratch any more");
  const auto gone = other.segments->reach(alien, name);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code(), Code::InvalidArgument);
  EXPECT_EQ(gone.error().text().find("device 0 has no segment 1 of scratch any more [process "), 0u) << gone.error().text();
  name.process = ProcessKey{};
  EXPECT_EQ(host.segments->reach(own, name).error().code(), Code::RemoteError);
}

/// What a process tells the others of its banks, one on each device, and the commands that it then takes.
struct Told {
  SegmentName names[2];
  uint64_t offsets[2] = {0, 0};
};
enum class Do : char { Check = 'c', Free = 'f' };
constexpr uint64_t kBankBytes = 3 * kMega;

int own(int socket, const FakeOptions& options, memory::Place place) {
  World world(options);
  {
    Host host(world);
    const Bank small = host.take(1, 512, place);  // so that the other does not begin at 0
    Bank banks[2] = {host.take(0, kBankBytes, place), host.take(1, kBankBytes, place)};
    Told told;
    for (int32_t device = 0; device < 2; ++device) {
      told.names[device] = host.nameOf(device, banks[device]);
      told.offsets[device] = banks[device].offset();
      for (uint64_t i = 0; i < kBankBytes; ++i) at(banks[device].address() + i) = static_cast<uint8_t>(i * 7 + device);
    }
    if (write(socket, &told, sizeof told) != static_cast<ssize_t>(sizeof told)) return 1;
    for (Do command{}; read(socket, &command, 1) == 1;) {
      if (command == Do::Check && (at(banks[0].address() + 12345) != 0xee || at(banks[1].address()) != 0xdd)) return 2;
      if (command == Do::Free) {
        banks[0] = Bank();
        host.pools[0]->trim();
      }
      if (write(socket, "", 1) != 1) return 3;
    }
  }
  return world.fake->idle() && world.lost.empty() ? 0 : 4;
}

struct Owner {
  explicit Owner(const FakeOptions& options = {}, memory::Place place = memory::Place::Device)
      : child([&](int socket) { return own(socket, options, place); }), told(child.receive<Told>()) {}
  void tell(Do command) const {
    ASSERT_EQ(write(child.socket(), &command, 1), 1);
    (void)child.receive<char>();
  }
  Child child;
  const Told told;
};

void reachInAnotherProcess(const FakeOptions& options, memory::Place place = memory::Place::Device) {
  const NothingIsLeft check;
  Owner owner(options, place);
  World world(options);
  {
    Host host(world);
    const auto first = host.segments->reach(*host.gpus[1], owner.told.names[0]);
    ASSERT_TRUE(first) << first.error().text();
    const auto second = host.segments->reach(*host.gpus[1], owner.told.names[1]);
    ASSERT_TRUE(second) << second.error().text();
    EXPECT_FALSE(host.segments->serves()) << "who asks need not serve";
    for (int32_t device = 0; device < 2; ++device) {
      const DevicePtr address = (device == 0 ? first : second)->address() + owner.told.offsets[device];
      EXPECT_TRUE(world.fake->accessible(1, address, Bytes(kBankBytes)));
      bool same = true;
      for (uint64_t i = 0; i < kBankBytes; ++i) same = same && at(address + i) == static_cast<uint8_t>(i * 7 + device);
      EXPECT_TRUE(same) << device;
    }
    at(first->address() + owner.told.offsets[0] + 12345) = 0xee;
    at(second->address() + owner.told.offsets[1]) = 0xdd;
    owner.tell(Do::Check);
    EXPECT_EQ(host.segments->mapped(), 2u);
    EXPECT_EQ(owner.child.exitCode(), 0);
    EXPECT_EQ(at(first->address() + owner.told.offsets[0] + 12345), 0xee) << "also when its owner is gone";
    EXPECT_TRUE(host.segments->reach(*host.gpus[1], owner.told.names[0])) << "it is mapped";
    const auto other = host.segments->reach(*host.gpus[0], owner.told.names[0]);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code(), Code::RemoteError);
  }
  EXPECT_TRUE(world.fake->idle());
  EXPECT_TRUE(world.lost.empty());
}

TEST(Segments, OtherProcessesByDescriptor) { reachInAnotherProcess({}); }
TEST(Segments, OtherProcessesByLegacyIpc) { reachInAnotherProcess({.virtualMemory = false}); }
TEST(Segments, OtherProcessesThroughTheHost) { reachInAnotherProcess({.cut = {{0, 1}}}, memory::Place::Host); }

TEST(Segments, MemoryOfTheHostIsForDevicesThatCannotReachEachOther) {
  const NothingIsLeft check;
  World world({.cut = {{0, 1}}});
  {
    Host host(world);
    const Bank bank = host.take(0, 4096, memory::Place::Host);
    EXPECT_EQ(bank.place(), memory::Place::Host);
    const auto reached = host.segments->reach(*host.gpus[1], host.nameOf(0, bank));
    ASSERT_TRUE(reached) << reached.error().text();
    EXPECT_TRUE(world.fake->accessible(1, reached->address() + bank.offset(), bank.size()));
    std::memset(bank.hostData(), 7, bank.size().value);
    EXPECT_EQ(at(reached->address() + bank.offset() + 4095), 7);
    const Bank onDevice = host.take(0, 4096);
    EXPECT_EQ(onDevice.segmentNumber(), bank.segmentNumber()) << "each place counts for itself";
    EXPECT_FALSE(host.segments->reach(*host.gpus[1], host.nameOf(0, onDevice)));
    SegmentName name = host.nameOf(0, bank);
    name.place = memory::Place{7};
    EXPECT_FALSE(host.segments->reach(*host.gpus[1], name)) << "the request of a process that nobody understands";
  }
  EXPECT_TRUE(world.fake->idle());
}

TEST(Segments, AreMappedOnceForEachReader) {
  const NothingIsLeft check;
  const Owner owner;
  World world;
  Host host(world);
  const FakeCounts before = world.fake->alive();
  auto first = host.segments->reach(*host.gpus[0], owner.told.names[0]);
  auto again = host.segments->reach(*host.gpus[0], owner.told.names[0]);
  ASSERT_TRUE(first && again);
  EXPECT_EQ(first->address(), again->address());
  EXPECT_EQ(world.fake->alive().mappings, before.mappings + 1);
  auto other = host.segments->reach(*host.gpus[1], owner.told.names[0]);
  ASSERT_TRUE(other);
  EXPECT_NE(first->address(), other->address());
  EXPECT_FALSE(world.fake->accessible(1, first->address(), Bytes(1)));
  EXPECT_EQ(world.fake->alive().mappings, before.mappings + 2);
  EXPECT_EQ(host.segments->mapped(), 2u);
  *first = Reached();
  EXPECT_EQ(host.segments->mapped(), 2u) << "somebody holds it";
  *again = Reached();
  EXPECT_EQ(host.segments->mapped(), 1u);
  EXPECT_EQ(world.fake->alive().mappings, before.mappings + 1);
  *other = Reached();
  EXPECT_EQ(world.fake->alive(), before);
  owner.tell(Do::Free);
  const auto gone = host.segments->reach(*host.gpus[0], owner.told.names[0]);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code(), Code::InvalidArgument) << gone.error().text();
  EXPECT_TRUE(host.segments->reach(*host.gpus[0], owner.told.names[1])) << "the other is still there";
}

TEST(Segments, AnOwnerThatIsKilledIsAnErrorInTime) {
  const NothingIsLeft check;
  Owner owner;
  World world;
  Host host(world, 2, true, milliseconds(300));
  owner.child.stop();
  auto began = SteadyClock::now();
  const auto still = host.segments->reach(*host.gpus[0], owner.told.names[0]);
  ASSERT_FALSE(still);
  EXPECT_EQ(still.error().code(), Code::RemoteError);
  EXPECT_GE(since(began), milliseconds(300));
  owner.child.signal(SIGKILL);
  (void)owner.child.exitCode();
  began = SteadyClock::now();
  const auto gone = host.segments->reach(*host.gpus[0], owner.told.names[0]);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code(), Code::RemoteError);
  EXPECT_NE(gone.error().text().find("segment 1 of device 0"), std::string::npos) << gone.error().text();
  EXPECT_LT(since(began), milliseconds(2000));
}

/// Two "processes" of this one: each has devices, pools and a server of its own.
TEST(Segments, ThreadsThatWantTheSameGetTheSame) {
  const NothingIsLeft check;
  World world({.devices = 4});
  {
    Host host(world, 4);
    World readerWorld({.devices = 4});
    Host reader(readerWorld, 4);
    const size_t mappings = readerWorld.fake->alive().mappings;
    for (int round = 0; round < 30; ++round) {
      const Bank bank = host.take(round % 4, 5 * kMega);
      at(bank.address() + 77) = static_cast<uint8_t>(round);
      const SegmentName name = host.nameOf(round % 4, bank);
      std::vector<Reached> held(8);
      std::vector<std::thread> threads;
      for (size_t i = 0; i < held.size(); ++i)
        threads.emplace_back([&, i] {
          auto reached = reader.segments->reach(*reader.gpus[i % 2], name);
          ASSERT_TRUE(reached) << reached.error().text();
          EXPECT_EQ(at(reached->address() + bank.offset() + 77), static_cast<uint8_t>(round));
          held[i] = std::move(*reached);
        });
      for (std::thread& thread : threads) thread.join();
      for (size_t i = 0; i < held.size(); ++i) EXPECT_EQ(held[i].address(), held[i % 2].address());
      EXPECT_EQ(readerWorld.fake->alive().mappings, mappings + 2);
      EXPECT_EQ(reader.segments->mapped(), 2u);
    }
    EXPECT_TRUE(readerWorld.lost.empty());
  }
  EXPECT_TRUE(world.fake->idle());
}

TEST(Segments, ManyThreadsComeAndGo) {
  const NothingIsLeft check;
  World world({.devices = 2});
  World readerWorld({.devices = 2});
  {
    Host host(world);
    Host reader(readerWorld);
    std::vector<Bank> banks;
    std::vector<SegmentName> names;
    for (int i = 0; i < 4; ++i) {
      banks.push_back(host.take(i % 2, 2 * kMega));
      names.push_back(host.nameOf(i % 2, banks.back()));
      at(banks.back().address()) = static_cast<uint8_t>(i);
    }
    const auto readMany = [&](size_t id, Host& from) {
      for (size_t round = 0; round < 150; ++round) {
        const size_t which = (id * 7 + round * 3) % names.size();
        const auto reached = from.segments->reach(*from.gpus[(id + round) % 2], names[which]);
        ASSERT_TRUE(reached) << reached.error().text();
        ASSERT_EQ(at(reached->address() + banks[which].offset()), which);
      }
    };
    std::vector<std::thread> threads;
    for (size_t id = 0; id < 6; ++id) threads.emplace_back(readMany, id, std::ref(id < 4 ? reader : host));
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(reader.segments->mapped(), 0u);
  }
  EXPECT_TRUE(world.fake->idle() && readerWorld.fake->idle());
  EXPECT_TRUE(world.lost.empty() && readerWorld.lost.empty());
}

TEST(Segments, ThreadsThatWaitForAnErrorGetItAndTheNextTriesAgain) {
  const NothingIsLeft check;
  World world;
  Host host(world, 2, true, milliseconds(400));
  const Owner owner;
  owner.child.stop();
  const auto began = SteadyClock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      const auto reached = host.segments->reach(*host.gpus[0], owner.told.names[0]);
      ASSERT_FALSE(reached);
      EXPECT_EQ(reached.error().code(), Code::RemoteError);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(since(began), milliseconds(2000));
  owner.child.signal(SIGCONT);
  EXPECT_TRUE(host.segments->reach(*host.gpus[0], owner.told.names[0]));
}

TEST(Segments, WaitingForOneProcessDelaysNoOther) {
  const NothingIsLeft check;
  const Owner still;
  const Owner good;
  World world;
  Host host(world, 2, true, milliseconds(1500));
  still.child.stop();
  std::thread waits([&] { EXPECT_FALSE(host.segments->reach(*host.gpus[0], still.told.names[0])); });
  std::this_thread::sleep_for(milliseconds(50));
  const auto began = SteadyClock::now();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(host.segments->reach(*host.gpus[0], good.told.names[0]));
  const Bank bank = host.take(0, 1);
  EXPECT_TRUE(host.segments->reach(*host.gpus[1], host.nameOf(0, bank)));
  EXPECT_LT(since(began), milliseconds(1000));
  waits.join();
}

/// Owner and reader on one driver, so that each call of either fails once.
Status shareAndReach(World& world) {
  Host host(world);
  if (!host.status.ok()) return host.status;
  Host reader(world);
  if (!reader.status.ok()) return reader.status;
  auto bank = host.pools[0]->take(Purpose::Pipes, Bytes(kMega));
  if (!bank) return std::move(bank).error();
  const SegmentName name = host.nameOf(0, *bank);
  auto own = host.segments->reach(*host.gpus[1], name);
  if (!own) return std::move(own).error();
  for (const auto& gpu : reader.gpus) {
    auto reached = reader.segments->reach(*gpu, name);
    if (!reached) return std::move(reached).error();
  }
  return {};
}

TEST(Segments, EveryCallMayFail) {
  const NothingIsLeft check;
  failEveryCall({}, shareAndReach, 60);
}

TEST(Segments, EveryCallOfAReaderMayFail) {
  const NothingIsLeft check;
  for (const bool virtualMemory : {true, false}) {
    const FakeOptions options{.virtualMemory = virtualMemory};
    const Owner owner(options);
    failEveryCall(
        options,
        [&](World& world) -> Status {
          Host host(world);
          if (!host.status.ok()) return host.status;
          for (int i = 0; i < 2; ++i) {
            auto reached = host.segments->reach(*host.gpus[i], owner.told.names[i]);
            if (!reached) return std::move(reached).error();
          }
          return {};
        },
        30);
  }
}

}  // namespace
}  // namespace tutti::transport::device::segments_test
