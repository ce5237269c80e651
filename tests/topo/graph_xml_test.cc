#include "topo/graph_xml.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "topo/data.h"
#include "topo/view.h"

namespace tutti::topo::graph_xml_test {
namespace {

Result<View> viewOf(const std::string& file, int nodes, bool collnet = false) {
  const auto machine = readXml(file);
  if (!machine) return tl::unexpected(machine.error());
  auto request = identicalNodes(*machine, nodes, false, {});
  if (!request) return tl::unexpected(request.error());
  request->collNets = collnet;
  return makeView(*machine, *request);
}

/// The topology that a dump belongs to: `name.xml` above it, `name` without its last part.
std::string machineOf(std::string dump) {
  static const std::pair<const char*, const char*> kOthers[] = {{"zyuestc-graph", "zyuestc-rtxa6000x4"}};
  for (const auto& [graph, machine] : kOthers) {
    if (const auto at = dump.find(graph); at != std::string::npos) return dump.replace(at, std::string(graph).size(), machine);
  }
  return dump;
}

bool sameSets(const Graphs& a, const Graphs& b) {
  for (int i = 0; i < kGraphKinds; ++i) {
    const ChannelSet& x = a.sets[i];
    const ChannelSet& y = b.sets[i];
    const bool both = a.computed[i] && a.sets[i].count() > 0;
    if (both != (b.computed[i] && b.sets[i].count() > 0)) return false;
    if (!both) continue;
    if (x.channels != y.channels || x.pattern != y.pattern || x.intraGBps != y.intraGBps || x.interGBps != y.interGBps) return false;
    if (x.typeIntra != y.typeIntra || x.typeInter != y.typeInter || x.sameChannels != y.sameChannels || x.crossNic != y.crossNic)
      return false;
  }
  return true;
}

/// Loads a dump, compares with what its own elements state, and writes it again.
void expectLoads(const std::string& path, const std::string& machine, int nodes) {
  const auto view = viewOf(machine, nodes);
  ASSERT_TRUE(view) << view.error().text();
  const auto file = readXml(path);
  ASSERT_TRUE(file) << file.error().text();
  const auto graphs = readGraphs(*file, view->system, {});
  ASSERT_TRUE(graphs) << graphs.error().text();
  const auto fitting = findGraphs(&*file, view->system, view->paths, {.collnet = false, .nvls = false, .settings = {}});
  ASSERT_TRUE(fitting) << fitting.error().text();
  // A vendor's graph for pairs of GPUs with NVLink; in this topology every NVLink leads back to its own GPU, and so to none.
  if (path.find("azure-ncv4-a100pciex4") != std::string::npos) {
    EXPECT_NE(fitting->note.find("graphs 0, 1, 2 promise more than this machine has"), std::string::npos) << fitting->note;
  } else {
    EXPECT_EQ(fitting->note, "") << path;
  }
  for (int kind = 0; kind < kGraphKinds; ++kind) {
    if (!graphs->computed[kind]) continue;
    EXPECT_EQ(fitting->sets[kind].channels, graphs->sets[kind].channels) << path << " graph " << kind;
  }
  for (const Element& element : file->root.children) {
    const auto kind = static_cast<GraphKind>(std::stoi(*element.find("id")));
    const ChannelSet& set = (*graphs)[kind];
    ASSERT_EQ(set.channels.size(), element.children.size()) << path;
    if (set.channels.empty()) continue;
    EXPECT_FLOAT_EQ(set.intraGBps, std::stof(*element.find("speedintra")));
    EXPECT_FLOAT_EQ(set.interGBps, std::stof(*element.find("speedinter")));
    for (size_t c = 0; c < element.children.size(); ++c) {
      std::vector<NodeId> stated;
      for (const Element& stop : element.children[c].children) {
        const auto dev = std::stoull(*stop.find("dev"), nullptr, 16);
        const NodeKind nodes_ = stop.name == "gpu" ? NodeKind::Gpu : NodeKind::Net;
        for (const NodeId node : view->system.all(nodes_)) {
          const Node& it = view->system.at(node);
          if (static_cast<unsigned long long>(nodes_ == NodeKind::Gpu ? it.gpu.dev : it.net.dev) == dev) {
            stated.push_back(node);
            break;
          }
        }
      }
      std::vector<NodeId> ours = set.channels[c].gpus;
      if (view->system.inter) {
        ours.insert(ours.begin(), set.channels[c].netIn);
        ours.push_back(set.channels[c].netOut);
      }
      EXPECT_EQ(ours, stated) << path << " graph " << static_cast<int>(kind) << " channel " << c;
    }
  }
  const auto again = readGraphs({.file = "again", .root = writeGraphs(*graphs, view->system)}, view->system, {});
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_TRUE(sameSets(*graphs, *again)) << path;
}

TEST(GraphXml, LoadsTheDumpsOfTheReference) {
  int loaded = 0;
  for (const char* nodes : {"1", "2"}) {
    for (const std::string& dump : test::filesOf("/expected", std::string(".n") + nodes + ".graph.xml")) {
      const size_t at = dump.rfind("/expected/");
      expectLoads(dump + ".n" + nodes + ".graph.xml", dump.substr(0, at) + dump.substr(at + 9) + ".xml", nodes[0] - '0');
      ++loaded;
    }
  }
  for (const std::string& dump : test::filesOf("/graphs", ".graph.xml")) {
    const size_t at = dump.rfind("/graphs/");
    expectLoads(dump + ".graph.xml", dump.substr(0, at) + dump.substr(at + 7) + ".xml", 1);
    ++loaded;
  }
  for (const std::string& dump : test::filesOf("/graphs", "-graph.xml")) {
    const std::string path = dump + "-graph.xml";
    const std::string machine = machineOf(dump + "-graph");
    const size_t at = machine.rfind("/graphs/");
    expectLoads(path, machine.substr(0, at) + machine.substr(at + 7) + ".xml", 1);
    ++loaded;
  }
  std::printf("%d dumps loaded; %s\n", loaded, test::hasDataSet() ? "with the data set" : "the data set is absent, its dumps were skipped");
  EXPECT_GE(loaded, test::hasDataSet() ? 40 : 10);
}

TEST(GraphXml, WhatIsWrittenReadsBackTheSame) {
  for (const std::string& machine : test::filesOf("", ".xml")) {
    for (const int nodes : {1, 2}) {
      const auto view = viewOf(machine + ".xml", nodes, nodes == 2);
      if (!view) continue;
      const auto graphs = searchGraphs(view->system, view->paths, {.collnet = nodes == 2, .nvls = true, .settings = {}});
      if (!graphs) continue;
      const auto file = parseXml("written", writeXml(writeGraphs(*graphs, view->system)));
      ASSERT_TRUE(file) << file.error().text();
      const auto again = readGraphs(*file, view->system, {});
      ASSERT_TRUE(again) << machine << ": " << again.error().text();
      EXPECT_TRUE(sameSets(*graphs, *again)) << machine;
    }
  }
}

/// What is stated faster than it can be is taken as it is, and the first link that shows it is named.
TEST(GraphXml, NotesSpeedsThatTheMachineDoesNotHave) {
  const auto view = viewOf(test::ownFile("pcie-l4x2-intel1s"), 1);
  ASSERT_TRUE(view) << view.error().text();
  const auto graphs = searchGraphs(view->system, view->paths, {.collnet = false, .nvls = false, .settings = {}});
  ASSERT_TRUE(graphs) << graphs.error().text();
  Graphs faster = *graphs;
  faster[GraphKind::Ring].intraGBps *= 3;
  for (const bool fits : {true, false}) {
    const Document file{.file = "my.xml", .root = writeGraphs(fits ? *graphs : faster, view->system)};
    const auto found = findGraphs(&file, view->system, view->paths, {.collnet = false, .nvls = false, .settings = {}});
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_EQ(found->note.empty(), fits) << found->note;
    if (fits) continue;
    EXPECT_EQ(found->sets[0].channels, faster.sets[0].channels);
    EXPECT_EQ(found->sets[0].intraGBps, faster.sets[0].intraGBps);
    for (const char* part : {"my.xml: graphs 0 promise more", "as they are: link GPU", " carries ", "; it has "})
      EXPECT_NE(found->note.find(part), std::string::npos) << found->note;
  }
}

/// A hop that is farther than the file says is not this machine's.
TEST(GraphXml, RefusesPathsThatTheMachineDoesNotHave) {
  const auto view = viewOf(test::ownFile("pcie-l4x2-intel1s"), 1);
  ASSERT_TRUE(view) << view.error().text();
  auto graphs = searchGraphs(view->system, view->paths, {.collnet = false, .nvls = false, .settings = {}});
  ASSERT_TRUE(graphs) << graphs.error().text();
  (*graphs)[GraphKind::Ring].typeIntra = PathType::Nvl;
  (*graphs)[GraphKind::Ring].intraGBps *= 3;
  const Document file{.file = "my.xml", .root = writeGraphs(*graphs, view->system)};
  const auto found = findGraphs(&file, view->system, view->paths, {.collnet = false, .nvls = false, .settings = {}});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::InvalidUsage);
  for (const char* part : {"my.xml: graph 0", "does not fit this machine: channel 0: GPU0 → GPU1 is PHB; at most NVL is stated"})
    EXPECT_NE(found.error().text().find(part), std::string::npos) << found.error().text();
}

class GraphXmlRefusal : public ::testing::Test {
 protected:
  std::string refusal(const std::string& text) const {
    const auto view = viewOf(test::ownFolder() + "/pcie-l4x2-amd1s.xml", 1);
    if (!view) return view.error().text();
    const auto file = parseXml("g.xml", text);
    if (!file) return file.error().text();
    const auto graphs = readGraphs(*file, view->system, {});
    return graphs ? "" : graphs.error().text();
  }
  static std::string graph(const std::string& attributes, const std::string& channel) {
    return "<graphs version=\"1\">\n<graph " + attributes + ">\n" + channel + "\n</graph></graphs>";
  }
  const std::string good =
      "id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" speedintra=\"12\" speedinter=\"12\" typeintra=\"PHB\" typeinter=\"PIX\" "
      "samechannels=\"1\"";
  const std::string both = "<channel><gpu dev=\"0\"/><gpu dev=\"0x1\"/></channel>";
};

#define EXPECT_NAMES(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(GraphXmlRefusal, NamesTheElementAndWhatIsExpected) {
  EXPECT_EQ(refusal(graph(good, both)), "");
  EXPECT_NAMES(refusal("<system version=\"1\"/>"), "g.xml:1: <system>: the root is <system>");
  EXPECT_NAMES(refusal("<graphs version=\"2\"/>"), "version=\"2\"; expected a whole number from 1 to 1");
  EXPECT_NAMES(refusal(graph(good, "<channel><gpu dev=\"0\"/><gpu dev=\"0x7\"/></channel>")),
               "g.xml:3: <gpu dev=\"0x7\">: dev=\"0x7\"; expected one of the system's in hexadecimal: 0 1");
  EXPECT_NAMES(refusal(graph(good, "<channel><gpu dev=\"0\"/></channel>")), "1 <gpu>; expected 2");
  EXPECT_NAMES(refusal(graph(good, "<channel><gpu dev=\"1\"/><gpu dev=\"0x1\"/></channel>")), "stands twice");
  EXPECT_NAMES(refusal(graph(good, both + both)), "nchannels=\"1\"; expected 2");
  EXPECT_NAMES(refusal(graph(good, "<channel><net dev=\"0\"/><gpu dev=\"0\"/><gpu dev=\"1\"/></channel>")),
               "dev=\"0\"; expected one of the system's in hexadecimal: there is none");
  std::string wrong = good;
  wrong.replace(wrong.find("PHB"), 3, "XYZ");
  EXPECT_NAMES(refusal(graph(wrong, both)), "typeintra=\"XYZ\"; expected a path type");
  wrong = good;
  wrong.replace(wrong.find("\"4\""), 3, "\"1\"");
  EXPECT_NAMES(refusal(graph(wrong, both)), "pattern=\"1\"; expected what graph 0 can have, such as 4");
  wrong = good;
  wrong.replace(wrong.find("\"12\""), 4, "\"nan\"");
  EXPECT_NAMES(refusal(graph(wrong, both)), "speedintra=\"nan\"");
}

}  // namespace
}  // namespace tutti::topo::graph_xml_test
