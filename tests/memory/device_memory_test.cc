#include "memory/device_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "core/descriptor_message.h"
#include "device_play.h"

namespace tutti::memory::device_memory_test {
namespace {

using namespace play;
using driver::cuda::ContextScope;
using driver::cuda::FakeCounts;

TEST(DeviceMemory, IsAccessibleToThoseItIsFor) {
  World world({.devices = 3});
  const auto gpu = open(world, 0);
  const driver::cuda::Device accessors[] = {0, 2};
  {
    auto memory = DeviceMemory::allocate(*gpu, Bytes(3 * kMega), accessors);
    ASSERT_TRUE(memory) << memory.error().text();
    EXPECT_EQ(memory->size(), Bytes(4 * kMega));
    EXPECT_TRUE(memory->isVirtual());
    EXPECT_EQ(memory->address() % gpu->granularity().value, 0u);
    EXPECT_TRUE(world.fake->accessible(0, memory->address(), memory->size()));
    EXPECT_FALSE(world.fake->accessible(1, memory->address(), Bytes(1)));
    EXPECT_TRUE(world.fake->accessible(2, memory->address(), memory->size()));
    const DeviceMemory moved = std::move(*memory);
    at(moved.address() + 4 * kMega - 1) = 9;
    EXPECT_EQ(world.fake->used(0), Bytes(4 * kMega));
    *memory = std::move(*DeviceMemory::allocate(*gpu, Bytes(1), accessors));
    EXPECT_EQ(world.fake->used(0), Bytes(6 * kMega));
  }
  EXPECT_EQ(world.fake->alive(), (FakeCounts{.contexts = 1}));
  EXPECT_EQ(world.fake->used(0), Bytes(0));
}

TEST(DeviceMemory, WithoutVirtualMemoryItIsPlain) {
  World world({.virtualMemory = false});
  const auto first = open(world, 0);
  const auto second = open(world, 1);
  {
    const driver::cuda::Device accessors[] = {0, 1};
    auto memory = DeviceMemory::allocate(*first, Bytes(100), accessors);
    ASSERT_TRUE(memory) << memory.error().text();
    EXPECT_FALSE(memory->isVirtual());
    EXPECT_EQ(memory->localKind(), ShareKind::LegacyIpc);
    EXPECT_FALSE(world.fake->accessible(1, memory->address(), Bytes(100)));
    ASSERT_TRUE(allowPlainAccess(*second, *first).ok());
    ASSERT_TRUE(allowPlainAccess(*second, *first).ok());
    EXPECT_TRUE(world.fake->accessible(1, memory->address(), Bytes(100)));
    EXPECT_EQ(memory->share(ShareKind::PosixFd).error().code(), Code::InvalidUsage);
    *memory = DeviceMemory();
    EXPECT_EQ(world.fake->alive().plain, 0u);
  }
  EXPECT_TRUE(world.lost.empty());
}

TEST(DeviceMemory, MoreThanTheDeviceHasIsAnError) {
  World world({.memory = Bytes(8 * kMega)});
  const auto gpu = open(world, 0);
  const auto most = DeviceMemory::allocate(*gpu, Bytes(6 * kMega), gpu->accessors());
  ASSERT_TRUE(most);
  for (const uint64_t bytes : {4 * kMega, 9 * kMega, UINT64_MAX - 5, UINT64_MAX}) {
    const auto memory = DeviceMemory::allocate(*gpu, Bytes(bytes), gpu->accessors());
    ASSERT_FALSE(memory) << bytes;
    EXPECT_EQ(memory.error().code(), Code::UnhandledCudaError);
  }
  EXPECT_EQ(world.fake->used(0), Bytes(6 * kMega));
}

TEST(DeviceMemory, TicketsThatMakeNoSenseAreRefused) {
  World world;
  const auto gpu = open(world, 0);
  ShareTicket ticket;
  for (const uint64_t bytes : {uint64_t{0}, kMega, 3 * kMega}) {
    ticket.kind = ShareKind::PosixFd;
    ticket.bytes = bytes;
    EXPECT_EQ(DeviceMemory::open(*gpu, ticket, 0).error().code(), Code::InvalidArgument);
  }
  ticket.bytes = 2 * kMega;
  for (const auto kind : {ShareKind::None, static_cast<ShareKind>(77)}) {
    ticket.kind = kind;
    EXPECT_EQ(DeviceMemory::open(*gpu, ticket, 0).error().code(), Code::InvalidArgument);
  }
  ticket.kind = ShareKind::PosixFd;
  const auto notOurs = DeviceMemory::open(*gpu, ticket, STDIN_FILENO);
  EXPECT_NE(notOurs.error().text().find("cuMemImportFromShareableHandle(file descriptor 0) failed"), std::string::npos);
  // As large as it is said to be, or not at all.
  const auto memory = DeviceMemory::allocate(*gpu, Bytes(2 * kMega), gpu->accessors());
  auto shared = memory->share(ShareKind::PosixFd);
  ASSERT_TRUE(shared);
  shared->ticket.bytes = 4 * kMega;
  EXPECT_FALSE(DeviceMemory::open(*gpu, shared->ticket, shared->fd.get()));
  EXPECT_EQ(world.fake->alive(), (FakeCounts{.contexts = 1, .handles = 1, .reservations = 1, .mappings = 1, .backings = 1}));
}

TEST(DeviceMemory, TheAllocationBehindAnAddress) {
  World world;
  const auto gpu = open(world, 1);
  const auto memory = DeviceMemory::allocate(*gpu, Bytes(4 * kMega), gpu->accessors());
  const auto found = Allocation::at(*gpu, memory->address() + kMega);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->handle(), memory->allocation().handle());
  EXPECT_EQ(found->size(), Bytes(4 * kMega));
  EXPECT_TRUE(found->share(ShareKind::PosixFd));
  EXPECT_EQ(found->share(ShareKind::Fabric).error().code(), Code::InvalidUsage);
  int own = 0;
  EXPECT_FALSE(Allocation::at(*gpu, reinterpret_cast<driver::cuda::DevicePtr>(&own)));
}

TEST(DeviceMemory, PlainMemoryOfOthersIsSharedFromWhereItBegins) {
  World world;
  const auto gpu = open(world, 0);
  const auto scope = ContextScope::enter(gpu->context());
  const auto address = world.driver->allocate(Bytes(10000));
  const auto shared = shareLegacy(*gpu, *address + 512, Bytes(9488));
  ASSERT_TRUE(shared) << shared.error().text();
  EXPECT_EQ(shared->ticket.offset, 512u);
  EXPECT_EQ(shared->ticket.bytes, 9488u);
  EXPECT_EQ(shareLegacy(*gpu, *address + 512, Bytes(9489)).error().code(), Code::InvalidArgument);
  world.driver->freePlain(*address);
}

/// A child process with a fake of its own makes memory and shares it; this one opens it, reads, writes, and lets go.
struct Offer {
  ShareTicket ticket;
  bool ok = false;
};
void shareWithParent(int socket, const FakeOptions& options, ShareKind kind) {
  World world(options);
  const auto gpu = open(world, 1);
  auto memory = DeviceMemory::allocate(*gpu, Bytes(2 * kMega), gpu->accessors());
  for (uint64_t i = 0; i < 2 * kMega; ++i) at(memory->address() + i) = static_cast<uint8_t>(i * 7);
  auto shared = memory->share(kind);
  Offer offer;
  if (shared) offer = {shared->ticket, true};
  bool ok = write(socket, &offer, sizeof offer) == static_cast<ssize_t>(sizeof offer) && offer.ok;
  if (ok && shared->fd) ok = sendDescriptor(socket, shared->fd.get(), "memory").ok();
  char done = 0;
  ok = ok && read(socket, &done, 1) == 1 && at(memory->address() + 12345) == 0xee;
  *memory = DeviceMemory();
  _exit(ok && !::testing::Test::HasFailure() ? 0 : 1);
}

void shareBetweenProcesses(const FakeOptions& options, ShareKind kind) {
  const size_t before = openDescriptors();
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const pid_t child = fork();
  if (child == 0) shareWithParent(sockets[1], options, kind);
  close(sockets[1]);
  World world(options);
  const auto gpu = open(world, 0);
  Offer offer;
  ASSERT_EQ(read(sockets[0], &offer, sizeof offer), static_cast<ssize_t>(sizeof offer));
  ASSERT_TRUE(offer.ok);
  UniqueFd fd;
  if (kind == ShareKind::PosixFd) {
    pollfd ready{sockets[0], POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 5000), 1);
    fd = std::move(*receiveDescriptor(sockets[0], "memory"));
  }
  {
    auto memory = DeviceMemory::open(*gpu, offer.ticket, fd.get());
    ASSERT_TRUE(memory) << memory.error().text();
    fd.reset();
    EXPECT_EQ(memory->size(), Bytes(2 * kMega));
    EXPECT_TRUE(world.fake->accessible(0, memory->address(), memory->size()));
    bool same = true;
    for (uint64_t i = 0; i < 2 * kMega; ++i) same = same && at(memory->address() + i) == static_cast<uint8_t>(i * 7);
    EXPECT_TRUE(same);
    at(memory->address() + 12345) = 0xee;
    EXPECT_EQ(world.fake->used(1), Bytes(0)) << "it is charged where it was made";
    ASSERT_EQ(write(sockets[0], "x", 1), 1);
    int outcome = -1;
    ASSERT_EQ(waitpid(child, &outcome, 0), child);
    EXPECT_EQ(outcome, 0);
    EXPECT_EQ(at(memory->address() + 12345), 0xee) << "also when its maker is gone";
  }
  close(sockets[0]);
  EXPECT_EQ(world.fake->alive(), (FakeCounts{.contexts = 1}));
  EXPECT_EQ(openDescriptors(), before);
}

