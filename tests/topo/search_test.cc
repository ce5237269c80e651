// The search on made-up machines: what it finds is feasible, within its bound, the same each time, and for few GPUs the optimum.
#include "topo/search.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "topo/brute_force.h"
#include "topo/feasible.h"
#include "topo/random_system.h"

namespace tutti::topo {
namespace {

using test::BruteForce;
using test::MachineMaker;
using test::RandomMachine;

void expectFeasible(const RandomMachine& machine, const SearchRequest& request, const ChannelSet& set, uint32_t seed) {
  const Feasibility checked = checkChannels(machine.system, machine.paths, request, set);
  EXPECT_TRUE(checked.ok()) << "seed " << seed << ": " << (checked.violations.empty() ? "" : checked.violations[0]);
  EXPECT_GE(set.boundGBps, set.GBps() * 0.9999F) << "seed " << seed;
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
  EXPECT_GE(found->GBps(), 0.9 * best) << "seed " << seed;
  ++tally.machines;
  if (found->GBps() >= best * 0.998) ++tally.equal;
  if (brute.greedy() < best * 0.998) ++tally.greedyMissed;
  tally.worst = std::min(tally.worst, found->GBps() / best);
}

TEST(Search, ComesToTheOptimumOfSmallMachines) {
  Tally tally;
  for (uint32_t seed = 1; seed <= 800; ++seed) compareWithOptimum(seed, tally);
  std::printf("%d machines: %d at the optimum, the worst at %.3f of it; plain greedy misses it on %d\n", tally.machines, tally.equal, tally.worst,
              tally.greedyMissed);
  EXPECT_GE(tally.machines, 600);
  EXPECT_GE(tally.equal, tally.machines * 95 / 100);
  EXPECT_GE(tally.greedyMissed, tally.machines * 30 / 100) << "the machines are too easy";
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
      ofBound += set.GBps() / set.boundGBps;
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

}  // namespace
}  // namespace tutti::topo
