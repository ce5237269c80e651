// A least cut must part the sets and weigh no more than any other one, which a small graph lets us list.
#include "topo/search_flow.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti::topo::search_flow_test {
namespace {

struct Link {
  int from;
  int to;
  int capacity;
};

int weightOf(const std::vector<Link>& links, uint32_t inside) {
  int weight = 0;
  for (const Link& link : links) weight += (inside >> link.from & 1) != 0 && (inside >> link.to & 1) == 0 ? link.capacity : 0;
  return weight;
}

TEST(FlowGraph, FindsALeastCut) {
  constexpr int kNodes = 8;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Link> links;
    FlowGraph graph(kNodes);
    for (int i = 0; i < 20; ++i) {
      const Link link{static_cast<int>(random() % kNodes), static_cast<int>(random() % kNodes), static_cast<int>(random() % 9 + 1)};
      if (link.from == link.to) continue;
      graph.addLink(link.from, link.to, link.capacity, static_cast<int32_t>(links.size()));
      links.push_back(link);
    }
    std::vector<bool> isSink(kNodes, false);
    isSink[6] = isSink[7] = true;
    const std::vector<int32_t> cut = graph.leastCut({0, 1}, isSink);

    int least = 1 << 30;
    for (uint32_t inside = 0; inside < 1U << kNodes; ++inside) {
      if ((inside & 3) == 3 && inside >> 6 == 0) least = std::min(least, weightOf(links, inside));
    }
    int weight = 0;
    std::vector<Link> left = links;
    for (const int32_t tag : cut) {
      weight += links[static_cast<size_t>(tag)].capacity;
      left[static_cast<size_t>(tag)].capacity = 0;
    }
    EXPECT_EQ(weight, least);
    std::vector<bool> reached(kNodes, false);
    reached[0] = reached[1] = true;
    for (int step = 0; step < kNodes; ++step) {
      for (const Link& link : left) {
        if (link.capacity > 0 && reached[static_cast<size_t>(link.from)]) reached[static_cast<size_t>(link.to)] = true;
      }
    }
    EXPECT_FALSE(reached[6] || reached[7]);
  }
}

}  // namespace
}  // namespace tutti::topo::search_flow_test
