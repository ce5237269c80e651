#include "topology/svg.h"

#include <gtest/gtest.h>

#include <array>
#include <pugixml.hpp>
#include <set>

#include "topo/data.h"
#include "topology/facts.h"
#include "topology/graph_facts.h"
#include "topology/svg_layout.h"

namespace tutti::tool::svg_test {
namespace {

using topo::NodeId;
using topo::NodeKind;

topo::View viewOfFile(const std::string& path, int nodes) {
  const auto machine = topo::readXml(path);
  EXPECT_TRUE(machine.has_value()) << path;
  auto view = viewOf(*machine, {.nodes = nodes, .gpus = {}, .settings = {}});
  EXPECT_TRUE(view.has_value()) << view.error().text();
  return *std::move(view);
}

/// How many elements of the picture have that text.
int count(const pugi::xml_node& node, const std::string& text) {
  int sum = node.text().get() == text ? 1 : 0;
  for (const pugi::xml_node& child : node.children()) {
    if (child.type() == pugi::node_element) sum += count(child, text);
  }
  return sum;
}

pugi::xml_document parsed(const std::string& svg) {
  pugi::xml_document document;
  EXPECT_TRUE(document.load_string(svg.c_str()));
  return document;
}

TEST(Svg, NoTwoBoxesOverlapAndAllLieInside) {
  int looked = 0;
  for (const std::string& path : topo::test::filesOf("", ".xml")) {
    for (const int nodes : {1, 2}) {
      const auto machine = topo::readXml(path + ".xml");
      if (!machine || topo::gpuDevs(*machine).value_or(std::vector<int>()).empty()) continue;
      const auto view = viewOf(*machine, {.nodes = nodes, .gpus = {}, .settings = {}});
      if (!view) continue;
      ++looked;
      const Layout layout = layOut(view->system, 100);
      for (size_t a = 0; a < layout.places.size(); ++a) {
        const Place& at = layout.places[a];
        EXPECT_GE(at.x, Layout::kBoxWidth / 2) << path;
        EXPECT_LE(at.x + Layout::kBoxWidth / 2, layout.width) << path;
        EXPECT_GE(at.y, 100 + Layout::kBoxHeight / 2) << path;
        EXPECT_LE(at.y + Layout::kBoxHeight / 2, layout.height) << path;
        for (size_t b = 0; b < a; ++b) {
          const Place& other = layout.places[b];
          const bool isApart = std::abs(at.x - other.x) >= Layout::kBoxWidth || std::abs(at.y - other.y) >= Layout::kBoxHeight;
          EXPECT_TRUE(isApart) << path << ": " << topo::nodeName(view->system, NodeId{static_cast<int32_t>(a)}) << " on "
                               << topo::nodeName(view->system, NodeId{static_cast<int32_t>(b)});
        }
      }
    }
  }
  EXPECT_GE(looked, 2 * 28) << "the files that lie in tests/data/topologies";
}

TEST(Svg, EveryNodeAndEveryLinkIsThereOnce) {
  const topo::View view = viewOfFile(topo::test::ownFile("nvidia-dgx1v-v100x8"), 2);
  const pugi::xml_document document = parsed(drawTopology(view, nullptr));
  for (size_t node = 0; node < view.system.nodes.size(); ++node) {
    EXPECT_EQ(count(document, topo::nodeName(view.system, NodeId{static_cast<int32_t>(node)})), 1);
  }
  EXPECT_EQ(count(document, "NVL 20") + count(document, "NVL 40"), 16) << "four others of each of 8 GPUs";
  EXPECT_EQ(count(document, "SYS 6"), 1);
  EXPECT_EQ(count(document, "NET 12.5"), 4);
  EXPECT_EQ(count(document, "PCI 12"), 4 + 8 + 4) << "switches, GPUs, NICs";
}

/// The links between a POWER CPU and its GPUs lie beside the PCI links of the same two, and so do their labels.
// Labels are boxes of 13 units with the text in them; of two that lie on each other one cannot be read.
TEST(Svg, NoLabelLiesOnAnother) {
  int labels = 0;
  int hidden = 0;
  for (const std::string& path : topo::test::filesOf("", ".xml")) {
    const auto machine = topo::readXml(path + ".xml");
    if (!machine || topo::gpuDevs(*machine).value_or(std::vector<int>()).empty()) continue;
    const auto view = viewOf(*machine, {.nodes = 1, .gpus = {}, .settings = {}});
    if (!view) continue;
    const auto document = parsed(drawTopology(*view, nullptr));
    std::vector<std::array<double, 3>> seen;  // left, top, width
    for (const auto& found : document.select_nodes("//rect[@height='13']")) {
      const pugi::xml_node box = found.node();
      const std::array<double, 3> own = {box.attribute("x").as_double(), box.attribute("y").as_double(),
                                         box.attribute("width").as_double()};
      ++labels;
      for (const auto& other : seen)
        if (own[0] < other[0] + other[2] && other[0] < own[0] + own[2] && std::abs(own[1] - other[1]) < 13) {
          ++hidden;
          break;
        }
      seen.push_back(own);
    }
  }
  EXPECT_GT(labels, 300);
  EXPECT_EQ(hidden, 0);
}

TEST(Svg, LinksOfTheSameTwoLieBesideEachOther) {
  const topo::View view = viewOfFile(topo::test::ownFile("ibm-summit-v100x6"), 1);
  const pugi::xml_document document = parsed(drawTopology(view, nullptr));
  std::vector<std::pair<double, double>> pci;
  std::vector<std::pair<double, double>> nvlink;
  for (const pugi::xml_node& text : document.document_element().child("g").children("text")) {
    const std::pair<double, double> at{text.attribute("x").as_double(), text.attribute("y").as_double()};
    if (std::string_view(text.text().get()) == "PCI 12") pci.push_back(at);
    if (std::string_view(text.text().get()) == "NVL 40") nvlink.push_back(at);
  }
  EXPECT_GE(pci.size(), 6u);
  EXPECT_GE(nvlink.size(), 6u);
  for (const auto& [x, y] : pci)
    for (const auto& [otherX, otherY] : nvlink) EXPECT_TRUE(std::abs(x - otherX) > 36 || std::abs(y - otherY) > 11) << x << ", " << y;
}

TEST(Svg, ChannelsAreStripsAndEqualOnesAreOne) {
  const topo::View view = viewOfFile(topo::test::ownFile("nvidia-dgx1v-v100x8"), 1);
  topo::Graphs graphs;
  std::vector<NodeId> order = view.system.all(NodeKind::Gpu);
  topo::ChannelSet& rings = graphs[topo::GraphKind::Ring];
  rings.intraGBps = 20;
  rings.channels = {{.gpus = order}, {.gpus = order}};
  std::swap(order[1], order[2]);
  rings.channels.push_back({.gpus = order});
  const pugi::xml_document document = parsed(drawTopology(view, &graphs));
  EXPECT_EQ(count(document, "ring 0, 1"), 1);
  EXPECT_EQ(count(document, "ring 2"), 1);
  EXPECT_EQ(count(document, "20 GB/s each"), 2);
  EXPECT_EQ(count(document, "GPU3"), 1 + 2);
}

TEST(Svg, NamesOfFilesCannotBreakIt) {
  topo::View view = viewOfFile(topo::test::ownFile("pcie-l4x2-intel1s"), 1);
  view.xml.file = "a<b>&\"c";
  EXPECT_EQ(count(parsed(drawTopology(view, nullptr)), view.xml.file), 1);
}

}  // namespace
}  // namespace tutti::tool::svg_test
