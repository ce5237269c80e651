#include "topo/graph.h"

#include <gtest/gtest.h>

namespace tutti::topo::graph_test {
namespace {

struct Small {
  System system;
  NodeId cpu = system.addNode(NodeKind::Cpu, 0);
  NodeId gpu0 = system.addNode(NodeKind::Gpu, 0x1000);
  NodeId gpu1 = system.addNode(NodeKind::Gpu, 0x2000);
  NodeId gpu2 = system.addNode(NodeKind::Gpu, 0x3000);

  Small() {
    int rank = 0;
    for (const NodeId gpu : {gpu0, gpu1, gpu2}) {
      system.at(gpu).gpu.rank = rank++;
      system.connect(gpu, cpu, LinkType::Pci, 12);
      system.connect(cpu, gpu, LinkType::Pci, 12);
    }
  }
};

TEST(Graph, ParallelLinksAreOneWithTheSumAndTheFastestComesFirst) {
  Small s;
  s.system.connect(s.gpu0, s.gpu1, LinkType::Nvl, 10);
  s.system.connect(s.gpu0, s.gpu2, LinkType::Nvl, 10);
  s.system.connect(s.gpu0, s.gpu2, LinkType::Nvl, 10);
  const std::vector<LinkId>& links = s.system.at(s.gpu0).links;
  ASSERT_EQ(links.size(), 3u);
  EXPECT_EQ(s.system.at(links[0]).to, s.gpu2);
  EXPECT_EQ(s.system.at(links[0]).GBps, 20.0F);
  EXPECT_EQ(s.system.at(links[1]).to, s.cpu);
  EXPECT_EQ(s.system.at(links[2]).to, s.gpu1);
}

TEST(Graph, LinksKnowTheirReverseWhicheverSideCameFirst) {
  Small s;
  const LinkId down = s.system.linkBetween(s.cpu, s.gpu1, LinkType::Pci);
  const LinkId up = s.system.linkBetween(s.gpu1, s.cpu, LinkType::Pci);
  EXPECT_EQ(s.system.at(down).reverse, up);
  EXPECT_EQ(s.system.at(up).reverse, down);
  s.system.connect(s.gpu0, s.gpu1, LinkType::Nvl, 10);
  EXPECT_EQ(s.system.at(s.system.linkBetween(s.gpu0, s.gpu1, LinkType::Nvl)).reverse, kNoLink);
}

TEST(Graph, DroppingANodeKeepsTheOrderOfTheRest) {
  Small s;
  const System kept = withoutNodes(s.system, {false, false, true, false});
  ASSERT_EQ(kept.count(NodeKind::Gpu), 2);
  EXPECT_EQ(kept.at(kept.all(NodeKind::Gpu)[1]).gpu.rank, 2);
  const NodeId cpu = kept.all(NodeKind::Cpu)[0];
  ASSERT_EQ(kept.at(cpu).links.size(), 2u);
  for (const LinkId id : kept.at(cpu).links) {
    EXPECT_EQ(kept.at(id).from, cpu);
    EXPECT_EQ(kept.at(kept.at(id).reverse).to, cpu);
  }
}

TEST(Graph, NamesAreThoseOfTheFacts) {
  Small s;
  EXPECT_EQ(nodeName(s.system, s.gpu1), "GPU1");
  EXPECT_EQ(nodeName(s.system, s.cpu), "CPU0-0");
  const NodeId net = s.system.addNode(NodeKind::Net, makeNodeId(1, 3));
  s.system.at(net).net.dev = 3;
  EXPECT_EQ(nodeName(s.system, net), "NET1.3");
  EXPECT_EQ(nodeName(s.system, s.system.addNode(NodeKind::Pci, makeNodeId(2, 0x16000))), "PCI2-16000");
  EXPECT_EQ(busIdText(makeNodeId(3, 0x201b0f1)), "0020:1b:0f.1");
  EXPECT_EQ(pathTypeFromName("P2C"), PathType::P2c);
  EXPECT_EQ(pathTypeFromName("PCI"), std::nullopt);
}

}  // namespace
}  // namespace tutti::topo::graph_test
