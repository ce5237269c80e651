// Endpoints of ranks in one process, on the fake driver: who sees what where, when, and what is left of them.
#include "transport/device/endpoint.h"

#include <cstring>
#include <vector>

#include "../../memory/device_play.h"

namespace tutti::transport::device {
namespace {

using namespace memory::play;
using exec::cuda::PipeEnd;
using exec::cuda::Protocol;
using memory::Budget;
using memory::Gpu;
using memory::Purpose;
using memory::ScratchPool;

EndpointConfig smallConfig() {
  EndpointConfig config;
  config.channels = 3;
  for (auto& ports : config.pipeChannels)
    for (int32_t& channels : ports) channels = 2;
  config.pipeChannels[0][0] = 3;
  for (int32_t& slots : config.slots) slots = 4;
  for (uint64_t& bytes : config.slotBytes) bytes = 1024;
  for (int32_t& channels : config.windowChannels) channels = 2;
  for (uint64_t& bytes : config.shareBytes) bytes = 512;
  return config;
}

/// A process with a GPU for each rank.
struct Process {
  explicit Process(World& on, int32_t devices) : world(on), segments([this](int32_t d) { return pools[static_cast<size_t>(d)].get(); }) {
    for (int32_t d = 0; d < devices; ++d) {
      auto gpu = Gpu::open(*world.driver, d);
      if (!gpu) {
        status = gpu.error();
        return;
      }
      gpus.push_back(std::move(*gpu));
      budgets.push_back(std::make_unique<Budget>(d, Bytes(0)));
      pools.push_back(std::make_unique<ScratchPool>(*gpus.back(), *budgets.back()));
      const auto scope = driver::cuda::ContextScope::enter(gpus.back()->context());
      auto stream = scope ? driver::cuda::OwnedStream::of(*world.driver, world.driver->createStream())
                          : Result<driver::cuda::OwnedStream>(tl::unexpected(scope.error()));
      if (!stream) {
        status = stream.error();
        return;
      }
      streams.push_back(std::move(*stream));
    }
  }
  Surroundings around(int32_t device) {
    const auto d = static_cast<size_t>(device);
    return {gpus[d].get(), pools[d].get(), &segments, &pages, &parking, streams[d].get(), false};
  }
  Result<std::unique_ptr<Endpoint>> open(const std::shared_ptr<local::Hub>& hub, int32_t rank, const EndpointConfig& config,
                                         int32_t device) {
    return Endpoint::open(hub, Rank(rank), config, around(device));
  }

