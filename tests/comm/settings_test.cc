#include "comm/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "algo/sendrecv.h"
#include "config/params.h"

namespace tutti::comm::settings_test {
namespace {

constexpr int32_t kFloat = 7;

CallRequest request(Collective collective, int32_t root = 0) {
  static int buffer = 0;
  CallRequest r;
  r.collective = collective;
  r.in = &buffer;
  r.out = &buffer;
  r.count = 10;
  r.type = kFloat;
  r.root = root;
  return r;
}

void expectRefused(const Status& status, std::string_view word) {
  EXPECT_EQ(status.code(), Code::InvalidArgument);
  EXPECT_NE(status.text().find(word), std::string::npos) << status.text();
}

TEST(CheckArguments, TakesWhatIsRight) {
  for (int c = 0; c < kNumCollectives; ++c)
    for (int32_t type = 0; type < kNumDataTypes; ++type) {
      CallRequest r = request(static_cast<Collective>(c), 3);
      r.type = type;
      EXPECT_TRUE(checkArguments(r, 4).ok());
    }
}

TEST(CheckArguments, RefusesRootsAndPeersThatAreNoRank) {
  for (const int32_t root : {-1, 4, 1000, INT32_MIN, INT32_MAX}) {
    for (const Collective c : {Collective::Broadcast, Collective::Reduce, Collective::Gather, Collective::Scatter}) {
      expectRefused(checkArguments(request(c, root), 4), "root " + std::to_string(root));
      expectRefused(checkArguments(request(c, root), 4), "0 to 3");
    }
    expectRefused(checkArguments(request(Collective::SendRecv, root), 4), "peer " + std::to_string(root));
    EXPECT_TRUE(checkArguments(request(Collective::AllReduce, root), 4).ok()) << "has none";
  }
}

TEST(CheckArguments, RefusesTypesThatAreNone) {
  for (const int32_t type : {-1, 12, 255, INT32_MAX}) {
    CallRequest r = request(Collective::AllReduce);
    r.type = type;
    expectRefused(checkArguments(r, 4), "datatype " + std::to_string(type));
  }
}

TEST(CheckArguments, TheRootComesBeforeTheType) {
  CallRequest r = request(Collective::Broadcast, 9);
  r.type = 99;
  expectRefused(checkArguments(r, 4), "root 9");
}

TEST(CheckArguments, RefusesBuffersThatCannotExist) {
  CallRequest r = request(Collective::AllGather);
  r.count = (uint64_t{1} << 62) / 4 / 4;
  EXPECT_TRUE(checkArguments(r, 4).ok());
  for (const uint64_t count : {r.count + 1, UINT64_MAX, uint64_t{1} << 63}) {
    r.count = count;
    expectRefused(checkArguments(r, 4), "count " + std::to_string(count));
  }
}

struct Needs {
  Collective collective;
  int32_t root;
  bool receives;
  bool in;
  bool out;
};

TEST(CheckBuffers, AsksForWhatThisRankTouches) {
  const Needs all[] = {
      {Collective::AllReduce, 0, false, true, true},     {Collective::AllGather, 0, false, true, true},
      {Collective::ReduceScatter, 0, false, true, true}, {Collective::AllToAll, 0, false, true, true},
      {Collective::Broadcast, 1, false, true, true},     {Collective::Broadcast, 0, false, false, true},
      {Collective::Reduce, 1, false, true, true},        {Collective::Reduce, 0, false, true, false},
      {Collective::Scatter, 1, false, true, true},       {Collective::Scatter, 0, false, false, true},
      {Collective::Gather, 1, false, true, true},        {Collective::Gather, 0, false, true, false},
      {Collective::SendRecv, 0, false, true, false},     {Collective::SendRecv, 0, true, false, true},
  };
  for (const Needs& needs : all) {
    SCOPED_TRACE(std::string(name(needs.collective)) + " root " + std::to_string(needs.root));
    CallRequest r = request(needs.collective, needs.root);
    r.receives = needs.receives;
    EXPECT_TRUE(checkBuffers(r, Rank(1)).ok());
    CallRequest noIn = r;
    noIn.in = nullptr;
    EXPECT_EQ(checkBuffers(noIn, Rank(1)).ok(), !needs.in);
    if (needs.in) expectRefused(checkBuffers(noIn, Rank(1)), "sendbuff");
    CallRequest noOut = r;
    noOut.out = nullptr;
    EXPECT_EQ(checkBuffers(noOut, Rank(1)).ok(), !needs.out);
    if (needs.out) expectRefused(checkBuffers(noOut, Rank(1)), "recvbuff");
    noOut.in = nullptr;
    noOut.count = 0;
    EXPECT_TRUE(checkBuffers(noOut, Rank(1)).ok()) << "nothing is touched";
  }
}

TEST(Settings, KnowWhatReducesAndWhatHasARoot) {
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    EXPECT_EQ(reduces(collective),
              collective == Collective::AllReduce || collective == Collective::Reduce || collective == Collective::ReduceScatter);
    EXPECT_EQ(hasRootOrPeer(collective), collective == Collective::Broadcast || collective == Collective::Reduce ||
                                             collective == Collective::Gather || collective == Collective::Scatter ||
                                             collective == Collective::SendRecv);
  }
}

/// Sets variables for one test and forgets them afterwards.
class FromEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* n : {"TUTTI_SIMD", "TUTTI_SLOTS", "TUTTI_SLICE_BYTES", "TUTTI_ALGO", "NCCL_ALGO", "NCCL_BUFFSIZE",
                          "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "TUTTI_SPIN",
                          "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS", "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "TUTTI_HOP_NS",
                          "TUTTI_SWITCH_NS", "TUTTI_CORE_GBPS", "TUTTI_FLIGHT_RECORDER"})
      unsetenv(n);
    setenv("NCCL_CONF_FILE", "/dev/null", 1);
    config::resetForTest();
  }
  void TearDown() override { SetUp(); }
  static void set(const char* variable, const char* value) {
    setenv(variable, value, 1);
    config::resetForTest();
  }
  static plan::Settings read(const Config& config = {}) {
    auto settings = readSettings(config);
    EXPECT_TRUE(settings) << (settings ? "" : settings.error().text());
    return settings ? *settings : plan::Settings();
  }
  static void expectError(std::string_view word) {
    const auto settings = readSettings({});
    ASSERT_FALSE(settings) << word;
    EXPECT_EQ(settings.error().code(), Code::InvalidUsage);
    EXPECT_NE(settings.error().text().find(word), std::string::npos) << settings.error().text();
  }
};

