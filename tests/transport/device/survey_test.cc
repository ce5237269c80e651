// Who reaches whom: what settings, the driver and probes say of pairs of GPUs, that both ends come to the same, and where what they share
// then lies.
#include "transport/device/survey.h"

#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "../../observe/capture_log.h"
#include "endpoint_play.h"

namespace tutti::transport::device::survey_test {
namespace {

using namespace play;
using driver::cuda::Device;
using exec::cuda::PipeEnd;
using exec::cuda::Protocol;
using memory::play::failEveryCall;
using memory::play::openDescriptors;

using Pairs = std::set<std::pair<Device, Device>>;

/// So that a machine with other work makes no fault of a healthy path.
const PairRules kPatient{.meeting = std::chrono::seconds(20), .patience = std::chrono::seconds(5)};

/// All sets of pairs of `ranks` ranks.
std::vector<Pairs> allMatrices(int32_t ranks) {
  std::vector<std::pair<Device, Device>> pairs;
  for (int32_t a = 0; a < ranks; ++a)
    for (int32_t b = a + 1; b < ranks; ++b) pairs.emplace_back(a, b);
  std::vector<Pairs> all;
  for (uint32_t bits = 0; bits < 1U << pairs.size(); ++bits) {
    Pairs& cut = all.emplace_back();
    for (size_t p = 0; p < pairs.size(); ++p)
      if ((bits >> p & 1) != 0) cut.insert(pairs[p]);
  }
  return all;
}

/// Every rank's windows, and pipes between all of them.
void openAll(Ranks& ranks) {
  const auto count = static_cast<int32_t>(ranks.rank.size());
  std::vector<std::vector<PipeNeed>> pipes(ranks.rank.size());
  for (int32_t r = 0; r < count; ++r)
    for (int32_t p = 0; p < count; ++p)
      for (const bool sends : {false, true})
        if (p != r) pipes[static_cast<size_t>(r)].push_back({Protocol::Simple, 0, sends, Rank(p)});
  for (size_t r = 0; r < ranks.rank.size(); ++r) ASSERT_TRUE(ranks.rank[r]->offer({pipes[r], 1}).ok());
  for (size_t r = 0; r < ranks.rank.size(); ++r)
    ASSERT_EQ(ranks.rank[r]->settle({pipes[r], 1}), Poll::Ready) << ranks.rank[r]->status().text();
}

/// That what two ranks share is on the host where they are one of `onHost`, and on a GPU that both reach elsewhere.
void expectPlaces(Ranks& ranks, const Pairs& onHost) {
  const auto count = static_cast<int32_t>(ranks.rank.size());
  const auto isCut = [&](int32_t a, int32_t b) { return onHost.contains({std::min(a, b), std::max(a, b)}); };
  const auto sees = [&](int32_t device, const void* address, uint64_t bytes) {
    return ranks.world.fake->accessible(device, reinterpret_cast<uint64_t>(address), Bytes(bytes));
  };
  for (int32_t r = 0; r < count; ++r) {
    const auto view = ranks.rank[static_cast<size_t>(r)]->view(Protocol::Simple);
    bool anyCut = false;
    for (int32_t p = 0; p < count; ++p) anyCut = anyCut || (p != r && isCut(r, p));
    EXPECT_EQ(ranks.isOnHost(view.window.base[r]), anyCut) << r;
    EXPECT_EQ(ranks.isOnHost(view.window.arrivals[r]), anyCut) << r;
    EXPECT_EQ(ranks.isOnHost(view.wait.board), anyCut) << r;
    for (const void* own : {static_cast<const void*>(view.pipes.ends), static_cast<const void*>(view.wait.relay),
                            static_cast<const void*>(view.window.epochs), static_cast<const void*>(view.pipes.handOver)})
      EXPECT_FALSE(ranks.isOnHost(own)) << "what nobody else touches";
    EXPECT_EQ(ranks.rank[static_cast<size_t>(r)]->usesHostMemory(), !onHost.empty()) << "of all pairs, also others'";
    for (int32_t p = 0; p < count; ++p) {
      if (p == r) continue;
      EXPECT_TRUE(sees(r, view.window.base[p], 4096));
      EXPECT_TRUE(sees(r, view.window.arrivals[p], 128));
      EXPECT_TRUE(sees(r, view.wait.post[p], sizeof(exec::cuda::BoardEntry)));
      for (int e = 0; view.pipes.ends[e].peer >= 0; ++e) {
        const PipeEnd& end = view.pipes.ends[e];
        if (end.peer != p) continue;
        EXPECT_EQ(ranks.isOnHost(end.slots), isCut(r, p)) << r << " and " << p;
        EXPECT_EQ(ranks.isOnHost(end.wait), isCut(r, p));
        EXPECT_EQ(ranks.isOnHost(end.tell), isCut(r, p));
        EXPECT_TRUE(sees(r, end.slots, 4096) && sees(r, end.wait, 8) && sees(r, end.tell, 8));
        for (uint64_t i = 0; i < 4096; ++i) ASSERT_EQ(end.slots[i], std::byte{0});
      }
    }
  }
}

class SurveyMatrix : public testing::TestWithParam<int32_t> {};

TEST_P(SurveyMatrix, WhatTheDriverForbidsIsNotUsed) {
  for (const Pairs& cut : allMatrices(GetParam())) {
    const size_t before = openDescriptors();
    {
      Ranks ranks(GetParam(), {.cut = cut}, kPatient);
      ranks.connect();
      openAll(ranks);
      expectPlaces(ranks, cut);
      ranks.rank.clear();
      EXPECT_EQ(ranks.process.parking.size(), 0u);
      for (const auto& budget : ranks.process.hostBudgets)
        EXPECT_EQ(budget->usage().limited(), budget->usage().of(memory::Purpose::Idle));
    }
    EXPECT_EQ(openDescriptors(), before);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SurveyMatrix, testing::Values(2, 3, 4));

TEST(Survey, DisabledPeerAccessTakesTheHostForAll) {
  Ranks ranks(3, {}, {.p2pDisabled = true});
  ranks.connect();
  openAll(ranks);
  expectPlaces(ranks, {{0, 1}, {0, 2}, {1, 2}});
}

TEST(Survey, DistanceCounts) {
  PairRules rules;
  rules.isNear = [](Device one, Device other) { return one + other != 3; };
  Ranks ranks(3, {}, rules);
  ranks.connect();
  openAll(ranks);
  expectPlaces(ranks, {{1, 2}});
}

TEST(Survey, WhatOneEndDoesNotWantNeitherDoes) {
  Ranks ranks(2);
  ranks.rank[1].reset();
  const std::shared_ptr<local::Hub> hub = *local::Hub::make(2);
  std::vector<std::unique_ptr<Endpoint>> both;
  both.push_back(std::move(*ranks.process.open(hub, 0, smallConfig(), 0)));
  ranks.process.rules.p2pDisabled = true;
  both.push_back(std::move(*ranks.process.open(hub, 1, smallConfig(), 1)));
  const Status status = connectAll(both);
  ASSERT_TRUE(status.ok()) << status.text();
  for (const auto& rank : both) EXPECT_TRUE(rank->usesHostMemory());
  EXPECT_TRUE(ranks.isOnHost(both[0]->view(Protocol::Simple).wait.board));
}

TEST(Survey, NoWayAtAllIsAnErrorThatNamesBoth) {
  Ranks ranks(2, {.cut = {{0, 1}}}, {.shmDisabled = true});
  const Status status = connectAll(ranks.rank);
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  for (const char* part : {"rank 0 (GPU 0000:1a:00.0)", "rank 1 (GPU 0000:1b:00.0)", "NCCL_SHM_DISABLE=1", "no access to device"})
    EXPECT_NE(status.text().find(part), std::string::npos) << status.text();
}

/// Both ends of a pair that does not carry data.
struct Fault {
  const char* name;
  Pairs lossy;
  std::pair<int32_t, int32_t> spoilt;
  const char* said;
};

class SurveyFault : public testing::TestWithParam<Fault> {};

TEST_P(SurveyFault, IsNoticedByBothAndSaidOnce) {
  const Fault& fault = GetParam();
  const observe::play::CaptureLog log;
  PairRules rules{.meeting = kPatient.meeting};
  rules.spoilt = fault.spoilt;
  Ranks ranks(3, {.lossy = fault.lossy}, rules);
  const auto began = std::chrono::steady_clock::now();
  ranks.connect();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
  openAll(ranks);
  expectPlaces(ranks, {{0, 2}});
  EXPECT_EQ(log.count("cannot use each other's memory"), 1u) << log.text();
  for (const char* part : {"rank 0 (GPU 0000:1a:00.0) and rank 2 (GPU 0000:1c:00.0)", fault.said})
    EXPECT_EQ(log.count(part), 1u) << log.text();
  // It is known from now on.
  ranks.rank.clear();
  ranks.hub = *local::Hub::make(3);
  for (int32_t r = 0; r < 3; ++r) ranks.rank.push_back(std::move(*ranks.process.open(ranks.hub, r, smallConfig(), r)));
  const auto again = std::chrono::steady_clock::now();
  ranks.connect();
  EXPECT_LT(std::chrono::steady_clock::now() - again, std::chrono::milliseconds(100));
  openAll(ranks);
  expectPlaces(ranks, {{0, 2}});
  EXPECT_EQ(log.count("cannot use each other's memory"), 1u) << log.text();
}

INSTANTIATE_TEST_SUITE_P(Faults, SurveyFault,
                         testing::Values(Fault{"oneWay", {{0, 2}}, {-1, -1}, "rank 2 saw no flag of rank 0 within 200 ms in round 1"},
                                         Fault{"otherWay", {{2, 0}}, {-1, -1}, "rank 0 saw no flag of rank 2 within 200 ms in round 1"},
                                         Fault{"bothWays", {{0, 2}, {2, 0}}, {-1, -1}, "saw no flag of rank"},
                                         Fault{"wrongData", {}, {2, 0}, "where rank 2 wrote"}),
                         [](const auto& param) { return param.param.name; });

TEST(Survey, WithoutProbesTheDriverIsTrusted) {
  Ranks ranks(2, {.lossy = {{0, 1}}}, {.probes = false});
  ranks.connect();
  EXPECT_FALSE(ranks.rank[0]->usesHostMemory());
}

/// The thread of one rank sleeps until the other's probe has given up.
TEST(Survey, ASideThatComesLateIsNoFault) {
  Ranks ranks(2, {.lossy = {{0, 1}}}, {.meeting = std::chrono::milliseconds(50)});
  while (ranks.hub->isAlive(Rank(0)) && ranks.world.fake->alive().working == 0) {
    ASSERT_EQ(ranks.rank[0]->connect(), Poll::Pending) << ranks.rank[0]->status().text();
    if (ranks.world.fake->alive().working != 0) break;
    ASSERT_EQ(ranks.rank[1]->connect(), Poll::Pending) << ranks.rank[1]->status().text();
    if (ranks.world.fake->alive().working != 0) break;
  }
  while (ranks.world.fake->alive().working != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ranks.connect();
  EXPECT_FALSE(ranks.rank[0]->usesHostMemory()) << "nothing is known against the path";
  const auto gpu = [&](size_t r) { return ranks.process.gpus[r]->info().uuid.bytes; };
  EXPECT_FALSE(ranks.process.pairs.find(gpu(0), gpu(1))) << "and it is tried again the next time";
}

TEST(Survey, AnAbortEndsProbes) {
  Ranks ranks(2, {.lossy = {{0, 1}, {1, 0}}}, kPatient);
  while (ranks.world.fake->alive().working == 0)
    for (const auto& rank : ranks.rank) ASSERT_EQ(rank->connect(), Poll::Pending);
  const auto began = std::chrono::steady_clock::now();
  ranks.hub->failAll(error(Code::RemoteError, "for a test"));
  ranks.rank.clear();
  EXPECT_LT(std::chrono::steady_clock::now() - began, kPatient.patience / 2) << "a probe that ends by itself takes all of it";
}

TEST(Survey, EveryFailureOfTheDriverIsNamedAndLeavesNothing) {
  failEveryCall(
      FakeOptions{.devices = 3, .cut = {{0, 1}}},
      [](World& world) -> Status {
        Process process(world, 3);
        TUTTI_TRY(process.status);
        process.rules.meeting = std::chrono::milliseconds(50);  // where one side fails the other is not told
        auto hub = local::Hub::make(3);
        if (!hub) return hub.error();
        std::vector<std::unique_ptr<Endpoint>> ranks;
        for (int32_t r = 0; r < 3; ++r) {
          auto opened = process.open(*hub, r, smallConfig(), r);
          if (!opened) return opened.error();
          ranks.push_back(std::move(*opened));
        }
        TUTTI_TRY(connectAll(ranks));
        const PipeNeed sends[] = {{Protocol::Simple, 3, true, Rank(1)}, {Protocol::Simple, 3, true, Rank(2)}};
        const PipeNeed receives[] = {{Protocol::Simple, 3, false, Rank(0)}};
        const Needs needs[] = {{sends, 0}, {receives, 0}, {receives, 0}};
        for (size_t r = 0; r < 3; ++r) TUTTI_TRY(ranks[r]->offer(needs[r]));
        for (size_t r = 0; r < 3; ++r)
          if (ranks[r]->settle(needs[r]) != Poll::Ready) return ranks[r]->status();
        return {};
      },
      60);
}

}  // namespace
}  // namespace tutti::transport::device::survey_test
