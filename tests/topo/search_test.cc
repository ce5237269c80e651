// The search on made-up machines: what it finds is feasible, within its bound, the same each time, and for few GPUs the optimum.
#include "topo/search.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "topo/brute_force.h"
#include "topo/feasible.h"
#include "topo/random_system.h"

namespace tutti::topo::search_test {
namespace {

using test::BruteForce;
using test::MachineMaker;
using test::RandomMachine;

void expectFeasible(const RandomMachine& machine, const SearchRequest& request, const ChannelSet& set, uint32_t seed) {
  const Feasibility checked = checkChannels(machine.system, machine.paths, request, set);
  EXPECT_TRUE(checked.ok()) << "seed " << seed << ": " << (checked.violations.empty() ? "" : checked.violations[0]);
  EXPECT_GE(set.boundGBps, set.sumGBps() * 0.9999F) << "seed " << seed;
}

struct Tally {
  int machines = 0;
  int equal = 0;
  int greedyMissed = 0;
  double worst = 1;
};

void compareWithOptimum(uint32_t seed, Tally& tally) {
  MachineMaker maker(seed);
  const auto machine = maker.make(5);
  if (!machine) return;
  SearchRequest request{.pattern = seed % 2 == 0 ? Pattern::Ring : Pattern::BalancedTree, .maxChannels = maker.pick(2, 5)};
  request.settings.crossNic = machine->system.inter ? maker.pick(0, 1) : 2;
  request.settings.slowest = 0;
  BruteForce brute(machine->system, machine->paths, request);
  while (request.maxChannels > 1 && brute.work() > 1e6) --request.maxChannels;
  const double best = brute.optimum();
  const auto found = searchChannels(machine->system, machine->paths, request);
  if (!found || best == 0) {
    EXPECT_EQ(best == 0, !found) << "seed " << seed << ": " << (found ? "" : found.error().text());
    return;
  }
  expectFeasible(*machine, request, *found, seed);
  EXPECT_GE(found->boundGBps, best * 0.998) << "seed " << seed << ": the bound is below what can be had";
  EXPECT_GE(found->sumGBps(), 0.9 * best) << "seed " << seed;
  ++tally.machines;
  if (found->sumGBps() >= best * 0.998) ++tally.equal;
  if (brute.greedy() < best * 0.998) ++tally.greedyMissed;
  tally.worst = std::min(tally.worst, found->sumGBps() / best);
}

TEST(Search, ComesToTheOptimumOfSmallMachines) {
  Tally tally;
  for (uint32_t seed = 1; seed <= 800; ++seed) compareWithOptimum(seed, tally);
  std::printf("%d machines: %d at the optimum, the worst at %.3f of it; plain greedy misses it on %d\n", tally.machines, tally.equal,
              tally.worst, tally.greedyMissed);
  EXPECT_GE(tally.machines, 600);
  EXPECT_GE(tally.equal, tally.machines * 95 / 100);
  EXPECT_GE(tally.greedyMissed, tally.machines * 30 / 100) << "the machines are too easy";
}

/// With pairs of rails allowed, too: what they can reach at most is the better of staying on a rail and of changing in pairs.
TEST(Search, ComesToTheOptimumWithRailsInPairs) {
  Tally tally;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    MachineMaker maker(seed + 300000);
    const auto machine = maker.make(3);
    if (!machine || !machine->system.inter || machine->system.count(NodeKind::Net) > 4) continue;
    SearchRequest request{.pattern = Pattern::Ring, .maxChannels = maker.pick(2, 4)};
    request.settings.slowest = 0;
    request.settings.crossNic = 0;
    const double straight = BruteForce(machine->system, machine->paths, request).optimum();
    request.settings.crossNic = 2;
    const double best = std::max(straight, BruteForce(machine->system, machine->paths, request).optimumInPairs());
    const auto found = searchChannels(machine->system, machine->paths, request);
    if (!found || best == 0) {
      EXPECT_EQ(best == 0, !found) << "seed " << seed << ": " << (found ? "" : found.error().text());
      continue;
    }
    expectFeasible(*machine, request, *found, seed);
    EXPECT_GE(found->boundGBps, best * 0.998) << "seed " << seed << ": the bound is below what can be had";
    EXPECT_GE(found->sumGBps(), 0.9 * best) << "seed " << seed;
    ++tally.machines;
    tally.equal += found->sumGBps() >= best * 0.998 ? 1 : 0;
    tally.worst = std::min(tally.worst, found->sumGBps() / best);
  }
  std::printf("%d machines with nets: %d at the optimum, the worst at %.3f of it\n", tally.machines, tally.equal, tally.worst);
  EXPECT_GE(tally.machines, 100);
  EXPECT_GE(tally.equal, tally.machines * 95 / 100);
}

TEST(Search, LargerMachinesAreFeasibleBoundedQuickAndRepeatable) {
  double longest = 0;
  double ofBound = 0;
  int sets = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    MachineMaker maker(seed + 100000);
    const auto machine = maker.make(16);
    if (!machine) continue;  // NVLink between GPUs to which the driver forbids each other
    const auto begin = std::chrono::steady_clock::now();
    const auto graphs = searchGraphs(machine->system, machine->paths, {});
    longest = std::max(longest, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    if (!graphs) continue;  // GPUs that nothing joins
    for (const GraphKind kind : {GraphKind::Ring, GraphKind::Tree}) {
      const ChannelSet& set = (*graphs)[kind];
      expectFeasible(*machine, {.pattern = set.pattern}, set, seed);
      ofBound += set.sumGBps() / set.boundGBps;
      ++sets;
    }
    const auto again = searchGraphs(machine->system, machine->paths, {});
    ASSERT_TRUE(again);
    EXPECT_EQ((*again)[GraphKind::Ring].channels, (*graphs)[GraphKind::Ring].channels) << "seed " << seed;
    EXPECT_EQ((*again)[GraphKind::Ring].count(), (*again)[GraphKind::Tree].count()) << "seed " << seed;
  }
  std::printf("%d sets, on average at %.3f of their bound; the longest search took %.1f ms\n", sets, ofBound / sets, longest);
  EXPECT_GE(sets, 200);
}

/// Pairs of rails are more than one rail: never below what staying on one rail gives.
TEST(Search, ChangingRailsInPairsNeverCosts) {
  int gained = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    MachineMaker maker(seed + 500000);
    const auto machine = maker.make(6);
    if (!machine || !machine->system.inter) continue;
    SearchRequest request;
    request.settings.crossNic = 0;
    const auto never = searchChannels(machine->system, machine->paths, request);
    request.settings.crossNic = 2;
    const auto pairs = searchChannels(machine->system, machine->paths, request);
    if (!pairs) continue;
    expectFeasible(*machine, request, *pairs, seed);
    const bool single = pairs->crossNic != CrossNic::InPairs || pairs->count() == 1;
    EXPECT_TRUE(single || pairs->count() % 2 == 0) << "seed " << seed;
    if (!never) continue;
    EXPECT_GE(pairs->sumGBps(), never->sumGBps() * 0.97F) << "seed " << seed;
    gained += pairs->sumGBps() > never->sumGBps() * 1.01F ? 1 : 0;
  }
  EXPECT_GT(gained, 0);
}

