#include "tune/model.h"

#include <gtest/gtest.h>

#include <memory>

#include "connect/connections.h"
#include "plan/planner.h"

namespace tutti::tune::model_test {
namespace {

/// What a communicator of so many ranks would choose on a machine of so many cores.
std::string_view chosen(Collective collective, uint64_t bytes, int32_t ranks, int32_t cores, int32_t rank = 0, int32_t nodeRanks = 0,
                        bool spansProcesses = false) {
  const auto owner = *transport::local::Hub::make(ranks);
  transport::local::Hub& hub = *owner;
  const connect::Layout layout = connect::Layout::natural(ranks, nodeRanks);
  connect::Connections connections(hub, Rank(rank));
  plan::Settings settings;
  settings.machine.cores = cores;
  settings.spansProcesses = spansProcesses;
  plan::Planner planner(layout, connections, Rank(rank), settings);
  plan::Shape shape;
  shape.collective = collective;
  shape.type = DataType::U8;
  const bool blocks = collective != Collective::AllReduce && collective != Collective::Broadcast && collective != Collective::Reduce;
  shape.count = blocks ? bytes / static_cast<uint64_t>(ranks) : bytes;
  const auto summary = planner.summarize(shape);
  EXPECT_TRUE(summary) << (summary ? "" : summary.error().text());
  return summary ? summary->algorithm : "none";
}

Machine machineOf(int32_t cores) {
  Machine machine = hostMachine();
  machine.cores = cores;
  return machine;
}

constexpr uint64_t kLarge = uint64_t{256} << 20;

constexpr auto kNone = exec::record::Loans::None;

TEST(Model, BetweenProcessesLongValuesGoThroughPipesWhereNothingIsReduced) {
  const auto between = [](Collective collective, uint64_t bytes, int32_t ranks, int32_t cores) {
    return chosen(collective, bytes, ranks, cores, 0, 0, true);
  };
  EXPECT_EQ(between(Collective::AllToAll, 65536, 2, 2), "p2p");
  EXPECT_EQ(between(Collective::AllToAll, 16384, 2, 2), "direct");
  EXPECT_EQ(between(Collective::AllGather, 1 << 20, 2, 2), "ring");
  EXPECT_EQ(between(Collective::AllToAll, 65536, 2, 1), chosen(Collective::AllToAll, 65536, 2, 1)) << "ranks that share cores";
  for (const int32_t ranks : {3, 4, 32})
    for (const uint64_t bytes : {uint64_t{512}, uint64_t{16384}, uint64_t{262144}, uint64_t{16} << 20})
      EXPECT_EQ(between(Collective::AllToAll, bytes, ranks, 64), "direct") << bytes << ", of " << ranks << ": pipes of pairs are too many";
  EXPECT_EQ(chosen(Collective::AllToAll, 65536, 2, 2), "direct") << "threads read it where it lies";
  EXPECT_EQ(between(Collective::ReduceScatter, 65536, 2, 2), chosen(Collective::ReduceScatter, 65536, 2, 2));
}

TEST(Model, ARootWritesOnceForAllOthersWhereThatIsWorthIt) {
  const auto between = [](uint64_t bytes, int32_t ranks, int32_t cores) {
    return chosen(Collective::Broadcast, bytes, ranks, cores, 0, 0, true);
  };
  for (const uint64_t bytes : {uint64_t{8192}, uint64_t{512} << 10, uint64_t{2} << 20, kLarge})
    for (const int32_t cores : {2, 64}) {
      for (const int32_t ranks : {3, 4, 16, 32}) EXPECT_EQ(between(bytes, ranks, cores), "star") << bytes << ", of " << ranks;
      EXPECT_NE(between(bytes, 2, cores), "star") << bytes;
      EXPECT_NE(between(bytes, 33, cores), "star") << bytes << ": a step sends to 31";
    }
  EXPECT_EQ(between(8, 3, 64), "star");
  EXPECT_EQ(between(8, 4, 64), "chain") << "others can begin the next call meanwhile";
  EXPECT_EQ(between(8, 8, 2), "star") << "where ranks share cores they cannot";
}

TEST(Model, TheLimitBetweenOneFlightAndTwoIsAFewKibibytesOfThreeAndMoreRanks) {
  const auto between = [](uint64_t bytes, int32_t ranks) { return chosen(Collective::AllReduce, bytes, ranks, 64, 0, 0, true); };
  for (const int32_t ranks : {3, 4, 8, 16, 32}) {
    for (const uint64_t bytes : {64, 512, 1024}) EXPECT_EQ(between(bytes, ranks), "oneshot") << bytes << ", of " << ranks;
    EXPECT_EQ(between(65536, ranks), "twoshot") << ranks;
  }
  for (const int32_t ranks : {8, 16, 32}) EXPECT_EQ(between(4096, ranks), "twoshot") << ranks;
}

TEST(Model, SmallAllReducesGoInOneFlightAndLargeOnesInTwo) {
  for (const int32_t ranks : {3, 4, 8}) {
    for (const int32_t cores : {2, 64}) {
      EXPECT_EQ(chosen(Collective::AllReduce, 8, ranks, cores), "oneshot") << ranks;
      EXPECT_EQ(chosen(Collective::AllReduce, kLarge, ranks, cores), "twoshot") << ranks;
    }
  }
  EXPECT_EQ(chosen(Collective::ReduceScatter, kLarge, 4, 2), "direct");
  EXPECT_EQ(chosen(Collective::AllGather, kLarge, 4, 2), "direct");
}

TEST(Model, AllRanksChooseTheSame) {
  for (const int32_t ranks : {3, 7, 100})
    for (const Collective collective : {Collective::AllReduce, Collective::Broadcast, Collective::AllGather, Collective::AllToAll})
      for (const uint64_t bytes : {uint64_t{700}, uint64_t{70000}, kLarge})
        EXPECT_EQ(chosen(collective, bytes, ranks, 8, 0), chosen(collective, bytes, ranks, 8, ranks - 1)) << name(collective) << bytes;
}

TEST(Model, GrowsWithBytesHopsAndCrowding) {
  const connect::Layout layout = connect::Layout::natural(8);
  const exec::record::Algorithm& ring = *exec::record::findAlgorithm(Collective::AllReduce, "ring");
  const exec::record::Algorithm& oneShot = *exec::record::findAlgorithm(Collective::AllReduce, "oneshot");
  const auto geometry = [](uint64_t count) { return algo::makeGeometry(algo::Division::Shares, count, 8, DataType::U8, 1, 1 << 18); };
  Model roomy(layout, machineOf(8));
  Model crowded(layout, machineOf(2));
  EXPECT_LT(roomy.estimateUs(ring, geometry(8), 8, kNone), roomy.estimateUs(ring, geometry(1 << 20), 1 << 20, kNone));
  EXPECT_LT(roomy.estimateUs(oneShot, geometry(8), 8, kNone), roomy.estimateUs(ring, geometry(8), 8, kNone));
  EXPECT_LT(roomy.estimateUs(ring, geometry(8), 8, kNone), crowded.estimateUs(ring, geometry(8), 8, kNone));
}

// Beyond what is recorded, a ring's hops go on doubling and a tree's go on by a step.
TEST(Model, ExtendsToManyRanks) {
  const auto us = [](std::string_view algorithm, int32_t ranks) {
    const connect::Layout layout = connect::Layout::natural(ranks);
    Model model(layout, machineOf(1 << 20));
    const auto& a = *exec::record::findAlgorithm(Collective::AllReduce, algorithm);
    return model.estimateUs(a, algo::makeGeometry(algo::Division::Shares, 8, 2, DataType::U8, 1, 64), 8, kNone);
  };
  EXPECT_NEAR(us("ring", 512) / us("ring", 64), 8.0, 0.5);
  EXPECT_LT(us("tree", 512) / us("tree", 64), 2.0);
  EXPECT_GT(us("tree", 512), us("tree", 64));
}

}  // namespace
}  // namespace tutti::tune::model_test
