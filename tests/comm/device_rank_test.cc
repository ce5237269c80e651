// Calls of two ranks on GPUs, up to their launches: which there are, with what, on which stream, and what a repeated one costs.
#include "comm/device_rank.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "config/params.h"
#include "connect/layout.h"
#include "device_play.h"

namespace tutti::comm::device_rank_test {
namespace {

using driver::cuda::Error;
using driver::cuda::Graph;
using driver::cuda::Stream;
using play::Gpus;
using play::Launched;

plan::DeviceSettings settingsOf(int32_t ranks) {
  plan::DeviceSettings settings;
  settings.mostBlocks.fill(64);
  settings.maxChannels = 8;
  settings.messageChannels = 2;
  settings.messageBlocks = 8;
  settings.slots = {4, 4, 4};
  settings.slotBytes = {57344, 16384, 61440};
  settings.shareBytes = {16384, 32768};
  settings.windowChannels = {8, 8};
  settings.hasWindows = ranks <= exec::cuda::kMaxLocalRanks;
  settings.hasLines = true;
  return settings;
}

class DeviceRankTest : public testing::Test {
 protected:
  static constexpr int32_t kRanks = 3;

  void SetUp() override {
    unsetenv("TUTTI_DEVICE");
    setenv("NCCL_CONF_FILE", "/dev/null", 1);
    config::resetForTest();
    ASSERT_TRUE(*gpus.devices.useGpus());
    reopen(settingsOf(kRanks));
  }

  void reopen(const plan::DeviceSettings& settings) {
    ranks.clear();
    hub = *transport::local::Hub::make(kRanks);
    for (int32_t r = 0; r < kRanks; ++r) {
      auto opened = DeviceRank::open(hub, Rank(r), layout, settings, true, gpus.devices, **gpus.devices.at(r));
      ASSERT_TRUE(opened) << opened.error().text();
      ranks.push_back(std::move(*opened));
    }
    for (size_t ready = 0; ready < ranks.size();) {
      ready = 0;
      for (const auto& rank : ranks) {
        const Poll poll = rank->connect();
        ASSERT_NE(poll, Poll::Failed) << rank->status().text();
        ready += poll == Poll::Ready ? 1 : 0;
      }
    }
  }

  DeviceCall collective(int32_t rank, Collective what, uint64_t count, DataType type = DataType::F32, Stream stream = nullptr) {
    return call(rank, {what, type, ReduceOp::Sum, {}, count, Rank(0), false}, stream);
  }
  DeviceCall message(int32_t rank, int32_t peer, bool receives, uint64_t bytes, Stream stream = nullptr) {
    return call(rank, {Collective::SendRecv, DataType::I8, ReduceOp::Sum, {}, bytes, Rank(peer), receives}, stream);
  }
  DeviceCall call(int32_t rank, const plan::Shape& shape, Stream stream) {
    DeviceCall made;
    auto plan = ranks[static_cast<size_t>(rank)]->planFor(shape);
    EXPECT_TRUE(plan) << plan.error().text();
    made.plan = plan ? *plan : nullptr;
    made.call = {shape.collective, shape.type, 0, shape.root.value, shape.count, 0, shape.receives};
    made.in = made.out = &buffer;
    made.stream = stream;
    return made;
  }
  /// As a group does it for all ranks of a thread.
  void launchAll(std::vector<std::vector<DeviceCall>>& calls) {
    for (size_t r = 0; r < calls.size(); ++r) ASSERT_TRUE(ranks[r]->offer(calls[r]).ok());
    for (size_t r = 0; r < calls.size(); ++r) ASSERT_EQ(ranks[r]->settle(calls[r]), Poll::Ready) << ranks[r]->status().text();
    for (size_t r = 0; r < calls.size(); ++r) {
      const Status status = ranks[r]->launch(calls[r]);
      ASSERT_TRUE(status.ok()) << status.text();
    }
  }
  std::vector<Launched> of(int32_t rank) const {
    std::vector<Launched> found;
    for (const Launched& l : gpus.launches)
      if (l.launch.comm.rank == rank) found.push_back(l);
    return found;
  }