// Found by the fuzzer: a lone channel that changes rails was laid twice, and so went the same way twice.
TEST(Search, ALoneChannelThatChangesRailsInPairsIsNotLaidTwice) {
  ChannelSet set;
  set.intraGBps = set.interGBps = 48;
  set.channels = {{{NodeId(1), NodeId(2)}, NodeId(3), NodeId(4)}};
  for (const CrossNic cross : {CrossNic::InPairs, CrossNic::Always}) {
    set.crossNic = cross;
    ChannelSet twice = set;
    duplicateChannels(twice, 90, 32);
    EXPECT_EQ(twice.count(), cross == CrossNic::InPairs ? 1 : 2);
  }
  set.crossNic = CrossNic::InPairs;
  ChannelSet pair = set;
  pair.channels.push_back({{NodeId(2), NodeId(1)}, NodeId(4), NodeId(3)});
  duplicateChannels(pair, 90, 32);
  EXPECT_EQ(pair.count(), 4);
  set.channels[0].netOut = NodeId(3);
  duplicateChannels(set, 90, 32);
  EXPECT_EQ(set.count(), 2) << "it stays on its rail";
}

TEST(Search, HeadsAreFeasibleToo) {
  int sets = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    MachineMaker maker(seed + 900000);
    auto machine = maker.make(12);
    if (!machine) continue;
    for (const NodeId net : machine->system.all(NodeKind::Net)) machine->system.at(net).net.coll = true;
    for (const Pattern pattern : {Pattern::Nvls, Pattern::CollnetDirect}) {
      const SearchRequest request{.pattern = pattern, .maxChannels = 64};
      const auto found = searchChannels(machine->system, machine->paths, request);
      if (!found || found->channels.empty()) continue;
      expectFeasible(*machine, request, *found, seed);
      ++sets;
    }
  }
  EXPECT_GT(sets, 50);
}

