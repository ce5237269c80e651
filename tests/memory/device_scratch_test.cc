#include "memory/device_scratch.h"

#include <thread>

#include "device_play.h"

namespace tutti::memory::device_scratch_test {
namespace {

using namespace play;

struct Pool {
  explicit Pool(uint64_t limit, FakeOptions options = {})
      : world(std::move(options)), gpu(open(world, 0)), budget(0, Bytes(limit)), pool(*gpu, budget) {}
  Bank take(Purpose purpose, uint64_t bytes) {
    auto bank = pool.take(purpose, Bytes(bytes));
    EXPECT_TRUE(bank) << bank.error().text();
    return bank ? std::move(*bank) : Bank();
  }
  World world;
  std::unique_ptr<Gpu> gpu;
  Budget budget;
  ScratchPool pool;
};

TEST(ScratchPool, SmallBanksShareASegment) {
  Pool play(0);
  EXPECT_EQ(play.world.fake->used(0), Bytes(0)) << "nothing before it is asked for";
  const Bank board = play.take(Purpose::Boards, 100);
  const Bank pipe = play.take(Purpose::Pipes, 4096);
  EXPECT_EQ(play.pool.segments(), 1u);
  EXPECT_EQ(board.size(), Bytes(512));
  EXPECT_EQ(board.segmentNumber(), pipe.segmentNumber());
  EXPECT_EQ(pipe.offset(), 512u);
  EXPECT_EQ(pipe.address(), pipe.memory().address() + 512);
  EXPECT_TRUE(play.world.fake->accessible(0, pipe.address(), pipe.size()));
  const Usage usage = play.budget.usage();
  EXPECT_EQ(usage.of(Purpose::Boards), Bytes(512));
  EXPECT_EQ(usage.of(Purpose::Pipes), Bytes(4096));
  EXPECT_EQ(usage.limited(), Bytes(2 * kMega));
  EXPECT_EQ(usage.limited(), play.world.fake->used(0));
}

TEST(ScratchPool, WindowsBeginOnPairsOfPages) {
  Pool play(0);
  const Bank board = play.take(Purpose::Boards, 100);
  const Bank window = play.take(Purpose::Windows, 16384);
  const Bank other = play.take(Purpose::Windows, 512);
  EXPECT_EQ(board.segmentNumber(), window.segmentNumber());
  EXPECT_EQ(window.offset() % 8192, 0U);
  EXPECT_EQ(other.offset() % 8192, 0U);
  EXPECT_EQ(play.take(Purpose::Boards, 100).offset(), 512U) << "what lies between is not lost";
}

TEST(ScratchPool, MemoryOfTheHostTakesNoneOfTheDevice) {
  World world({.cut = {{0, 1}}});
  const auto gpu = open(world, 0);
  const auto other = open(world, 1);
  Budget budget(0, Bytes(0));
  {
    ScratchPool pool(*gpu, budget, Place::Host);
    auto bank = pool.take(Purpose::Pipes, Bytes(gpu->info().memory.value / 2 + 1));
    ASSERT_TRUE(bank) << bank.error().text();
    EXPECT_EQ(bank->place(), Place::Host);
    EXPECT_EQ(world.fake->used(0), Bytes(0));
    EXPECT_GE(budget.usage().limited().value, bank->size().value);
    EXPECT_EQ(bank->hostData()[bank->size().value - 1], std::byte{0});
    bank->hostData()[5] = std::byte{9};
    EXPECT_EQ(at(bank->address() + 5), 9);
    EXPECT_TRUE(world.fake->accessible(1, *pool.allow(bank->segmentNumber(), *other) + bank->offset(), bank->size()));
    const auto shared = pool.share(bank->segmentNumber());
    ASSERT_TRUE(shared) << shared.error().text();
    EXPECT_EQ(shared->ticket.kind, ShareKind::HostFile);
    EXPECT_TRUE(shared->fd);
    *bank = Bank();
    pool.trim();
    EXPECT_EQ(budget.usage().limited(), Bytes(0));
  }
  EXPECT_EQ(world.fake->alive().registered, 0u);
}

TEST(ScratchPool, BanksNeverOverlap) {
  Pool play(0);
  std::vector<Bank> banks;
  for (uint64_t i = 1; i <= 40; ++i) banks.push_back(play.take(Purpose::Pipes, i * 100000));
  for (size_t i = 0; i < banks.size(); ++i) std::memset(&at(banks[i].address()), static_cast<int>(i), banks[i].size().value);
  for (size_t i = 0; i < banks.size(); ++i) {
    EXPECT_EQ(at(banks[i].address()), i);
    EXPECT_EQ(at(banks[i].address() + banks[i].size().value - 1), i);
  }
}

TEST(ScratchPool, TheBudgetIsExact) {
  Pool play(8 * kMega);
  Bank first = play.take(Purpose::Pipes, 4 * kMega);
  Bank second = play.take(Purpose::Windows, 4 * kMega - 512);
  const auto more = play.pool.take(Purpose::Boards, Bytes(513));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code(), Code::UnhandledCudaError);
  EXPECT_EQ(more.error().text(),
            "device 0: 2097152 bytes for boards go past the budget of 8388608 bytes (TUTTI_MEM_LIMIT); in use: pipes 4194304, windows "
            "4193792, idle 512 bytes");
  const Bank last = play.take(Purpose::Boards, 512);
  EXPECT_EQ(play.world.fake->used(0), Bytes(8 * kMega));
  // What was given back is used again, whatever it was used for.
  first = Bank();
  const Bank other = play.take(Purpose::Kernels, 3 * kMega);
  EXPECT_EQ(play.world.fake->used(0), Bytes(8 * kMega));
  EXPECT_EQ(play.budget.usage().of(Purpose::Pipes), Bytes(0));
}

TEST(ScratchPool, IdleSegmentsMakeRoomBeforeTheBudgetRefuses) {
  Pool play(8 * kMega);
  std::vector<Bank> small;
  for (int i = 0; i < 4; ++i) small.push_back(play.take(Purpose::Pipes, 2 * kMega));
  EXPECT_FALSE(play.pool.take(Purpose::Pipes, Bytes(4 * kMega)));
  small.erase(small.begin(), small.begin() + 2);
  EXPECT_EQ(play.pool.segments(), 4u) << "kept for the next";
  const Bank large = play.take(Purpose::Pipes, 4 * kMega);
  EXPECT_EQ(play.pool.segments(), 3u);
  EXPECT_EQ(play.world.fake->used(0), Bytes(8 * kMega));
  EXPECT_GT(large.segmentNumber(), 4u) << "numbers are not used twice";
}

TEST(ScratchPool, TrimmingGivesAllBack) {
  Pool play(0);
  {
    const Bank one = play.take(Purpose::Pipes, 5 * kMega);
    const Bank two = play.take(Purpose::Pipes, 100);
    play.pool.trim();
    EXPECT_EQ(play.pool.segments(), 1u) << "100 bytes were left of the 6 MiB";
  }
  EXPECT_EQ(play.world.fake->used(0), Bytes(6 * kMega));
  play.pool.trim();
  EXPECT_EQ(play.world.fake->used(0), Bytes(0));
  EXPECT_EQ(play.budget.usage().text(), "nothing");
}

TEST(ScratchPool, NonsenseIsRefused) {
  Pool play(0);
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX, UINT64_MAX - 511, (uint64_t{1} << 30) + 1})
    EXPECT_FALSE(play.pool.take(Purpose::Pipes, Bytes(bytes))) << bytes;
  EXPECT_EQ(play.budget.usage().text(), "nothing");
}