TEST(DeviceMemory, TwoProcessesShareByDescriptor) { shareBetweenProcesses({}, ShareKind::PosixFd); }
TEST(DeviceMemory, TwoProcessesShareByFabricHandle) { shareBetweenProcesses({.fabric = true}, ShareKind::Fabric); }
TEST(DeviceMemory, TwoProcessesShareByLegacyIpc) { shareBetweenProcesses({.virtualMemory = false}, ShareKind::LegacyIpc); }

Status makeShareOpen(World& world) {
  auto gpu = Gpu::open(*world.driver, 0);
  if (!gpu) return std::move(gpu).error();
  auto memory = DeviceMemory::allocate(**gpu, Bytes(3 * kMega), (*gpu)->accessors());
  if (!memory) return std::move(memory).error();
  auto shared = memory->share(memory->localKind());
  if (!shared) return std::move(shared).error();
  if (shared->ticket.kind == ShareKind::LegacyIpc) return {};  // its own process does not open it
  auto opened = DeviceMemory::open(**gpu, shared->ticket, shared->fd.get());
  if (!opened) return std::move(opened).error();
  auto found = Allocation::at(**gpu, memory->address());
  return found ? Status() : std::move(found).error();
}

TEST(DeviceMemory, EveryCallMayFail) {
  failEveryCall({}, makeShareOpen, 30);
  failEveryCall({.virtualMemory = false}, makeShareOpen, 20);
}