TEST_F(FromEnvironment, WithNothingSetThereAreDefaults) {
  const plan::Settings settings = read();
  EXPECT_EQ(settings.channels, 1);
  EXPECT_GE(settings.slots, 2U);
  EXPECT_EQ(settings.simd, exec::host::detectSimd());
  EXPECT_TRUE(settings.restrictions.nccl.allows(Collective::AllReduce, "oneshot"));
}

TEST_F(FromEnvironment, SlotsAndSlicesAreBounded) {
  set("TUTTI_SLOTS", "1");
  EXPECT_EQ(read().slots, 2U);
  set("TUTTI_SLOTS", "5");
  EXPECT_EQ(read().slots, 5U);
  set("TUTTI_SLOTS", "100000000");
  EXPECT_LE(read().slots, 4096U);
  set("TUTTI_SLICE_BYTES", "1");
  EXPECT_EQ(read().sliceBytes, 64U);
  set("TUTTI_SLICE_BYTES", "1000");
  EXPECT_EQ(read().sliceBytes, 1000U);
  EXPECT_EQ(read().messageBytes, 1000U);
}

TEST_F(FromEnvironment, OlderNamesOfChannelsCountToo) {
  set("NCCL_MIN_NRINGS", "3");
  set("NCCL_MIN_NCHANNELS", "2");
  set("NCCL_MAX_NRINGS", "5");
  EXPECT_EQ(read().channels, 3);
  EXPECT_EQ(read().maxChannels, 5);
}