  Gpus gpus{driver::cuda::FakeOptions{.devices = kRanks}};
  std::shared_ptr<transport::local::Hub> hub;
  connect::Layout layout = connect::Layout::natural(kRanks);
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  std::byte buffer{};
};

TEST_F(DeviceRankTest, AllRanksLaunchTheSame) {
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) calls[static_cast<size_t>(r)].push_back(collective(r, Collective::AllReduce, 1 << 20));
  launchAll(calls);
  ASSERT_EQ(gpus.launches.size(), static_cast<size_t>(kRanks));
  const Launched& first = gpus.launches[0];
  for (int32_t r = 0; r < kRanks; ++r) {
    const Launched& l = gpus.launches[static_cast<size_t>(r)];
    EXPECT_EQ(l.launch.comm.rank, r);
    EXPECT_EQ(l.kernel, first.kernel);
    EXPECT_EQ(l.options.blocks, first.options.blocks);
    EXPECT_EQ(l.launch.works, 1);
    EXPECT_EQ(l.launch.work[0].geometry.channels, first.launch.work[0].geometry.channels);
    EXPECT_EQ(l.launch.comm.wait.signature, first.launch.comm.wait.signature);
    EXPECT_NE(l.launch.work[0].program.words, nullptr);
    EXPECT_TRUE(gpus.fake->accessible(r, reinterpret_cast<uint64_t>(l.launch.work[0].program.words), Bytes(8)));
    EXPECT_EQ(l.launch.work[0].in, &buffer);
  }
}

TEST_F(DeviceRankTest, ARepeatedCallCostsNoMemoryAndFewCalls) {
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) calls[static_cast<size_t>(r)].push_back(collective(r, Collective::AllReduce, 1 << 20));
  launchAll(calls);
  const Bytes used = gpus.fake->used(0);
  gpus.fake->failAt(0);
  DeviceCall again = collective(0, Collective::AllReduce, 1 << 20);
  EXPECT_TRUE(again.plan->isOpen);
  ASSERT_TRUE(ranks[0]->launch(std::span(&again, 1)).ok());
  EXPECT_LE(gpus.fake->calls(), 5u) << "context in and out, capture, the event before and the event behind";
  EXPECT_EQ(gpus.fake->used(0), used);
  EXPECT_EQ(of(0).size(), 2u);
}

TEST_F(DeviceRankTest, LaunchesAreEarlyWhileFewCommunicatorsUseTheGpu) {
  plan::DeviceSettings settings = settingsOf(kRanks);
  settings.mostEarlyRanks = 2;
  reopen(settings);
  const auto isEarly = [&] {
    DeviceCall again = collective(0, Collective::AllReduce, 2);
    EXPECT_TRUE(ranks[0]->launch(std::span(&again, 1)).ok());
    return of(0).back().options.mayOverlap;
  };
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) calls[static_cast<size_t>(r)].push_back(collective(r, Collective::AllReduce, 2));
  launchAll(calls);
  const auto open = [&](int32_t ordinal) {
    auto other = DeviceRank::open(*transport::local::Hub::make(kRanks), Rank(0), layout, settings, true, gpus.devices,
                                  **gpus.devices.at(ordinal));
    EXPECT_TRUE(other) << other.error().text();
    return std::move(*other);
  };
  EXPECT_TRUE(isEarly());
  const auto second = open(0);
  EXPECT_TRUE(isEarly());
  {
    const auto third = open(0);
    EXPECT_FALSE(isEarly());
  }
  const auto elsewhere = open(1);
  EXPECT_TRUE(isEarly());
}