TEST(DeviceMemory, OpeningLegacyMemoryMayFailAtEveryCall) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const FakeOptions options{.virtualMemory = false};
  const pid_t child = fork();
  if (child == 0) shareWithParent(sockets[1], options, ShareKind::LegacyIpc);
  Offer offer;
  ASSERT_EQ(read(sockets[0], &offer, sizeof offer), static_cast<ssize_t>(sizeof offer));
  failEveryCall(
      options,
      [&](World& world) -> Status {
        auto gpu = Gpu::open(*world.driver, 0);
        if (!gpu) return std::move(gpu).error();
        auto opened = DeviceMemory::open(**gpu, offer.ticket, -1);
        if (!opened) return std::move(opened).error();
        at(opened->address() + 12345) = 0xee;
        return {};
      },
      20);
  ASSERT_EQ(write(sockets[0], "x", 1), 1);
  int outcome = -1;
  ASSERT_EQ(waitpid(child, &outcome, 0), child);
  EXPECT_EQ(outcome, 0);
  for (const int fd : sockets) close(fd);
}

TEST(DeviceMemory, OfTheHostIsMappedAgainByOthers) {
  const size_t before = openDescriptors();
  World world({.devices = 2, .cut = {{0, 1}}});
  const auto first = open(world, 0);
  const auto second = open(world, 1);
  {
    auto made = DeviceMemory::onHost(*first, Bytes(3 * kMega));
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_EQ(made->size(), Bytes(4 * kMega));
    EXPECT_FALSE(made->isVirtual());
    EXPECT_EQ(made->localKind(), ShareKind::HostFile);
    EXPECT_EQ(made->share(ShareKind::PosixFd).error().code(), Code::InvalidUsage);
    DeviceMemory memory = std::move(*made);
    auto shared = memory.share(ShareKind::HostFile);
    ASSERT_TRUE(shared && shared->fd);
    auto opened = DeviceMemory::open(*second, shared->ticket, shared->fd.get());
    ASSERT_TRUE(opened) << opened.error().text();
    EXPECT_NE(opened->address(), memory.address());
    at(memory.address() + 12345) = 0x5a;
    EXPECT_EQ(at(opened->address() + 12345), 0x5a);
    EXPECT_TRUE(world.fake->accessible(1, opened->address(), opened->size()));
    EXPECT_FALSE(opened->share(ShareKind::HostFile)) << "its own process shares it";
    memory = DeviceMemory();
    EXPECT_EQ(at(opened->address() + 12345), 0x5a) << "as long as somebody has it";
  }
  EXPECT_EQ(world.fake->alive(), (FakeCounts{.contexts = 2}));
  EXPECT_EQ(openDescriptors(), before);
}