TEST_F(FromEnvironment, ChannelsOfMessagesAreTheUsers) {
  exec::cuda::KernelUses uses;
  for (exec::cuda::KernelUse& use : uses.of) use.blocksPerMultiprocessor = 1;
  uses.lone.blocksPerMultiprocessor = 1;
  Place place;
  place.ranks = 4;
  place.multiprocessors = 132;
  const auto channels = [&] {
    const auto settings = readDeviceSettings(read(), {}, place, uses);
    EXPECT_TRUE(settings);
    return settings ? settings->messageChannels : 0;
  };
  const int32_t before = channels();
  set("NCCL_MAX_P2P_NCHANNELS", "2");
  EXPECT_EQ(channels(), 2);
  set("NCCL_MAX_P2P_NCHANNELS", "64");
  EXPECT_EQ(channels(), before);
  set("NCCL_MIN_P2P_NCHANNELS", std::to_string(before + 3).c_str());
  EXPECT_EQ(channels(), before + 3);
}

TEST_F(FromEnvironment, TheEfficientPolicyLeavesMultiprocessorsToOthers) {
  exec::cuda::KernelUses uses;
  for (exec::cuda::KernelUse& use : uses.of) use.blocksPerMultiprocessor = 1;
  Place place;
  place.ranks = 2;
  place.multiprocessors = 132;
  Config config;
  const auto most = [&] { return readDeviceSettings(read(), config, place, uses).value().maxChannels; };
  EXPECT_EQ(most(), 64);
  config.ctaPolicy = 1;
  EXPECT_EQ(most(), 24);
  config.maxCtas = 8;
  EXPECT_EQ(most(), 8);
  config.maxCtas = 64;
  config.minCtas = 40;  // the user's own wish
  EXPECT_EQ(most(), 40);
  config.ctaPolicy = 2;
  config.minCtas = 1;
  EXPECT_EQ(most(), 64);
}

TEST_F(FromEnvironment, FewerChannelsHaveMoreUnderWayInNoMoreMemory) {
  exec::cuda::KernelUses uses;
  for (exec::cuda::KernelUse& use : uses.of) use.blocksPerMultiprocessor = 1;
  uses.lone.blocksPerMultiprocessor = 1;
  Place place;
  place.ranks = 2;
  place.multiprocessors = 132;
  const auto settingsOf = [&] { return readDeviceSettings(read(), {}, place, uses).value(); };
  const auto ofChannel = [](const plan::DeviceSettings& s) { return s.slotBytes[0] * static_cast<uint64_t>(s.slots[0]); };
  const uint64_t most = 64 * ofChannel(settingsOf());
  uint64_t before = 0;
  for (const int channels : {64, 33, 32, 17, 16, 8, 1}) {
    set("NCCL_MAX_NCHANNELS", std::to_string(channels).c_str());
    const plan::DeviceSettings settings = settingsOf();
    EXPECT_LE(static_cast<uint64_t>(channels) * ofChannel(settings), most) << channels;
    EXPECT_GE(ofChannel(settings), before) << channels;
    before = ofChannel(settings);
  }
  EXPECT_EQ(before, most / 16);
  set("TUTTI_SLOTS", "2");
  EXPECT_EQ(settingsOf().slots[0], 2);
}

TEST_F(FromEnvironment, WindowsArePreferredAsAsked) {
  exec::cuda::KernelUses uses;
  uses.mapped.clusters = {15, 30, 66};
  Place place;
  place.ranks = 2;
  const auto settings = [&] { return readDeviceSettings(read(), {}, place, uses).value(); };
  EXPECT_EQ(settings().mapped, plan::When::WhereFaster);
  EXPECT_EQ(settings().mappedClusters, (exec::cuda::ClusterLimits{0, 60, 66}));
  set("TUTTI_MAPPED", "0");
  EXPECT_EQ(settings().mapped, plan::When::Never);
  set("TUTTI_MAPPED", "1");
  EXPECT_EQ(settings().mapped, plan::When::WherePossible);
  EXPECT_EQ(settings().copyEngines, plan::When::WhereFaster);
  EXPECT_TRUE(settings().movesLittle);
  set("TUTTI_COPY_ENGINES", "1");
  EXPECT_EQ(settings().copyEngines, plan::When::WherePossible);
  EXPECT_FALSE(settings().movesLittle) << "who asks for engines gets engines";
  const double price = tune::deviceMachine().blockPrice;
  EXPECT_GT(price, 0);
  EXPECT_EQ(settings().machine.blockPrice, price);
  set("TUTTI_BLOCK_PRICE", "7");
  EXPECT_EQ(settings().machine.blockPrice, 0.007);
  set("TUTTI_BLOCK_PRICE", "0");
  EXPECT_EQ(settings().machine.blockPrice, 0);
}