TEST_F(DeviceRankTest, LargeCallsAreLaunchedInClusters) {
  plan::DeviceSettings settings = settingsOf(kRanks);
  for (const auto kernel : {exec::cuda::KernelId::Simple, exec::cuda::KernelId::Bulk})
    settings.clusters[static_cast<size_t>(kernel)] = {0, 60, 66};
  reopen(settings);
  const auto gridOf = [&](uint64_t count) {
    std::vector<std::vector<DeviceCall>> calls(kRanks);
    for (int32_t r = 0; r < kRanks; ++r) calls[static_cast<size_t>(r)].push_back(collective(r, Collective::AllReduce, count));
    launchAll(calls);
    const exec::cuda::LaunchOptions options = of(0).back().options;
    EXPECT_GE(options.grid.blocks, options.blocks);
    EXPECT_LE(options.grid.blocks, settings.maxChannels);
    return options.grid.clusterBlocks;
  };
  EXPECT_EQ(gridOf(2), 1);
  EXPECT_EQ(gridOf(64 << 20), 4);
  settings.maxChannels = 9;
  reopen(settings);
  EXPECT_EQ(gridOf(64 << 20), 1) << "no block beyond what the user allows";
}

TEST_F(DeviceRankTest, CallsOfAGroupShareALaunchWhereTheyCan) {
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) {
    auto& mine = calls[static_cast<size_t>(r)];
    mine.push_back(collective(r, Collective::AllReduce, 2));
    mine.push_back(collective(r, Collective::AllReduce, 2, DataType::I32));
    mine.push_back(collective(r, Collective::AllReduce, 2, DataType::U32));
    mine.push_back(collective(r, Collective::AllReduce, 2, DataType::U32));
  }
  launchAll(calls);
  const auto launches = of(1);
  ASSERT_EQ(launches.size(), 2u) << "floats by themselves";
  EXPECT_EQ(launches[0].launch.works, 1);
  EXPECT_EQ(launches[1].launch.works, 3) << "signed and unsigned integers have the same loops";
  EXPECT_EQ(of(0)[1].launch.comm.wait.signature, launches[1].launch.comm.wait.signature);
  EXPECT_NE(launches[0].launch.comm.wait.signature, launches[1].launch.comm.wait.signature);
}

TEST_F(DeviceRankTest, AMoveInFrontDoesNotMixLoopTypes) {
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) {
    auto& mine = calls[static_cast<size_t>(r)];
    mine.push_back(collective(r, Collective::AllGather, 2));
    mine.push_back(collective(r, Collective::AllReduce, 2));
    mine.push_back(collective(r, Collective::AllReduce, 2, DataType::F16));
  }
  launchAll(calls);
  const auto launches = of(1);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].launch.works, 2) << "a move shares a launch with whatever is combined";
  EXPECT_EQ(launches[0].launch.type, DataType::F32);
  EXPECT_EQ(launches[1].launch.type, DataType::F16);
}

/// One pair of three that shares host memory forbids lines to all, so that all choose alike.
TEST_F(DeviceRankTest, LinesNeedPeerMemoryBetweenAllRanks) {
  const auto takesLines = [this] {
    std::vector<bool> takes;
    for (const auto& rank : ranks) {
      plan::Shape shape{Collective::AllReduce, DataType::F32, ReduceOp::Sum, {}, 1 << 18, Rank(0), false};
      const auto plan = rank->planFor(shape);
      EXPECT_TRUE(plan || plan.error().code() == Code::InvalidUsage) << plan.error().text();
      takes.push_back(plan.has_value() && (*plan)->plan->kernel == exec::cuda::KernelId::Lines);
    }
    return takes;
  };
  plan::DeviceSettings settings = settingsOf(kRanks);
  settings.protocols = *tune::Filter::parse("NCCL_PROTO", "LL128", tune::ncclProtocolNames());
  reopen(settings);
  EXPECT_EQ(takesLines(), (std::vector<bool>{true, true, true}));
  ranks.clear();
  gpus.devices.replaceForTest(
      [this]() -> Result<std::unique_ptr<driver::cuda::Api>> {
        auto api = std::make_unique<driver::cuda::FakeApi>(driver::cuda::FakeOptions{.devices = kRanks, .cut = {{0, 1}}});
        gpus.fake = api.get();
        return std::unique_ptr<driver::cuda::Api>(std::move(api));
      },
      [this] { return std::make_unique<play::WrittenDown>(gpus.launches); });
  ASSERT_TRUE(*gpus.devices.useGpus());
  reopen(settings);
  EXPECT_EQ(takesLines(), (std::vector<bool>{false, false, false}));
}

