// Endpoints of ranks in one process, on the fake driver: who sees what where, when, and what is left of them.
#include "transport/device/endpoint.h"

#include <cstring>
#include <vector>

#include "endpoint_play.h"

namespace tutti::transport::device::endpoint_test {
namespace {

using namespace play;
using exec::cuda::PipeEnd;
using exec::cuda::Protocol;
using memory::Purpose;
using memory::play::failEveryCall;

struct Pair : Ranks {
  Pair() : Ranks(2) {}
};

TEST(Endpoint, WaitsForTheOthers) {
  World world;
  Process process(world, 2);
  const std::shared_ptr<local::Hub> hub = *local::Hub::make(2);
  auto first = process.open(hub, 0, smallConfig(), 0);
  ASSERT_TRUE(first) << first.error().text();
  EXPECT_EQ((*first)->connect(), Poll::Pending);
  EXPECT_EQ((*first)->missing(), Rank(1));
  auto second = process.open(hub, 1, smallConfig(), 1);
  ASSERT_TRUE(second) << second.error().text();
  EXPECT_EQ((*second)->connect(), Poll::Pending) << (*second)->status().text();
  EXPECT_EQ((*second)->missing(), Rank(0)) << "it has not said yet what it thinks of the path";
  std::vector<std::unique_ptr<Endpoint>> both;
  both.push_back(std::move(*first));
  both.push_back(std::move(*second));
  const Status status = connectAll(both);
  EXPECT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(both[0]->missing(), Rank(-1));
}

/// As a thread does that has several ranks and asks for the state of one until it is settled.
TEST(Endpoint, AskingOneAloneDrivesTheOthers) {
  Ranks ranks(3, {.cut = {{0, 1}}});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Poll poll = Poll::Pending;
  while (poll == Poll::Pending && std::chrono::steady_clock::now() < until) poll = ranks.rank[2]->connect();
  EXPECT_EQ(poll, Poll::Ready) << ranks.rank[2]->status().text();
  ranks.rank[0].reset();  // while another may be driven
  EXPECT_EQ(ranks.rank[1]->connect(), Poll::Ready) << ranks.rank[1]->status().text();
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

/// Of three channels on two tracks, 0 and 2 are on the first one: only these have the pipe, and only these take memory for it.
TEST(Endpoint, PipesAreOnTheChannelsOfTheirTracks) {
  Pair pair;
  pair.connect();
  const exec::cuda::Tracks first{1, 2};
  const exec::cuda::Tracks second{2, 2};
  const PipeNeed sends[] = {{Protocol::Simple, 0, true, Rank(1), first}};
  const PipeNeed receives[] = {{Protocol::Simple, 0, false, Rank(0), first}, {Protocol::Simple, 1, false, Rank(0), second}};
  const PipeNeed more[] = {{Protocol::Simple, 1, true, Rank(1), second}};
  ASSERT_TRUE(pair.rank[0]->offer({sends}).ok() && pair.rank[0]->offer({more}).ok() && pair.rank[1]->offer({receives}).ok());
  ASSERT_EQ(pair.rank[1]->settle({receives}), Poll::Ready) << pair.rank[1]->status().text();
  ASSERT_EQ(pair.rank[0]->settle({sends}), Poll::Ready) << pair.rank[0]->status().text();
  ASSERT_EQ(pair.rank[0]->settle({more}), Poll::Ready) << pair.rank[0]->status().text();
  const PipeEnd* const from = pair.rank[0]->view(Protocol::Simple).pipes.ends;
  const PipeEnd* const to = pair.rank[1]->view(Protocol::Simple).pipes.ends;
  for (int32_t c = 0; c < 3; ++c) {
    const PipeEnd& a = from[c * exec::cuda::kMostEnds];
    const PipeEnd& b = to[c * exec::cuda::kMostEnds];
    EXPECT_EQ(a.port, c % 2 == 0 ? 0 : 1) << "channel " << c;
    EXPECT_EQ(a.slots, b.slots);
    EXPECT_EQ(a.tell, b.wait);
    EXPECT_EQ(a.wait, b.tell);
    EXPECT_EQ(from[c * exec::cuda::kMostEnds + 1].peer, -1) << "no further end";
    std::memset(a.slots, 1, 4096);
    EXPECT_EQ(*a.tell + *a.wait, 0u) << "slots do not reach into counters";
  }
  EXPECT_EQ(from[2 * exec::cuda::kMostEnds].slots - from[0].slots, 4 * 1024) << "beside each other, nothing between";
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
        TUTTI_TRY(connectAll(ranks));
        for (size_t r = 0; r < 2; ++r) TUTTI_TRY(ranks[r]->offer(needs[r]));
        for (size_t r = 0; r < 2; ++r)
          if (ranks[r]->settle(needs[r]) != Poll::Ready) return ranks[r]->status();
        return {};
      },
      40);
}

}  // namespace
}  // namespace tutti::transport::device::endpoint_test