TEST_F(FromEnvironment, StreamsCarryOutStagesWhereWordsAreInOrderAndQueuesAreEnough) {
  using plan::When;
  Place place;
  place.ranks = 2;
  const auto stages = [&] { return readDeviceSettings(read(), {}, place, {}).value().streamStages; };
  EXPECT_EQ(stages(), When::Never) << "a bus between the GPUs";
  place.keepsLines = true;
  EXPECT_EQ(stages(), When::WhereFaster);
  const std::pair<const char*, When> all[] = {{"1", When::Never}, {"7", When::Never}, {"8", When::WhereFaster}, {"0", When::WhereFaster}};
  for (const auto& [queues, expected] : all) {
    set("CUDA_DEVICE_MAX_CONNECTIONS", queues);
    EXPECT_EQ(stages(), expected) << queues;
  }
  set("CUDA_DEVICE_MAX_CONNECTIONS", "1");
  set("TUTTI_STREAM_STAGES", "1");
  EXPECT_EQ(stages(), When::WherePossible) << "who asks for them gets them";
  set("TUTTI_MULTI_RANK_GPU", "1");
  EXPECT_EQ(stages(), When::Never);
  set("TUTTI_MULTI_RANK_GPU", "0");
  set("TUTTI_STREAM_STAGES", "0");
  EXPECT_EQ(stages(), When::Never);
}

TEST_F(FromEnvironment, ClustersNeedHalfTheChannelsOfPlainData) {
  exec::cuda::KernelUses uses;
  for (exec::cuda::KernelUse& use : uses.of) use.blocksPerMultiprocessor = 1;
  constexpr auto kSimple = static_cast<size_t>(exec::cuda::KernelId::Simple);
  uses.of[kSimple].clusters = {15, 30, 66};  // of 8, 4 and 2, as an H100 has them
  Place place;
  place.ranks = 2;
  place.multiprocessors = 132;
  place.streams = true;
  Config config;
  const auto settingsOf = [&] { return readDeviceSettings(read(), config, place, uses).value(); };
  const auto channels = [&](exec::cuda::Protocol protocol, uint8_t port) { return settingsOf().pipeChannels(protocol, port); };
  using Limits = exec::cuda::ClusterLimits;
  EXPECT_EQ(settingsOf().clusters[kSimple], (Limits{0, 60, 66})) << "two such grids at once";
  EXPECT_EQ(settingsOf().clusters[static_cast<size_t>(exec::cuda::KernelId::Window)], Limits{});
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, 0), 40);
  const auto blocks = [&](Collective collective) { return settingsOf().mostBlocksOf(exec::cuda::Protocol::Simple, collective); };
  for (const Collective even : {Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll}) EXPECT_EQ(blocks(even), 40);
  for (const Collective other : {Collective::AllReduce, Collective::Broadcast, Collective::Gather}) EXPECT_EQ(blocks(other), 32);
  EXPECT_EQ(settingsOf().mostBlocksOf(exec::cuda::Protocol::Lines, Collective::AllReduce), 64);
  EXPECT_EQ(channels(exec::cuda::Protocol::Lines, 0), 64);
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kUserPort), 16);
  EXPECT_EQ(channels(exec::cuda::Protocol::Lines, algo::kUserPort), 32);
  const uint64_t slotBytes = settingsOf().slotBytes[0];
  set("NCCL_MIN_P2P_NCHANNELS", "20");
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kUserPort), 20);
  set("NCCL_MIN_P2P_NCHANNELS", "1");
  config.minCtas = 48;
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, 0), 48) << "the user's own wish";
  EXPECT_EQ(settingsOf().slotBytes[0], slotBytes / 2);
  config.minCtas = 1;
  config.clusterBlocks = 8;
  EXPECT_EQ(settingsOf().clusters[kSimple], (Limits{60, 60, 66}));
  config.clusterBlocks = 3;
  EXPECT_EQ(settingsOf().clusters[kSimple], (Limits{0, 0, 66}));
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, 0), 64);
  for (const int none : {0, 1}) {
    config.clusterBlocks = none;
    EXPECT_EQ(settingsOf().clusters[kSimple], Limits{});
    EXPECT_EQ(channels(exec::cuda::Protocol::Simple, 0), 64);
  }
  config.clusterBlocks = -1;
  place.streams = false;  // some rank's GPU is older
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, 0), 64);
  place.streams = true;
  for (const int32_t ranks : {1, 5, 8}) {
    place.ranks = ranks;
    EXPECT_EQ(channels(exec::cuda::Protocol::Simple, 0), 64) << "measured with two to four ranks alone";
    EXPECT_EQ(settingsOf().slotBytes[0], slotBytes / 2);
  }
  place.ranks = 3;
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kMessagePort), 8) << "an all-to-all has 40 blocks, five a channel";
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kStarPort), 16) << "a gather has 48, three a channel";
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kUserPort), 16);
  place.ranks = 4;
  EXPECT_EQ(settingsOf().slotBytes[0], slotBytes);
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kRingPort), 32) << "what arrives is passed on";
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kMessagePort), 5) << "seven blocks a channel";
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kStarPort), 12) << "four";
  EXPECT_EQ(blocks(Collective::Gather), 48) << "32 are slower than NCCL";
  EXPECT_EQ(blocks(Collective::Scatter), 32);
  config.maxCtas = 48;
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kStarPort), 12) << "a star has a lane for each rank";
  config.maxCtas = 20;
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kStarPort), 5);
  config.maxCtas = 64;
  EXPECT_EQ(settingsOf().shareBytes[0], 16384u) << "no lines are kept";
  place.keepsLines = true;
  EXPECT_EQ(settingsOf().shareBytes[0], 8192u);
  set("NCCL_PROTO", "^LL128");
  EXPECT_EQ(settingsOf().shareBytes[0], 16384u);
  set("NCCL_PROTO", "");
  place.keepsLines = false;
  EXPECT_EQ(channels(exec::cuda::Protocol::Simple, algo::kUserPort), 12);
  place.ranks = 2;
  set("TUTTI_MULTI_RANK_GPU", "1");  // grids of several ranks have to fit beside each other
  EXPECT_EQ(settingsOf().clusters[kSimple], Limits{});
  set("TUTTI_MULTI_RANK_GPU", "0");
}