/// As many groups of GPUs as links are more than a search looks at.
TEST(Search, ABusOfManyGpusIsBounded) {
  System system;
  const NodeId cpu = system.addNode(NodeKind::Cpu, 0);
  const NodeId bus = system.addNode(NodeKind::Pci, 1);
  const auto join = [&](NodeId a, NodeId b, float GBps) {
    system.connect(a, b, LinkType::Pci, GBps);
    system.connect(b, a, LinkType::Pci, GBps);
  };
  join(bus, cpu, 24);
  constexpr int kGpus = 500;
  for (int i = 0; i < kGpus; ++i) {
    const NodeId gpu = system.addNode(NodeKind::Gpu, static_cast<uint64_t>(i) + 2);
    system.at(gpu).gpu = {.dev = i, .rank = i, .sm = 80, .gdr = false, .gcn = ""};
    join(gpu, bus, 24);
  }
  system.ranks = kGpus;
  const auto paths = computePaths(system, {});
  ASSERT_TRUE(paths) << paths.error().text();
  setBandwidths(system, *paths);
  const auto begin = std::chrono::steady_clock::now();
  const auto found = searchChannels(system, *paths, {});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_FLOAT_EQ(found->sumGBps(), 24);
  EXPECT_FLOAT_EQ(found->boundGBps, 24);
  EXPECT_LT(seconds, 5) << "of an instrumented build; others take a quarter of a second";
}

TEST(Search, SaysWhyThereAreNoChannels) {
  System system;
  const auto none = searchChannels(system, Paths(system), {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().text(), "no channels to search: the system has no GPU");
  auto machine = MachineMaker(1).make(4);
  ASSERT_TRUE(machine);
  const auto senseless = searchChannels(machine->system, machine->paths, {.minChannels = 4, .maxChannels = 2});
  ASSERT_FALSE(senseless);
  EXPECT_NE(senseless.error().text().find("4 to 2 channels asked for"), std::string::npos);

  System pair;
  const NodeId cpu = pair.addNode(NodeKind::Cpu, 0);
  for (int i = 0; i < 2; ++i) {
    const NodeId gpu = pair.addNode(NodeKind::Gpu, static_cast<uint64_t>(i) + 1);
    pair.at(gpu).gpu = {.dev = i, .rank = i, .sm = 80, .gdr = false, .gcn = ""};
    pair.connect(gpu, cpu, LinkType::Pci, i == 0 ? 12.0F : 0.0004F);
    pair.connect(cpu, gpu, LinkType::Pci, i == 0 ? 12.0F : 0.0004F);
  }
  pair.ranks = 2;
  const auto paths = findPaths(pair, {});
  ASSERT_TRUE(paths) << paths.error().text();
  const auto slow = searchChannels(pair, *paths, {});
  ASSERT_FALSE(slow);
  EXPECT_NE(slow.error().text().find("the path from GPU0 to GPU1 has 0.0004 GB/s, and a channel needs 0.001 at least"), std::string::npos)
      << slow.error().text();
}

}  // namespace
}  // namespace tutti::topo::search_test
