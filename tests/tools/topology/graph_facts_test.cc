// The channels of every topology with expected facts, in every run: feasible, within their bound, and never below the reference's.
#include "topology/graph_facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "topo/data.h"
#include "topo/feasible.h"
#include "topology/expected.h"

namespace tutti::tool::graph_facts_test {
namespace {

using Json = nlohmann::ordered_json;
using topo::GraphKind;

ExpectedRun runOf(const Json& run) {
  auto read = expectedRun("", run);
  EXPECT_TRUE(read) << read.error().text();
  return read ? *std::move(read) : ExpectedRun{};
}

double valueOf(const Json& graph) {
  return graph.value("nChannels", 0) * std::min(graph["bwIntra"].get<double>(), graph["bwInter"].get<double>());
}

void checkRun(const std::string& place, const topo::Document& machine, const Json& expected) {
  const ExpectedRun run = runOf(expected);
  const auto view = viewOf(machine, run.facts);
  ASSERT_TRUE(view) << place << ": " << view.error().text();
  const auto graphs = graphsOf(*view, run.facts, run.graphs);
  ASSERT_TRUE(graphs) << place << ": " << graphs.error().text();
  for (int kind = 0; kind < topo::kGraphKinds; ++kind) {
    if (!graphs->computed[kind]) continue;
    const topo::ChannelSet& set = graphs->sets[kind];
    const bool collnet = kind == static_cast<int>(GraphKind::CollnetChain) || kind == static_cast<int>(GraphKind::CollnetDirect);
    const auto checked =
        topo::checkChannels(view->system, view->paths, {.pattern = set.pattern, .maxChannels = 64, .collnet = collnet}, set);
    EXPECT_TRUE(checked.ok()) << place << " graph " << kind << ": " << checked.violations[0];
    if (kind > 1) continue;
    EXPECT_LE(set.sumGBps(), set.boundGBps * 1.0001F) << place << " graph " << kind;
  }
  Json ours = {};
  ASSERT_TRUE(addGraphFacts(ours, machine, *view, run.facts, run.graphs)) << place;
  ours = Json::parse(ours.dump());
  for (const char* name : {"ring", "tree"}) {
    EXPECT_GE(valueOf(ours["graphs"][name]), valueOf(expected["graphs"][name]) * 0.99999) << place << " " << name;
    for (const auto& [field, value] : expected["graphs"][name].items()) {
      if (field == "search_ms") continue;  // it stands in timing_ms
      EXPECT_TRUE(ours["graphs"][name].contains(field)) << place << " " << name << " " << field;
    }
  }
  const Json& final = ours["final"];
  EXPECT_EQ(ours["topoFlags"]["nvlsSupport"], expected["topoFlags"]["nvlsSupport"]) << place;
  for (const char* same : {"nNodes", "nvlsChannels", "nvlsSupport", "collnetEnabled"}) {
    EXPECT_EQ(final[same], expected["final"][same]) << place << " final." << same;
  }
  if (final["nChannels"] == expected["final"]["nChannels"]) {
    for (const char* same : {"collChannels", "p2pChannels", "p2pChannelsPerPeer"})
      EXPECT_EQ(final[same], expected["final"][same]) << place << " final." << same;
  }
  EXPECT_EQ(final["ringsFromRank0"].size(), final["nChannels"].get<size_t>()) << place;
  EXPECT_EQ(final["trees"].size(), final["nChannels"].get<size_t>()) << place;
}

TEST(GraphFacts, AreNeverBelowTheReferences) {
  int runs = 0;
  for (const std::string& file : topo::test::filesOf("/expected", ".json")) {
    const Json facts = Json::parse(std::ifstream(file + ".json"));
    if (!facts.contains("runs")) continue;
    const std::string name = file.substr(file.rfind('/') + 1);
    const auto machine = topo::readXml(file.substr(0, file.rfind("/expected/")) + "/" + name + ".xml");
    ASSERT_TRUE(machine) << machine.error().text();
    for (const auto& [run, expected] : facts["runs"].items()) {
      checkRun(name + " " + run, *machine, expected);
      ++runs;
    }
  }
  std::printf("%d runs compared; %s\n", runs,
              topo::test::hasDataSet() ? "with the data set" : "the data set is absent, its runs were skipped");
  EXPECT_GE(runs, 20);
}

/// With the reference's own dump as NCCL_GRAPH_FILE, its channels, rings and trees come out, whatever we would have found.
TEST(GraphFacts, AreTheReferencesWithItsGraphFile) {
  int runs = 0;
  for (const std::string& file : topo::test::filesOf("/expected", ".json")) {
    const Json facts = Json::parse(std::ifstream(file + ".json"));
    const std::string name = file.substr(file.rfind('/') + 1);
    const auto machine = topo::readXml(file.substr(0, file.rfind("/expected/")) + "/" + name + ".xml");
    ASSERT_TRUE(machine) << machine.error().text();
    for (const char* nodes : {"n1", "n2"}) {
      if (!facts.contains("runs") || !facts["runs"].contains(nodes)) continue;
      const Json& expected = facts["runs"][nodes];
      ExpectedRun run = runOf(expected);
      run.graphs.graphFile = file + "." + nodes + ".graph.xml";
      const auto view = viewOf(*machine, run.facts);
      ASSERT_TRUE(view) << name;
      Json ours = {};
      const auto made = addGraphFacts(ours, *machine, *view, run.facts, run.graphs);
      if (expected["final"]["nNodes"] != expected["nodes"]) {
        // The file names GPUs of one part of the host; the other part has others.
        ASSERT_FALSE(made) << name;
        EXPECT_NE(made.error().text().find("graph.xml:"), std::string::npos) << made.error().text();
        continue;
      }
      ASSERT_TRUE(made) << name << ": " << made.error().text();
      ours = Json::parse(ours.dump());
      for (const char* kind : {"ring", "tree"}) {
        for (const char* field : {"nChannels", "bwIntra", "bwInter", "typeIntra", "typeInter", "channels", "pattern"}) {
          EXPECT_EQ(ours["graphs"][kind][field], expected["graphs"][kind][field]) << name << " " << nodes << " " << kind << " " << field;
        }
      }
      for (const char* field :
           {"nChannels", "ringsFromRank0", "trees", "p2pChannels", "p2pChannelsPerPeer", "maxTreePattern", "nvlsChannels"}) {
        EXPECT_EQ(ours["final"][field], expected["final"][field]) << name << " " << nodes << " " << field;
      }
      ++runs;
    }
  }
  std::printf("%d runs with a graph file\n", runs);
  EXPECT_GE(runs, 8);
}

TEST(GraphFacts, ACliqueOf72IsQuick) {
  const auto machine = topo::readXml(topo::test::ownFolder() + "/nvidia-gb200-nvl72-tray.xml");
  ASSERT_TRUE(machine) << machine.error().text();
  const FactsOptions options{.nodes = 18, .isClique = true, .gpus = {}, .settings = {}};
  const auto view = viewOf(*machine, options);
  ASSERT_TRUE(view) << view.error().text();
  EXPECT_EQ(view->system.count(topo::NodeKind::Gpu), 72);
  double ms = 1e9;  // the least of a few: whatever else runs on the machine takes its part
  const auto search = [&] {
    const auto begin = std::chrono::steady_clock::now();
    auto found = graphsOf(*view, options, {});
    ms = std::min(ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    return found;
  };
  auto graphs = search();
  for (int again = 0; again < 3 && ms >= 100; ++again) graphs = search();
  ASSERT_TRUE(graphs) << graphs.error().text();
  for (const GraphKind kind : {GraphKind::Ring, GraphKind::Tree, GraphKind::Nvls}) {
    const topo::ChannelSet& set = (*graphs)[kind];
    std::printf("72 GPUs, graph %d: %d channels of %g GB/s, bound %g\n", static_cast<int>(kind), set.count(), set.intraGBps, set.boundGBps);
    EXPECT_TRUE(topo::checkChannels(view->system, view->paths, {.pattern = set.pattern, .maxChannels = 64}, set).ok());
  }
  std::printf("searched in %.1f ms\n", ms);
#if defined(TUTTI_SANITIZED)
  EXPECT_LT(ms, 1000);
#else
  EXPECT_LT(ms, 100);
#endif
}

}  // namespace
}  // namespace tutti::tool::graph_facts_test