TEST_F(DeviceRankTest, StreamsInDifferentCapturesAreRefused) {
  const auto scope = driver::cuda::ContextScope::enter((*gpus.devices.at(0))->gpu->context());
  const Stream a = *gpus.devices.driver().createStream();
  const Stream b = *gpus.devices.driver().createStream();
  const std::vector<DeviceCall> calls = {collective(0, Collective::AllReduce, 2, DataType::F32, a),
                                         collective(0, Collective::AllReduce, 2, DataType::F32, b)};
  EXPECT_TRUE(ranks[0]->checkStreams(calls).ok());
  ASSERT_EQ(gpus.fake->beginCapture(b), Error::Success);
  EXPECT_EQ(ranks[0]->checkStreams(calls).code(), Code::InvalidUsage);
  ASSERT_EQ(gpus.fake->beginCapture(a), Error::Success);
  EXPECT_EQ(ranks[0]->checkStreams(calls).code(), Code::InvalidUsage);
  Graph graph = nullptr;
  ASSERT_EQ(gpus.fake->endCapture(a, &graph), Error::Success);
  ASSERT_EQ(gpus.fake->destroyGraph(graph), Error::Success);
  const auto forked = driver::cuda::OwnedEvent::of(gpus.devices.driver(), gpus.devices.driver().createEvent());
  ASSERT_TRUE(gpus.devices.driver().record(forked->get(), b).ok());
  ASSERT_TRUE(gpus.devices.driver().wait(a, forked->get()).ok());
  EXPECT_TRUE(ranks[0]->checkStreams(calls).ok()) << "one capture";
  ASSERT_EQ(gpus.fake->endCapture(b, &graph), Error::Success);
  ASSERT_EQ(gpus.fake->destroyGraph(graph), Error::Success);
  gpus.devices.driver().destroyStream(a);
  gpus.devices.driver().destroyStream(b);
}

TEST_F(DeviceRankTest, MessagesComeAfterCollectivesAndByDistance) {
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) {
    auto& mine = calls[static_cast<size_t>(r)];
    for (int32_t d = kRanks - 1; d > 0; --d) {
      mine.push_back(message(r, (r + d) % kRanks, false, 100000));
      mine.push_back(message(r, (r + kRanks - d) % kRanks, true, 100000));
    }
    mine.push_back(collective(r, Collective::AllReduce, 2));
  }
  launchAll(calls);
  const auto launches = of(2);
  ASSERT_GE(launches.size(), 2u);
  EXPECT_EQ(launches[0].launch.works, 1);
  EXPECT_NE(launches[0].launch.comm.wait.board, nullptr);
  EXPECT_EQ(launches[1].launch.comm.wait.board, nullptr) << "ranks do not count each other's messages";
  EXPECT_EQ(launches[1].launch.works, 4);
  // Each message on blocks of its own: they wait for peers that are at another message.
  std::set<int32_t> begins;
  for (int32_t w = 0; w < 4; ++w) {
    const exec::cuda::Work& work = launches[1].launch.work[w];
    EXPECT_TRUE(begins.insert(work.firstBlock).second);
    EXPECT_LE(work.firstBlock + work.blocks(), launches[1].options.blocks);
    EXPECT_EQ(work.firstLane, w % 2) << "the nearest first, a send and a receive each";
  }
}

TEST_F(DeviceRankTest, MessagesOfAPairFollowOneAnother) {
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int i = 0; i < 3; ++i) {
    calls[0].push_back(message(0, 1, false, 1000));
    calls[1].push_back(message(1, 0, true, 1000));
  }
  launchAll(calls);
  const auto launches = of(0);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].launch.works, 3);
  for (int32_t w = 0; w < 3; ++w) EXPECT_EQ(launches[0].launch.work[w].firstBlock, 0) << "they use the same ends";
}

