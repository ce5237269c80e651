#include "machine/gpu_layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "connect/nodes.h"
#include "machine/played.h"
#include "topo/feasible.h"
#include "topo/graph_xml.h"
#include "topo/random_system.h"

namespace tutti::machine::gpu_layout_test {
namespace {

using test::firstDevs;
using test::machineOf;

std::vector<int32_t> ringOf(const connect::Layout& layout, int32_t track = 0) {
  std::vector<int32_t> ring;
  const algo::LayoutView view = layout.view(Rank(0), Rank(0), ChannelId(track));
  for (int32_t i = 0; i < layout.ranks(); ++i) ring.push_back(view.ring.at(i).value);
  return ring;
}

/// Every rank once in the ring of every track, and both of its trees span all ranks.
void expectValid(const connect::Layout& layout, int32_t track) {
  const std::vector<int32_t> ring = ringOf(layout, track);
  EXPECT_EQ(std::set<int32_t>(ring.begin(), ring.end()).size(), static_cast<size_t>(layout.ranks()));
  for (int32_t t = 0; t < algo::kTrees; ++t) {
    int32_t links = 0;
    int32_t roots = 0;
    for (int32_t r = 0; r < layout.ranks(); ++r) {
      const algo::Tree tree = layout.view(Rank(r), Rank(0), ChannelId(track)).tree[t];
      links += tree.children.count;
      roots += tree.isRoot() ? 1 : 0;
      for (int32_t i = 0; i < tree.children.count; ++i)
        EXPECT_EQ(layout.view(tree.children.at(i), Rank(0), ChannelId(track)).tree[t].parent, Rank(r));
    }
    EXPECT_EQ(roots, 1);
    EXPECT_EQ(links, layout.ranks() - 1);
  }
}
void expectValid(const connect::Layout& layout) {
  for (int32_t track = 0; track < layout.tracks(); ++track) expectValid(layout, track);
}

TEST(GpuLayout, EqualGpusHaveTheNaturalRingAndShallowTrees) {
  const Machine machine = machineOf("nvidia-dgxh100-h100x8");
  const auto found = findGpuLayout(machine, firstDevs(8), {});
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_TRUE(found->isUniform);
  EXPECT_EQ(ringOf(found->layout), firstDevs(8));
  const connect::Layout natural = connect::Layout::natural(8);
  for (int32_t r = 0; r < 8; ++r)
    for (int32_t t = 0; t < algo::kTrees; ++t) EXPECT_EQ(found->layout.view(Rank(r)).tree[t].parent, natural.view(Rank(r)).tree[t].parent);
  ASSERT_EQ(found->nearCpus.size(), 8u);
}

TEST(GpuLayout, AMeshGetsItsOwnRingsAndChains) {
  const Machine machine = machineOf("nvidia-dgx1v-v100x8");
  const auto found = findGpuLayout(machine, firstDevs(8), {});
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_FALSE(found->isUniform);
  EXPECT_NE(ringOf(found->layout), firstDevs(8)) << "0 and 5 or 3 and 4 have no NVLink in common";
  expectValid(found->layout);
  // Every hop of the rings is an NVLink, and together they load each link as the search has found it to be possible.
  const auto& system = found->view.system;
  ASSERT_GT(found->layout.tracks(), 1);
  std::map<std::pair<int32_t, int32_t>, double> load;  // GB/s from a GPU to another
  for (int32_t track = 0; track < found->layout.tracks(); ++track) {
    const std::vector<int32_t> ring = ringOf(found->layout, track);
    for (size_t i = 0; i < ring.size(); ++i) {
      const int32_t next = ring[(i + 1) % ring.size()];
      EXPECT_EQ(found->view.paths.get(system.gpuOfRank(ring[i]), system.gpuOfRank(next)).type, topo::PathType::Nvl) << ring[i];
      load[{ring[i], next}] += found->layout.ringGBps(1);
    }
  }
  for (const auto& [hop, gbps] : load)
    EXPECT_LE(gbps, static_cast<double>(found->view.paths.get(system.gpuOfRank(hop.first), system.gpuOfRank(hop.second)).GBps) + 0.01)
        << hop.first << " to " << hop.second;
  const int32_t tracks = found->layout.tracks();
  EXPECT_NEAR(found->layout.ringGBps(tracks), static_cast<double>(found->graphs[topo::GraphKind::Ring].sumGBps()), 0.01)
      << "nothing is lost";
}

TEST(GpuLayout, EqualRingsAreOneTrack) {
  for (const char* const name : {"nvidia-dgxh100-h100x8", "pcie-t4x8-1switch"}) {
    const auto found = findGpuLayout(machineOf(name), firstDevs(8), {});
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_EQ(found->layout.tracks(), 1) << name;
  }
}

/// Whoever looks, and whatever rank its GPU has: ranks in another order, the same GPUs beside each other.
TEST(GpuLayout, FollowsTheGpusNotTheRanks) {
  const Machine machine = machineOf("nvidia-dgx1v-v100x8");
  const std::vector<int> devs = {6, 1, 0, 3, 7, 5, 2, 4};
  const auto found = findGpuLayout(machine, devs, {});
  ASSERT_TRUE(found) << found.error().text();
  expectValid(found->layout);
  const std::vector<int32_t> ring = ringOf(found->layout);
  for (size_t i = 0; i < ring.size(); ++i) {
    const auto& system = found->view.system;
    const auto gpu = system.gpuOfRank(ring[i]);
    EXPECT_EQ(system.at(gpu).gpu.dev, devs[static_cast<size_t>(ring[i])]);
    EXPECT_EQ(found->view.paths.get(gpu, system.gpuOfRank(ring[(i + 1) % ring.size()])).type, topo::PathType::Nvl);
  }
}

/// Made-up machines: every searched ring and chain is some track's, nothing else is, and nothing of their speed is lost.
TEST(GpuLayout, TracksOfMadeUpMachinesAreTheSearchedChannels) {
  int several = 0;
  int looked = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    auto machine = topo::test::MachineMaker(seed).make(8);
    if (!machine || machine->system.inter) continue;
    const auto graphs = topo::searchGraphs(machine->system, machine->paths, {.collnet = false, .nvls = false, .settings = {}});
    if (!graphs) continue;
    connect::NodeGraphs node = connect::nodeGraphs(machine->system, *graphs);
    node = connect::renumbered(node, firstDevs(static_cast<int>(node.ranks.size())));
    const auto channels = connect::connectNodes({&node, 1}, {});
    ASSERT_TRUE(channels) << channels.error().text();
    const connect::Layout layout = connect::Layout::ofChannels(*channels, {&node, 1});
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(expectValid(layout));
    const std::set<std::vector<int32_t>> searched(channels->rings.begin(), channels->rings.end());
    std::set<std::vector<int32_t>> used;
    for (int32_t track = 0; track < layout.tracks(); ++track) used.insert(ringOf(layout, track));
    ASSERT_EQ(used, searched);
    const size_t found = std::min(node.rings.size(), node.trees.size());
    ASSERT_EQ(found % static_cast<size_t>(layout.tracks()), 0u);
    ASSERT_NEAR(layout.ringGBps(layout.tracks()), static_cast<double>(node.ringGBpsIntra) * static_cast<double>(found), 1e-3);
    several += layout.tracks() > 1 ? 1 : 0;
    ++looked;
  }
  EXPECT_GT(looked, 100);
  EXPECT_GT(several, looked / 10) << "of " << looked << ": or the machines are too plain to show anything";
}

TEST(GpuLayout, PartsOfEveryMachineAreValid) {
  for (const std::string& file : topo::test::filesOf("", ".xml")) {
    const auto machine = survey({.cuda = nullptr, .openNvml = {}, .files = test::noFiles(), .topoFile = file + ".xml"});
    if (!machine) continue;  // some describe only what detection completes
    const auto devs = topo::gpuDevs(machine->document);
    if (!devs || devs->empty() || devs->size() > 16) continue;
    for (size_t ranks = 1; ranks <= devs->size(); ++ranks) {
      const auto found = findGpuLayout(*machine, std::span(*devs).first(ranks), {});
      if (!found) continue;
      SCOPED_TRACE(file);
      ASSERT_EQ(found->layout.ranks(), static_cast<int32_t>(ranks));
      expectValid(found->layout);
      const topo::SearchRequest request{.pattern = topo::Pattern::Ring, .maxChannels = topo::kMostChannels};
      const auto checked = checkChannels(found->view.system, found->view.paths, request, found->graphs[topo::GraphKind::Ring]);
      EXPECT_TRUE(checked.ok()) << checked.violations.front();
    }
  }
}

/// Without peer access GPUs meet in host memory; where that is forbidden, too, nothing joins them, and the text says so.
TEST(GpuLayout, FollowsWhatSettingsAllow) {
  const Machine machine = machineOf("nvidia-dgx1v-v100x8");
  Settings settings;
  settings.paths.p2pDisabled = true;
  const auto found = findGpuLayout(machine, firstDevs(8), settings);
  ASSERT_TRUE(found) << found.error().text();
  expectValid(found->layout);
  EXPECT_GT(found->graphs[topo::GraphKind::Ring].typeIntra, topo::PathType::Pxb) << "over the CPUs";
  settings.paths.shmDisabled = true;
  const auto apart = findGpuLayout(machine, firstDevs(8), settings);
  if (!apart) {
    EXPECT_FALSE(apart.error().text().empty());
  } else {
    expectValid(apart->layout);
  }
}

TEST(GpuLayout, AGraphFileIsHonouredAndMustFit) {
  const Machine machine = machineOf("pcie-t4x8-1switch");
  Settings settings;
  const auto before = findGpuLayout(machine, firstDevs(4), settings);
  ASSERT_TRUE(before) << before.error().text();
  topo::Graphs graphs = before->graphs;
  for (topo::Channel& channel : graphs[topo::GraphKind::Ring].channels) std::swap(channel.gpus[1], channel.gpus[2]);
  settings.graphs = topo::Document{.file = "graphs.xml", .root = topo::writeGraphs(graphs, before->view.system)};
  settings.hash = 5;
  const auto after = findGpuLayout(machine, firstDevs(4), settings);
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_EQ(ringOf(before->layout), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(ringOf(after->layout), (std::vector<int32_t>{0, 2, 1, 3}));
  graphs[topo::GraphKind::Ring].intraGBps *= 10;
  settings.graphs->root = topo::writeGraphs(graphs, before->view.system);
  const auto faster = findGpuLayout(machine, firstDevs(4), settings);
  ASSERT_TRUE(faster) << faster.error().text();
  EXPECT_EQ(ringOf(faster->layout), (std::vector<int32_t>{0, 2, 1, 3})) << "taken as it is";
  EXPECT_NE(faster->graphs.note.find("graphs.xml: graphs 0 promise more"), std::string::npos) << faster->graphs.note;
  graphs[topo::GraphKind::Ring].typeIntra = topo::PathType::Nvl;
  settings.graphs->root = topo::writeGraphs(graphs, before->view.system);
  const auto refused = findGpuLayout(machine, firstDevs(4), settings);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("graphs.xml"), std::string::npos) << refused.error().text();
}

TEST(GpuLayout, RefusesWhatItCannotPlace) {
  const Machine machine = machineOf("pcie-t4x8-1switch");
  const auto twice = findGpuLayout(machine, std::vector<int>{0, 1, 1}, {});
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().text().find("ranks 1 and 2 compute with the same GPU 1"), std::string::npos) << twice.error().text();
  EXPECT_FALSE(findGpuLayout(machine, std::vector<int>{0, 99}, {}));
}

TEST(GpuLayouts, FindsOnceWhatIsAskedForOften) {
  const Machine machine = machineOf("pcie-t4x8-1switch");
  GpuLayouts layouts;
  const auto first = layouts.find(machine, firstDevs(4), {});
  EXPECT_EQ(layouts.find(machine, firstDevs(4), {}), first);
  EXPECT_NE(layouts.find(machine, firstDevs(3), {}), first);
  Settings other;
  other.hash = 7;
  EXPECT_NE(layouts.find(machine, firstDevs(4), other), first);
  for (int i = 0; i < 200; ++i) {
    other.hash = static_cast<uint64_t>(i) + 100;
    EXPECT_TRUE(*layouts.find(machine, firstDevs(2), other));
  }
}

}  // namespace
}  // namespace tutti::machine::gpu_layout_test