TEST(Grid, IsOfTheLargestClustersThatFit) {
  const exec::cuda::ClusterLimits limits{0, 60, 66};
  const auto grid = [&](int32_t blocks, int32_t most) {
    const exec::cuda::Grid g = exec::cuda::makeGrid(blocks, most, limits);
    return std::pair(g.blocks, g.clusterBlocks);
  };
  EXPECT_EQ(grid(32, 32), std::pair(32, 4));
  EXPECT_EQ(grid(30, 32), std::pair(32, 4)) << "two blocks have nothing to do";
  EXPECT_EQ(grid(30, 31), std::pair(30, 2)) << "as many as the user allows";
  EXPECT_EQ(grid(7, 64), std::pair(7, 1)) << "too few to keep a link busy";
  EXPECT_EQ(grid(60, 64), std::pair(60, 4));
  EXPECT_EQ(grid(61, 64), std::pair(62, 2));
  EXPECT_EQ(grid(132, 132), std::pair(132, 1));
  EXPECT_EQ(grid(48, 1), std::pair(48, 4)) << "what takes more than the user allows anyway gets no more than that";
  const exec::cuda::Grid none = exec::cuda::makeGrid(32, 64, {});
  EXPECT_EQ(std::pair(none.blocks, none.clusterBlocks), std::pair(32, 1));
}

