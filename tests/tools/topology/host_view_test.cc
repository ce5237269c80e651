#include "topology/host_view.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "machine/host_layout.h"
#include "topo/graph_xml.h"
#include "topo/host_devices.h"
#include "topology/facts.h"
#include "topology/graph_facts.h"
#include "topology/show.h"
#include "topology/svg.h"

namespace tutti::tool::host_view_test {
namespace {

topo::Document machineOf(const char* name) {
  const auto machine = topo::readXml(std::string(TUTTI_SOURCE_DIR "/tests/data/hosts/") + name + ".xml");
  EXPECT_TRUE(machine.has_value()) << name;
  return machine ? *machine : topo::Document();
}

topo::View viewOfFour(std::optional<int> devices, const std::optional<topo::CpuSet>& allowed = {}) {
  FactsOptions options;
  options.hostDevices = devices;
  auto view = hostViewOf(machineOf("four_nodes"), options, allowed);
  EXPECT_TRUE(view) << view.error().text();
  return *std::move(view);
}

/// NUMA nodes 0 and 2, and 1 and 3, share a socket.
TEST(HostView, TheRingOfRanksPassesNearNumaNodesFirst) {
  const topo::View view = viewOfFour(8);
  nlohmann::ordered_json run = factsOf(view, {});
  const auto graphs = addHostGraphFacts(run, view);
  ASSERT_TRUE(graphs);
  EXPECT_EQ(run["graphs"]["ring"]["channels"][0]["hosts"], (std::vector<int>{0, 1, 2, 3, 6, 7, 4, 5}));
  EXPECT_EQ(run["graphs"]["ring"]["bwIntra"], 16);
  EXPECT_EQ(run["graphs"]["ring"]["typeIntra"], "SYS");
  EXPECT_EQ(run["final"]["ringsFromRank0"][0].size(), 8u);
  EXPECT_NE(showHostRing(view).find("SYS 16 GB/s\n  0 1 2 3 6 7 4 5\n"), std::string::npos) << showHostRing(view);
  EXPECT_EQ((*graphs)[topo::GraphKind::Ring].channels[0].gpus.size(), 8u);
}

TEST(HostView, FactsNameDevicesPathsMemoryAndDistances) {
  const nlohmann::ordered_json run = factsOf(viewOfFour(4), {});
  EXPECT_EQ(run["ranks"], 4);
  EXPECT_EQ(run["system"]["counts"]["HOST"], 4);
  EXPECT_EQ(run["system"]["counts"]["GPU"], 0);
  EXPECT_EQ(run["system"]["hosts"][3]["cpus"], "12-15");
  EXPECT_EQ(run["system"]["cpus"][0]["distances"]["2"], 12);
  EXPECT_EQ(run["system"]["links"]["HOST1"][0], (nlohmann::ordered_json{"LOC", 20.0, "CPU0-1"}));
  EXPECT_EQ(run["paths"]["host_host"]["HOST0"]["HOST3"],
            (nlohmann::ordered_json{{"type", "SYS"}, {"bw", 16.0}, {"hops", 3}, {"via", "CPU0-0 CPU0-3"}}));
  EXPECT_FALSE(run.contains("gdr"));
}

TEST(HostView, StatedDevicesStayUnlessOthersAreAskedFor) {
  topo::Document machine = machineOf("four_nodes");
  const topo::HostDevice stated[] = {{.rank = 0, .numa = 3, .cpus = {}}, {.rank = 1, .numa = 1, .cpus = {}}};
  ASSERT_TRUE(addHostDevices(machine, stated).ok());
  FactsOptions options;
  EXPECT_EQ(hostViewOf(machine, options, {})->system.count(topo::NodeKind::Host), 2);
  options.hostDevices = 5;
  EXPECT_EQ(hostViewOf(machine, options, {})->system.count(topo::NodeKind::Host), 5);
  options.hostDevices = 0;
  EXPECT_EQ(hostViewOf(machine, options, topo::CpuSet::fromList("0-2,9"))->system.count(topo::NodeKind::Host), 4);
  EXPECT_FALSE(hostViewOf(machine, options, topo::CpuSet::fromList("99")));
}

TEST(HostView, TextAndPictureShowThem) {
  const topo::View view = viewOfFour(4);
  const std::string text = showTopology(view, {});
  for (const char* part : {"4 host devices, 0 nets, 4 CPUs; best path 16 GB/s", "    LOC 20 - HOST3  CPUs 12-15\n",
                           "distances 0:32 1:12 2:32 3:10", "Paths between host devices: type and GB/s\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "in\n" << text;
  EXPECT_EQ(text.find("GPUDirect"), std::string::npos);
  const topo::Graphs graphs = hostGraphs(view);
  const std::string picture = drawTopology(view, &graphs);
  for (const char* part : {">HOST3<", ">CPUs 12-15<", ">LOC 20<", ">ring 0<", ">16 GB/s each<"})
    EXPECT_NE(picture.find(part), std::string::npos) << part;
}

/// As a user does: the dump is what NCCL_GRAPH_FILE names.
TEST(HostView, TheRingThatIsWrittenIsReadAgain) {
  for (const int devices : {1, 2, 8, 20}) {
    SCOPED_TRACE(devices);
    const topo::View view = viewOfFour(devices);
    const topo::Graphs graphs = hostGraphs(view);
    const auto written = topo::parseXml("ring.xml", topo::writeXml(topo::writeGraphs(graphs, view.system)));
    ASSERT_TRUE(written) << written.error().text();
    const auto read = machine::findHostLayout(*written, devices);
    ASSERT_TRUE(read) << read.error().text();
    const std::optional<connect::Layout>& layout = *read;
    if (!layout) FAIL() << "no layout";
    std::vector<int32_t> ring;
    for (const topo::NodeId device : graphs[topo::GraphKind::Ring].channels[0].gpus) ring.push_back(view.system.at(device).host.rank);
    EXPECT_EQ(layout->rings(), std::vector<std::vector<int32_t>>{ring});
  }
}

TEST(HostView, OneDeviceHasNobodyToTalkTo) {
  const topo::View view = viewOfFour(1);
  EXPECT_EQ(hostGraphs(view)[topo::GraphKind::Ring].channels[0].gpus.size(), 1u);
  EXPECT_FALSE(drawTopology(view, nullptr).empty());
}

}  // namespace
}  // namespace tutti::tool::host_view_test
