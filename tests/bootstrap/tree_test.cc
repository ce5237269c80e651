#include "bootstrap/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

namespace tutti::bootstrap::tree_test {
namespace {

Membership spread(int32_t processes, int32_t hosts) {
  Membership all;
  all.hosts.resize(static_cast<size_t>(hosts));
  for (int32_t p = 0; p < processes; ++p) {
    all.processes.push_back({static_cast<uint64_t>(p), p, p % hosts, {p}, {}});
    all.hosts[static_cast<size_t>(p % hosts)].processes.push_back(p);
  }
  return all;
}

TEST(Tree, EverybodyIsReachedOnceInFewSteps) {
  for (const auto& [processes, hosts] : {std::pair{1, 1}, {2, 1}, {2, 2}, {7, 3}, {64, 64}, {100, 1}, {513, 17}}) {
    const Membership all = spread(processes, hosts);
    std::vector<int> depth(static_cast<size_t>(processes), -1);
    std::vector<int32_t> order = {0};
    depth[0] = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const std::vector<int32_t> children = treeChildren(all, order[i]);
      EXPECT_LE(children.size(),
                std::bit_width(static_cast<uint32_t>(hosts)) + std::bit_width(static_cast<uint32_t>(processes / hosts + 1)));
      for (const int32_t child : children) {
        EXPECT_EQ(treeParent(all, child), order[i]);
        ASSERT_EQ(depth[static_cast<size_t>(child)], -1) << "once";
        depth[static_cast<size_t>(child)] = depth[static_cast<size_t>(order[i])] + 1;
        const bool betweenHosts = all.process(child).host != all.process(order[i]).host;
        EXPECT_TRUE(!betweenHosts || (placeInHost(all, child) == 0 && placeInHost(all, order[i]) == 0));
        order.push_back(child);
      }
    }
    EXPECT_EQ(order.size(), static_cast<size_t>(processes));
    EXPECT_EQ(treeParent(all, 0), -1);
    EXPECT_LE(*std::max_element(depth.begin(), depth.end()), 2 * std::bit_width(static_cast<uint32_t>(processes)));
  }
}

}  // namespace
}  // namespace tutti::bootstrap::tree_test