TEST_F(FromEnvironment, SmallCallsAreEarlyWhereTheyLeaveRoom) {
  exec::cuda::KernelUses uses;
  for (exec::cuda::KernelUse& use : uses.of) use.blocksPerMultiprocessor = 1;
  Place place;
  place.ranks = 2;
  place.multiprocessors = 132;
  place.streams = true;
  const auto most = [&] { return readDeviceSettings(read(), {}, place, uses).value().mostEarlyRanks; };
  EXPECT_EQ(most(), 3);
  place.multiprocessors = 78;
  EXPECT_EQ(most(), 1);
  place.multiprocessors = 20;
  EXPECT_EQ(most(), 0);
  place.multiprocessors = 132;
  place.streams = false;  // an older GPU
  EXPECT_EQ(most(), 0);
  place.streams = true;
  set("TUTTI_EARLY_LAUNCH", "1");
  EXPECT_GT(most(), 1000);
  set("NCCL_MAX_NCHANNELS", "31");
  EXPECT_EQ(most(), 0);
  set("NCCL_MAX_NCHANNELS", "32");
  EXPECT_GT(most(), 1000);
  set("TUTTI_MULTI_RANK_GPU", "1");
  EXPECT_EQ(most(), 0);
  set("TUTTI_MULTI_RANK_GPU", "0");
  set("TUTTI_EARLY_LAUNCH", "0");
  EXPECT_EQ(most(), 0);
}

TEST_F(FromEnvironment, TheKernelsOfPlainDataAreTheUsersToChoose) {
  exec::cuda::KernelUses uses;
  for (exec::cuda::KernelUse& use : uses.of) use.blocksPerMultiprocessor = 1;
  Place place;
  place.ranks = 2;
  place.multiprocessors = 132;
  place.streams = true;
  const auto kernels = [&] {
    const plan::DeviceSettings settings = readDeviceSettings(read(), {}, place, uses).value();
    return std::pair(settings.hasSimple, settings.hasBulk);
  };
  EXPECT_EQ(kernels(), std::pair(true, true));
  set("TUTTI_BULK", "0");
  EXPECT_EQ(kernels(), std::pair(true, false));
  set("TUTTI_BULK", "1");
  EXPECT_EQ(kernels(), std::pair(false, true));
  place.streams = false;  // an older GPU
  EXPECT_EQ(kernels(), std::pair(true, false));
  place.streams = true;
  set("TUTTI_SLICE_BYTES", "1000000");  // slots that do not fit the stages
  EXPECT_EQ(kernels(), std::pair(true, false));
}

TEST_F(FromEnvironment, MeasuredConstantsReplaceTheBuiltInOnes) {
  tune::Platform measured;
  measured.name = "measured";
  measured.host = tune::hostMachine();
  measured.host->hopNs = 77;
  const auto settings = readSettings({}, &measured);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->machine.hopNs, 77);
  EXPECT_EQ(settings->constants, "measured");
  EXPECT_EQ(read().machine.hopNs, tune::hostMachine().hopNs);
  EXPECT_EQ(read().constants, "host");
  set("TUTTI_HOP_NS", "500");
  EXPECT_EQ(readSettings({}, &measured)->machine.hopNs, 500) << "the variable wins";
}

TEST_F(FromEnvironment, EachConstantOfTheMachineHasAVariable) {
  set("TUTTI_SWITCH_NS", "4321");
  EXPECT_EQ(read().machine.switchNs, 4321);
  EXPECT_EQ(read().machine.bytesPerNs, tune::hostMachine().bytesPerNs);
  set("TUTTI_CORE_GBPS", "17");
  EXPECT_EQ(read().machine.bytesPerNs, 17) << "10^9 bytes a second";
  EXPECT_EQ(read().machine.hopNs, tune::hostMachine().hopNs);
  for (const char* none : {"0", "-5", "fast"}) {
    set("TUTTI_CORE_GBPS", none);
    EXPECT_EQ(read().machine.bytesPerNs, tune::hostMachine().bytesPerNs) << none;
  }
}

TEST_F(FromEnvironment, TheFlightRecorderHasASizeAndCanBeOff) {
  EXPECT_EQ(readFlightEvents(), 1024);
  set("TUTTI_FLIGHT_RECORDER", "16");
  EXPECT_EQ(readFlightEvents(), 16);
  set("TUTTI_FLIGHT_RECORDER", "0");
  EXPECT_EQ(readFlightEvents(), 0);
}