TEST_F(DeviceRankTest, ALaunchEndsWhereItsListIsFull) {
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  const int many = 2 * exec::cuda::kInlineWorks + 1;
  for (int32_t r = 0; r < kRanks; ++r)
    for (int i = 0; i < many; ++i) calls[static_cast<size_t>(r)].push_back(collective(r, Collective::AllReduce, 2));
  launchAll(calls);
  const auto launches = of(0);
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches[2].launch.works, 1);
}

TEST_F(DeviceRankTest, StreamsOfAGroupMeet) {
  const auto scope = driver::cuda::ContextScope::enter((*gpus.devices.at(0))->gpu->context());
  const Stream a = *gpus.devices.driver().createStream();
  const Stream b = *gpus.devices.driver().createStream();
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r)
    for (const Stream s : {a, b}) calls[static_cast<size_t>(r)].push_back(collective(r, Collective::AllReduce, 2, DataType::F32, s));
  launchAll(calls);
  const auto launches = of(0);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].stream, a);
  EXPECT_EQ(launches[0].launch.works, 2);
  gpus.devices.driver().destroyStream(a);
  gpus.devices.driver().destroyStream(b);
}

/// The launch is on the first stream: work of the other that came before is over by then, and what comes later on the other waits for it.
TEST_F(DeviceRankTest, WorkOfAllStreamsOfAGroupStaysInOrder) {
  const auto scope = driver::cuda::ContextScope::enter((*gpus.devices.at(0))->gpu->context());
  const Stream a = *gpus.devices.driver().createStream();
  const Stream b = *gpus.devices.driver().createStream();
  for (const auto& [before, after] : {std::pair{b, a}, std::pair{a, b}}) {
    std::promise<void> gate;
    std::atomic<bool> isOpen = false;
    std::promise<bool> seen;
    ASSERT_EQ(gpus.fake->enqueue(before, [&] { gate.get_future().wait(); }), driver::cuda::Error::Success);
    std::vector<std::vector<DeviceCall>> calls(kRanks);
    for (int32_t r = 0; r < kRanks; ++r)
      for (const Stream s : {a, b}) calls[static_cast<size_t>(r)].push_back(collective(r, Collective::AllReduce, 2, DataType::F32, s));
    launchAll(calls);
    ASSERT_EQ(gpus.fake->enqueue(after, [&] { seen.set_value(isOpen); }), driver::cuda::Error::Success);
    auto order = seen.get_future();
    EXPECT_EQ(order.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout) << "it overtakes the launch";
    isOpen = true;
    gate.set_value();
    EXPECT_TRUE(order.get());
    for (const Stream s : {a, b}) EXPECT_TRUE(gpus.devices.driver().synchronize(s).ok());  // before the gate goes
  }
  gpus.devices.driver().destroyStream(a);
  gpus.devices.driver().destroyStream(b);
}

TEST_F(DeviceRankTest, AVerdictIsAnError) {
  EXPECT_FALSE(ranks[0]->look());
  transport::device::Page page(*hub->devicePage(Bytes(transport::device::Page::bytesFor(kRanks))), kRanks);
  exec::cuda::Verdict& verdict = page.waits(2).givenUp;
  verdict.waiting = exec::cuda::Waiting::ForData;
  verdict.rank = 2;
  verdict.peer = 1;
  verdict.state = exec::cuda::Verdict::Complete;
  verdict.waitedNs = 5'000'000;
  const auto found = ranks[0]->look();
  ASSERT_TRUE(found);
  const Status& status = found->outcome.cause;
  EXPECT_EQ(found->rank, Rank(2));
  EXPECT_EQ(found->waitedMs, 5);
  EXPECT_EQ(status.code(), Code::RemoteError);
  EXPECT_NE(status.text().find("rank 2 has waited 5 ms"), std::string::npos) << status.text();
  EXPECT_NE(status.text().find("data from rank 1"), std::string::npos) << status.text();
  verdict.waiting = exec::cuda::Waiting::Mismatch;
  EXPECT_EQ(ranks[1]->look()->outcome.cause.code(), Code::InvalidUsage);
}