  World& world;
  Status status;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::vector<std::unique_ptr<Budget>> budgets;
  std::vector<std::unique_ptr<ScratchPool>> pools;
  std::vector<driver::cuda::OwnedStream> streams;
  HostPages pages;
  Parking parking;
  Segments segments;
};

struct Pair {
  explicit Pair(EndpointConfig config = smallConfig()) : process(world, 2), hub(*local::Hub::make(2)) {
    for (int32_t r = 0; r < 2; ++r) {
      auto opened = process.open(hub, r, config, r);
      EXPECT_TRUE(opened) << opened.error().text();
      rank.push_back(std::move(*opened));
    }
  }
  void connect() {
    for (const auto& endpoint : rank) ASSERT_EQ(endpoint->connect(), Poll::Ready) << endpoint->status().text();
  }
  World world;
  Process process;
  std::shared_ptr<local::Hub> hub;
  std::vector<std::unique_ptr<Endpoint>> rank;
};

TEST(Endpoint, WaitsForTheOthers) {
  World world;
  Process process(world, 2);
  const std::shared_ptr<local::Hub> hub = *local::Hub::make(2);
  const auto first = process.open(hub, 0, smallConfig(), 0);
  ASSERT_TRUE(first) << first.error().text();
  EXPECT_EQ((*first)->connect(), Poll::Pending);
  EXPECT_EQ((*first)->missing(), Rank(1));
  const auto second = process.open(hub, 1, smallConfig(), 1);
  ASSERT_TRUE(second) << second.error().text();
  EXPECT_EQ((*second)->connect(), Poll::Ready) << (*second)->status().text();
  EXPECT_EQ((*first)->connect(), Poll::Ready) << (*first)->status().text();
  EXPECT_EQ((*first)->missing(), Rank(-1));
}

TEST(Endpoint, BoardsAndArrivalsAreThoseOfThePeers) {
  Pair pair;
  pair.connect();
  const auto zero = pair.rank[0]->view(Protocol::Simple);
  const auto one = pair.rank[1]->view(Protocol::Simple);
  EXPECT_EQ(zero.wait.post[1], one.wait.board + 0);
  EXPECT_EQ(one.wait.post[0], zero.wait.board + 1);
  EXPECT_EQ(zero.wait.post[0], nullptr) << "nobody waits for itself";
  EXPECT_EQ(zero.window.arrivals[1], one.window.arrivals[1]);
  EXPECT_NE(zero.window.arrivals[0], zero.window.arrivals[1]);
  EXPECT_EQ(zero.wait.abort, one.wait.abort) << "of all ranks the same";
  EXPECT_NE(zero.wait.relay, one.wait.relay);
  EXPECT_TRUE(pair.world.fake->accessible(0, reinterpret_cast<uint64_t>(zero.wait.post[1]), Bytes(16)))
      << "memory of device 1, from device 0";
  EXPECT_EQ(zero.wait.board[1].launch, 0u);
}

TEST(Endpoint, AFailureOfTheRanksStopsTheirKernels) {
  Pair pair;
  pair.connect();
  EXPECT_EQ(pair.rank[0]->kernelPage().abort, 0u);
  pair.hub->failAll(error(Code::RemoteError, "for a test"));
  EXPECT_EQ(pair.rank[0]->kernelPage().abort, 1u);
  EXPECT_EQ(*pair.rank[1]->view(Protocol::Cells).wait.abort, 1u);
}

TEST(Endpoint, BothSidesOfAPipeSeeTheSameSlots) {
  Pair pair;
  pair.connect();
  const PipeNeed sends[] = {{Protocol::Simple, 0, true, Rank(1)}};
  const PipeNeed receives[] = {{Protocol::Simple, 0, false, Rank(0)}};
  ASSERT_TRUE(pair.rank[0]->offer({sends}).ok());
  EXPECT_EQ(pair.rank[0]->settle({sends}), Poll::Pending);
  EXPECT_EQ(pair.rank[0]->missing(), Rank(1));
  EXPECT_FALSE(pair.rank[0]->isOpen({sends}));
  ASSERT_TRUE(pair.rank[1]->offer({receives}).ok());
  ASSERT_EQ(pair.rank[1]->settle({receives}), Poll::Ready) << pair.rank[1]->status().text();
  ASSERT_EQ(pair.rank[0]->settle({sends}), Poll::Ready) << pair.rank[0]->status().text();
  EXPECT_TRUE(pair.rank[0]->isOpen({sends}));
  ASSERT_TRUE(pair.rank[0]->offer({sends}).ok()) << "what is open is left as it is";

  const PipeEnd* const from = pair.rank[0]->view(Protocol::Simple).pipes.ends;
  const PipeEnd* const to = pair.rank[1]->view(Protocol::Simple).pipes.ends;
  std::vector<std::byte*> slots;
  for (int32_t c = 0; c < 3; ++c) {
    const PipeEnd& a = from[c * exec::cuda::kMostEnds];
    const PipeEnd& b = to[c * exec::cuda::kMostEnds];
    EXPECT_TRUE(a.peer == 1 && a.sends && a.port == 0 && a.done == 0);
    EXPECT_TRUE(b.peer == 0 && !b.sends && b.port == 0 && b.done == 0);
    EXPECT_EQ(a.slots, b.slots);
    EXPECT_EQ(a.tell, b.wait);
    EXPECT_EQ(a.wait, b.tell);
    EXPECT_NE(a.tell, a.wait);
    EXPECT_EQ(*a.tell + *a.wait, 0u);
    EXPECT_TRUE(pair.world.fake->accessible(0, reinterpret_cast<uint64_t>(a.slots), Bytes(4096))) << "the sender writes them";
    EXPECT_TRUE(pair.world.fake->accessible(1, reinterpret_cast<uint64_t>(a.wait), Bytes(8)));
    for (const std::byte* other : slots) EXPECT_GE(static_cast<uint64_t>(std::abs(a.slots - other)), 4096u);
    slots.push_back(a.slots);
    std::memset(a.slots, 1, 4096);
    EXPECT_EQ(from[c * exec::cuda::kMostEnds + 1].peer, -1) << "no further end";
    EXPECT_EQ(*a.tell + *a.wait, 0u) << "slots do not reach into counters";
  }
}

TEST(Endpoint, EndsOfSeveralPipesLieBesideEachOther) {
  Pair pair;
  pair.connect();
  const PipeNeed both[] = {{Protocol::Cells, 1, false, Rank(1)}, {Protocol::Cells, 1, true, Rank(1)}};
  const PipeNeed mirrored[] = {{Protocol::Cells, 1, true, Rank(0)}, {Protocol::Cells, 1, false, Rank(0)}};
  ASSERT_TRUE(pair.rank[0]->offer({both}).ok() && pair.rank[1]->offer({mirrored}).ok());
  ASSERT_EQ(pair.rank[0]->settle({both}), Poll::Ready);
  ASSERT_EQ(pair.rank[1]->settle({mirrored}), Poll::Ready);
  const PipeEnd* const ends = pair.rank[0]->view(Protocol::Cells).pipes.ends;
  for (int32_t c = 0; c < 3; ++c) {
    const PipeEnd* const of = ends + c * exec::cuda::kMostEnds;
    EXPECT_EQ(of[0].peer, c < 2 ? 1 : -1) << "two channels have pipes";
    EXPECT_EQ(of[1].peer, c < 2 ? 1 : -1);
    EXPECT_EQ(of[2].peer, -1);
    if (c < 2) {
      EXPECT_NE(of[0].sends, of[1].sends);
    }
  }
  EXPECT_EQ(pair.rank[0]->view(Protocol::Simple).pipes.ends[0].peer, -1) << "each protocol has ends of its own";
}

TEST(Endpoint, WindowsAreThoseOfAllRanks) {
  Pair pair;
  pair.connect();
  const Needs needs{{}, 1};
  ASSERT_TRUE(pair.rank[1]->offer(needs).ok());
  EXPECT_EQ(pair.rank[1]->settle(needs), Poll::Pending);
  EXPECT_EQ(pair.rank[1]->missing(), Rank(0));
  ASSERT_TRUE(pair.rank[0]->offer(needs).ok());
  ASSERT_EQ(pair.rank[0]->settle(needs), Poll::Ready);
  ASSERT_EQ(pair.rank[1]->settle(needs), Poll::Ready);
  const auto zero = pair.rank[0]->view(Protocol::Simple).window;
  const auto one = pair.rank[1]->view(Protocol::Simple).window;
  EXPECT_EQ(zero.base[0], one.base[0]);
  EXPECT_EQ(zero.base[1], one.base[1]);
  EXPECT_NE(zero.base[0], zero.base[1]);
  const uint64_t bytes = exec::cuda::windowBytes(2, 2, 512);
  EXPECT_TRUE(pair.world.fake->accessible(0, reinterpret_cast<uint64_t>(zero.base[1]), Bytes(bytes)));
  for (uint64_t i = 0; i < bytes; ++i) ASSERT_EQ(zero.base[1][i], std::byte{0});
  EXPECT_EQ(pair.rank[0]->view(Protocol::Cells).window.base[0], nullptr) << "the other window was not asked for";
}

TEST(Endpoint, MemoryStaysUntilAllRanksHaveLeft) {
  Pair pair;
  pair.connect();
  const Needs needs{{}, 0};
  for (const auto& endpoint : pair.rank) ASSERT_TRUE(endpoint->offer(needs).ok());
  for (const auto& endpoint : pair.rank) ASSERT_EQ(endpoint->settle(needs), Poll::Ready);
  const Bytes used = pair.process.budgets[0]->usage().of(Purpose::Windows);
  EXPECT_GT(used.value, 0u);
  pair.rank[0].reset();
  EXPECT_EQ(pair.process.parking.size(), 1u);
  EXPECT_EQ(pair.process.budgets[0]->usage().of(Purpose::Windows), used) << "rank 1 may still write there";
  pair.rank[1].reset();
  EXPECT_EQ(pair.process.parking.size(), 0u);
  EXPECT_EQ(pair.process.budgets[0]->usage().of(Purpose::Windows), Bytes(0));
  EXPECT_EQ(pair.process.budgets[0]->usage().of(Purpose::Boards), Bytes(0));
}

TEST(Endpoint, MemoryOfARankWhoseKernelDoesNotEndIsKept) {
  Pair pair;
  pair.connect();
  pair.rank[0]->keepMemory({});
  pair.rank[0].reset();
  pair.rank[1].reset();
  EXPECT_EQ(pair.process.parking.size(), 2u);
}

TEST(Endpoint, RanksThatDifferAreRefused) {
  World world;
  Process process(world, 2);
  const std::shared_ptr<local::Hub> hub = *local::Hub::make(2);
  EndpointConfig other = smallConfig();
  other.slots[2] = 5;
  const auto first = process.open(hub, 0, smallConfig(), 0);
  const auto second = process.open(hub, 1, other, 1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ((*first)->connect(), Poll::Failed);
  EXPECT_EQ((*first)->status().code(), Code::InvalidUsage);
  EXPECT_NE((*first)->status().text().find("ranks 0 and 1 have different settings"), std::string::npos) << (*first)->status().text();
}

TEST(Endpoint, TwoRanksOnOneGpuAreRefused) {
  World world;
  Process process(world, 2);
  const std::shared_ptr<local::Hub> hub = *local::Hub::make(2);
  const auto first = process.open(hub, 0, smallConfig(), 1);
  const auto second = process.open(hub, 1, smallConfig(), 1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ((*second)->connect(), Poll::Failed);
  EXPECT_NE((*second)->status().text().find("duplicate GPU: ranks 0 and 1"), std::string::npos) << (*second)->status().text();
}

TEST(Endpoint, EveryFailureOfTheDriverIsNamedAndLeavesNothing) {
  failEveryCall(
      FakeOptions{.devices = 2},
      [](World& world) -> Status {
        Process process(world, 2);
        TUTTI_TRY(process.status);
        auto hub = local::Hub::make(2);
        if (!hub) return hub.error();
        std::vector<std::unique_ptr<Endpoint>> ranks;
        for (int32_t r = 0; r < 2; ++r) {
          auto opened = process.open(*hub, r, smallConfig(), r);
          if (!opened) return opened.error();
          ranks.push_back(std::move(*opened));
        }
        const PipeNeed sends[] = {{Protocol::Lines, 3, true, Rank(1)}};
        const PipeNeed receives[] = {{Protocol::Lines, 3, false, Rank(0)}};
        const Needs needs[] = {{sends, 0}, {receives, 0}};
        for (const auto& rank : ranks)
          if (rank->connect() != Poll::Ready) return rank->status();
        for (size_t r = 0; r < 2; ++r) TUTTI_TRY(ranks[r]->offer(needs[r]));
        for (size_t r = 0; r < 2; ++r)
          if (ranks[r]->settle(needs[r]) != Poll::Ready) return ranks[r]->status();
        return {};
      },
      40);
}

}  // namespace
}  // namespace tutti::transport::device