TEST_F(FromEnvironment, BuffsizeIsDividedAmongTheSlots) {
  set("TUTTI_SLOTS", "4");
  set("NCCL_BUFFSIZE", "1048576");
  EXPECT_EQ(read().sliceBytes, 262144U);
  set("TUTTI_SLICE_BYTES", "512");
  EXPECT_EQ(read().sliceBytes, 512U) << "the one that speaks of slices wins";
}

TEST_F(FromEnvironment, ChannelsFollowTheConfigurationAndTheEnvironment) {
  Config config;
  config.minCtas = 3;
  EXPECT_EQ(read(config).channels, 3);
  config.maxCtas = 2;
  EXPECT_EQ(read(config).channels, 2) << "the upper bound wins";
  config = {};
  config.minCtas = 1000;
  config.maxCtas = 1000;
  EXPECT_EQ(read(config).channels, 64);
}

TEST_F(FromEnvironment, UnknownAlgorithmsAreAnError) {
  set("NCCL_ALGO", "Rnig");
  expectError("Rnig");
  unsetenv("NCCL_ALGO");
  set("TUTTI_ALGO", "twoshoot");
  expectError("twoshoot");
  set("TUTTI_ALGO", "oneshot");
  EXPECT_FALSE(read().restrictions.tutti.allows(Collective::AllReduce, "ring"));
}

TEST_F(FromEnvironment, TheSimdLevelMustExist) {
  set("TUTTI_SIMD", "Portable");
  EXPECT_EQ(read().simd, exec::host::SimdLevel::Portable);
  set("TUTTI_SIMD", "auto");
  EXPECT_EQ(read().simd, exec::host::detectSimd());
  set("TUTTI_SIMD", "mmx");
  expectError("mmx");
}

TEST_F(FromEnvironment, LimitsOfWaits) {
  exec::host::Turn turn;
  readWaitLimits(turn);
  EXPECT_TRUE(turn.checks);
  EXPECT_EQ(turn.timeoutNs.load(), 0) << "no deadline";
  EXPECT_EQ(turn.silence, std::chrono::seconds(10));
  set("TUTTI_TIMEOUT_MS", "1500");
  set("TUTTI_WARN_MS", "250");
  set("TUTTI_CHECKS", "off");
  readWaitLimits(turn);
  EXPECT_FALSE(turn.checks);
  EXPECT_EQ(turn.timeoutNs.load(), 1'500'000'000);
  EXPECT_EQ(turn.silence, std::chrono::milliseconds(250));
  set("TUTTI_TIMEOUT_MS", "-5");
  set("TUTTI_WARN_MS", "0");
  readWaitLimits(turn);
  EXPECT_EQ(turn.timeoutNs.load(), 0);
  EXPECT_GT(turn.silence, std::chrono::hours(24 * 365)) << "never";
  set("TUTTI_TIMEOUT_MS", "9223372036854775807");
  readWaitLimits(turn);
  EXPECT_GT(turn.timeoutNs.load(), 0) << "does not run over";
}

TEST(CacheShare, IsOfTheCachesThatRanksOfANodeUse) {
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(cacheShareOf(32 * kMiB, 1, 2), 16 * kMiB);
  EXPECT_EQ(cacheShareOf(32 * kMiB, 8, 8), 32 * kMiB);
  EXPECT_EQ(cacheShareOf(32 * kMiB, 8, 2), 32 * kMiB) << "a rank uses one at a time";
  EXPECT_EQ(cacheShareOf(32 * kMiB, 8, 17), 32 * kMiB / 3);
  EXPECT_EQ(cacheShareOf(32 * kMiB, 1, 1000), 2 * kMiB);
  EXPECT_EQ(cacheShareOf(0, 0, 2), 16 * kMiB) << "nobody knows";
}

TEST_F(FromEnvironment, RanksThatOutnumberCoresLookAtWhoNeedsTheirs) {
  EXPECT_TRUE(readCrowded(true));
  EXPECT_FALSE(readCrowded(false));
  set("TUTTI_SPIN", "0");
  EXPECT_EQ(readSpins(), 0);
  EXPECT_FALSE(readCrowded(true)) << "who sets a number gets it";
  set("TUTTI_SPIN", "77");
  EXPECT_EQ(readSpins(), 77);
}

}  // namespace
}  // namespace tutti::comm::settings_test