TEST(DeviceMemory, OfTheHostMustBeWhatItsTicketSays) {
  World world;
  const auto gpu = open(world, 0);
  auto made = DeviceMemory::onHost(*gpu, Bytes(kMega));
  ASSERT_TRUE(made);
  auto shared = made->share(ShareKind::HostFile);
  ASSERT_TRUE(shared);
  const auto refused = [&](auto change, int fd) {
    ShareTicket ticket = shared->ticket;
    change(ticket);
    return !DeviceMemory::open(*gpu, ticket, fd).has_value();
  };
  const auto keep = [](ShareTicket&) {};
  const int fd = shared->fd.get();
  EXPECT_FALSE(refused(keep, fd));
  EXPECT_TRUE(refused([](ShareTicket& t) { t.bytes *= 2; }, fd)) << "memory behind the end of the file";
  EXPECT_TRUE(refused([](ShareTicket& t) { t.bytes = 0; }, fd));
  EXPECT_TRUE(refused([](ShareTicket& t) { t.offset = 4096; }, fd));
  EXPECT_TRUE(refused(keep, -1));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_TRUE(refused(keep, ends[0])) << "no file";
  for (const int end : ends) close(end);
}

TEST(DeviceMemory, EveryCallForMemoryOfTheHostMayFail) {
  failEveryCall(
      {},
      [](World& world) -> Status {
        auto gpu = Gpu::open(*world.driver, 0);
        if (!gpu) return std::move(gpu).error();
        auto made = DeviceMemory::onHost(**gpu, Bytes(1));
        if (!made) return std::move(made).error();
        auto shared = made->share(ShareKind::HostFile);
        if (!shared) return std::move(shared).error();
        auto opened = DeviceMemory::open(**gpu, shared->ticket, shared->fd.get());
        return opened ? Status() : std::move(opened).error();
      },
      20);
}

TEST(DeviceMemory, ManyThreads) {
  World world({.devices = 4});
  {
    std::vector<std::unique_ptr<Gpu>> gpus;
    for (int32_t device = 0; device < 4; ++device) gpus.push_back(open(world, device));
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        const Gpu& gpu = *gpus[static_cast<size_t>(i % 4)];
        for (int round = 0; round < 50; ++round) {
          auto memory = DeviceMemory::allocate(gpu, Bytes(kMega), gpu.accessors());
          ASSERT_TRUE(memory) << memory.error().text();
          auto shared = memory->share(ShareKind::PosixFd);
          ASSERT_TRUE(shared);
          auto opened = DeviceMemory::open(*gpus[static_cast<size_t>((i + 1) % 4)], shared->ticket, shared->fd.get());
          ASSERT_TRUE(opened);
          at(memory->address()) = static_cast<uint8_t>(i);
          ASSERT_EQ(at(opened->address()), i);
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_TRUE(world.fake->idle());
  EXPECT_TRUE(world.lost.empty());
}

}  // namespace
}  // namespace tutti::memory::device_memory_test