TEST(ScratchPool, ADeviceThatIsFullIsNotChargedFor) {
  Pool play(0, {.memory = Bytes(4 * kMega)});
  const Bank one = play.take(Purpose::Pipes, 4 * kMega);
  const auto more = play.pool.take(Purpose::Windows, Bytes(1));
  ASSERT_FALSE(more);
  EXPECT_NE(more.error().text().find("CUDA_ERROR_OUT_OF_MEMORY (2) [2097152 bytes for windows; in use: pipes 4194304"), std::string::npos)
      << more.error().text();
  EXPECT_EQ(play.budget.usage().limited(), Bytes(4 * kMega));
}

TEST(ScratchPool, PlainMemoryWhereThereIsNoOther) {
  Pool play(4 * kMega, {.virtualMemory = false});
  const Bank bank = play.take(Purpose::Pipes, 3 * kMega);
  EXPECT_EQ(bank.memory().localKind(), ShareKind::LegacyIpc);
  EXPECT_FALSE(play.pool.take(Purpose::Pipes, Bytes(2 * kMega)));
}

TEST(ScratchPool, OtherDevicesAreAddedToThoseThatUseASegment) {
  Pool play(0, {.devices = 3});
  const auto second = open(play.world, 1);
  const auto third = open(play.world, 2);
  const Bank bank = play.take(Purpose::Pipes, 4096);
  const Bytes size = bank.memory().size();
  EXPECT_FALSE(play.world.fake->accessible(1, bank.address(), Bytes(1)));
  for (const Gpu* reader : {play.gpu.get(), second.get(), third.get(), second.get()}) {
    const auto address = play.pool.allow(bank.segmentNumber(), *reader);
    ASSERT_TRUE(address) << address.error().text();
    EXPECT_EQ(*address, bank.memory().address());
    EXPECT_TRUE(play.world.fake->accessible(reader->device(), *address, size));
  }
  for (int device = 0; device < 3; ++device) EXPECT_TRUE(play.world.fake->accessible(device, bank.memory().address(), size)) << device;
  play.world.fake->failAt(1);
  EXPECT_TRUE(play.pool.allow(bank.segmentNumber(), *third)) << "the driver is not asked again";
}