// 0 waits for 2, and 2 for 1, of which nothing is known.
TEST_F(DeviceRankTest, AVerdictTellsWhereTheWaitsEnd) {
  transport::device::Page page(*hub->devicePage(Bytes(transport::device::Page::bytesFor(kRanks))), kRanks);
  using exec::cuda::Verdict;
  using exec::cuda::Waiting;
  const auto leave = [&](int32_t rank, int32_t peer, Verdict::State state, Waiting waiting = Waiting::ForData) {
    Verdict& verdict = page.waits(rank).givenUp;
    verdict.waiting = waiting;
    verdict.rank = rank;
    verdict.peer = peer;
    std::atomic_ref(verdict.state).store(state, std::memory_order_release);
  };
  const auto textOf = [](const std::optional<GivenUp>& found) { return found ? std::string(found->outcome.cause.text()) : std::string(); };
  leave(2, 1, Verdict::Ended);
  EXPECT_FALSE(ranks[0]->look()) << "nobody has given up";
  leave(2, 1, Verdict::Claimed);
  leave(0, 2, Verdict::Complete);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    leave(2, 1, Verdict::Ended);
  });
  const auto found = ranks[1]->look();
  late.join();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, Rank(0));
  EXPECT_EQ(found->outcome.awaited, Rank(1));
  const std::string words = "; that of rank 2, where these waits end, waits for data from rank 1 (";
  EXPECT_NE(textOf(found).find(words), std::string::npos) << textOf(found);
  leave(1, 0, Verdict::Ended);
  const auto circle = ranks[1]->look();
  EXPECT_EQ(circle->outcome.awaited, Rank(2)) << "they wait for each other, maybe in a graph: whom the first one waited for";
  EXPECT_EQ(textOf(circle).find("where these waits end"), std::string::npos) << textOf(circle);
  leave(1, 0, Verdict::Ended, Waiting::ForHandOver);
  EXPECT_EQ(ranks[1]->look()->outcome.awaited, Rank(1)) << "it waited for another lane of its own";
}

// Whoever looks, of whichever process, finds them where the rank has left them.
TEST_F(DeviceRankTest, CallsOfALaunchAreFoundAgain) {
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) {
    auto& own = calls[static_cast<size_t>(r)];
    own.push_back(collective(r, Collective::AllReduce, 1 << 25));
    own.back().call.sequence = 70'000;
    own.push_back(collective(r, Collective::AllReduce, 1000));
    own.back().call.sequence = 70'001;
  }
  calls[0].push_back(message(0, 1, false, 4000));
  calls[1].push_back(message(1, 0, true, 4000));
  launchAll(calls);
  const transport::device::Page page(*hub->devicePage(Bytes(transport::device::Page::bytesFor(kRanks))), kRanks);
  size_t found = 0;
  for (const Launched& l : gpus.launches) {
    const auto [known, isEager] = page.launches(l.launch.comm.rank).find(l.launch.comm.wait.signature);
    EXPECT_TRUE(isEager);
    ASSERT_EQ(known.size(), static_cast<size_t>(l.launch.works));
    for (const Call& call : known) {
      const auto& own = calls[static_cast<size_t>(l.launch.comm.rank)];
      found += std::ranges::count_if(own, [&](const DeviceCall& made) { return made.call == call; });
    }
  }
  EXPECT_EQ(found, 8u);
  EXPECT_TRUE(page.launches(0).find(12345).calls.empty());
}

TEST_F(DeviceRankTest, ItIsIdleOnceItsKernelsHaveEnded) {
  EXPECT_TRUE(ranks[0]->isIdle());
  std::vector<std::vector<DeviceCall>> calls(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) calls[static_cast<size_t>(r)].push_back(collective(r, Collective::AllReduce, 2));
  launchAll(calls);
  gpus.fake->setBusy(true);
  EXPECT_FALSE(ranks[0]->isIdle());
  gpus.fake->setBusy(false);
  EXPECT_TRUE(ranks[0]->isIdle());
}

}  // namespace
}  // namespace tutti::comm::device_rank_test