TEST(ScratchPool, PlainSegmentsAreForDevicesWhoseContextIsAllowed) {
  Pool play(0, {.virtualMemory = false});
  const auto second = open(play.world, 1);
  const Bank bank = play.take(Purpose::Pipes, 4096);
  EXPECT_FALSE(play.world.fake->accessible(1, bank.address(), bank.size()));
  EXPECT_EQ(play.pool.allow(bank.segmentNumber(), *second), bank.memory().address());
  EXPECT_TRUE(play.world.fake->accessible(1, bank.address(), bank.size()));
}

TEST(ScratchPool, DevicesThatCannotReachItAreNotAdded) {
  Pool play(0, {.cut = {{0, 1}}});
  const auto second = open(play.world, 1);
  const Bank bank = play.take(Purpose::Pipes, 4096);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto refused = play.pool.allow(bank.segmentNumber(), *second);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text().find("cuMemSetAccess("), std::string::npos) << refused.error().text();
    EXPECT_NE(refused.error().text().find("[scratch of device 0 for device 1]"), std::string::npos) << refused.error().text();
  }
  EXPECT_TRUE(play.world.fake->accessible(0, bank.address(), bank.size()));
}

TEST(ScratchPool, SegmentsAreSharedTheWayThatTheirMemoryAllows) {
  {
    Pool play(0);
    const Bank bank = play.take(Purpose::Pipes, 3 * kMega);
    auto shared = play.pool.share(bank.segmentNumber());
    ASSERT_TRUE(shared) << shared.error().text();
    EXPECT_EQ(shared->ticket.kind, ShareKind::PosixFd);
    EXPECT_EQ(shared->ticket.bytes, 4 * kMega);
    at(bank.memory().address()) = 77;
    const auto reader = open(play.world, 1);
    const auto opened = DeviceMemory::open(*reader, shared->ticket, shared->fd.get());
    ASSERT_TRUE(opened) << opened.error().text();
    EXPECT_EQ(at(opened->address()), 77);
  }
  Pool plain(0, {.virtualMemory = false});
  const Bank bank = plain.take(Purpose::Pipes, 3 * kMega);
  const auto shared = plain.pool.share(bank.segmentNumber());
  ASSERT_TRUE(shared) << shared.error().text();
  EXPECT_EQ(shared->ticket.kind, ShareKind::LegacyIpc);
  EXPECT_EQ(shared->ticket.bytes, 4 * kMega);
  EXPECT_EQ(shared->ticket.offset, 0u);
  Pool alone(0, {.posixFd = false});
  const Bank own = alone.take(Purpose::Pipes, 1);
  const auto refused = alone.pool.share(own.segmentNumber());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text(), "device 0: its memory cannot be shared with other processes of this host (no file descriptors)");
}

TEST(ScratchPool, NumbersOfNoLiveSegmentAreRefused) {
  Pool play(0);
  Bank bank = play.take(Purpose::Pipes, 1);
  const uint64_t gone = bank.segmentNumber();
  bank = Bank();
  play.pool.trim();
  for (const uint64_t number : {uint64_t{0}, gone, gone + 1, UINT64_MAX}) {
    const auto shared = play.pool.share(number);
    const auto allowed = play.pool.allow(number, *play.gpu);
    ASSERT_FALSE(shared) << number;
    ASSERT_FALSE(allowed) << number;
    EXPECT_EQ(shared.error().code(), Code::InvalidArgument);
    EXPECT_EQ(allowed.error().code(), Code::InvalidArgument);
  }
  EXPECT_EQ(play.pool.share(gone).error().text(), "device 0 has no segment 1 of scratch any more");
  EXPECT_EQ(play.pool.share(gone + 1).error().text(), "device 0 has no segment 2 of scratch");
}

TEST(ScratchPool, SharingMayFailAtEveryCall) {
  const auto shareAndAllow = [](World& world) -> Status {
    auto gpu = Gpu::open(*world.driver, 0);
    if (!gpu) return std::move(gpu).error();
    auto reader = Gpu::open(*world.driver, 1);
    if (!reader) return std::move(reader).error();
    Budget budget(0, Bytes(0));
    ScratchPool pool(**gpu, budget);
    auto bank = pool.take(Purpose::Pipes, Bytes(1));
    if (!bank) return std::move(bank).error();
    auto shared = pool.share(bank->segmentNumber());
    if (!shared) return std::move(shared).error();
    auto allowed = pool.allow(bank->segmentNumber(), **reader);
    return allowed ? Status() : std::move(allowed).error();
  };
  failEveryCall({}, shareAndAllow, 20);
  failEveryCall({.virtualMemory = false}, shareAndAllow, 20);
}

TEST(ScratchPool, EveryCallMayFail) {
  failEveryCall(
      {},
      [](World& world) -> Status {
        auto gpu = Gpu::open(*world.driver, 0);
        if (!gpu) return std::move(gpu).error();
        Budget budget(0, Bytes(6 * kMega));
        Status status;
        {
          ScratchPool pool(**gpu, budget);
          auto first = pool.take(Purpose::Pipes, Bytes(3 * kMega));
          if (first) *first = Bank();
          auto second = pool.take(Purpose::Pipes, Bytes(6 * kMega));
          status = !first ? first.error() : !second ? second.error() : Status();
        }
        EXPECT_EQ(budget.usage().text(), "nothing");
        return status;
      },
      30);
}

TEST(ScratchPool, ThreadsShareABudget) {
  Pool play(16 * kMega);
  {
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i)
      threads.emplace_back([&, i] {
        uint64_t random = static_cast<uint64_t>(i) + 1;
        std::vector<Bank> held;
        for (int round = 0; round < 200; ++round) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          auto bank = play.pool.take(Purpose::Pipes, Bytes(1 + (random >> 33) % (3 * kMega)));
          if (!bank) {
            ASSERT_NE(bank.error().text().find("go past the budget"), std::string::npos) << bank.error().text();
            held.clear();
            continue;
          }
          uint8_t& mine = at(bank->address());
          mine = static_cast<uint8_t>(i);
          std::this_thread::yield();
          ASSERT_EQ(mine, i);
          ASSERT_LE(play.world.fake->used(0), Bytes(16 * kMega));
          held.push_back(std::move(*bank));
          if (held.size() > 3) held.erase(held.begin());
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  play.pool.trim();
  EXPECT_EQ(play.budget.usage().text(), "nothing");
  EXPECT_EQ(play.world.fake->used(0), Bytes(0));
}

}  // namespace
}  // namespace tutti::memory::device_scratch_test
