#include "machine/show.h"

#include "machine/played.h"

namespace tutti::machine::show_test {
namespace {

TEST(Show, ATableOfWhatWasFound) {
  const auto found = findGpuLayout(test::machineOf("nvidia-dgxh100-h100x8"), test::firstDevs(4), {});
  ASSERT_TRUE(found) << found.error().text();
  const std::vector<std::string> lines = describe(*found);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(lines[0].find("4 GPUs, 1 NVSwitches"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1].find("bound") != std::string::npos, true);
  EXPECT_EQ(lines[2].substr(0, 12), "ring   RING ") << lines[2];
  EXPECT_NE(lines[2].find(" NVL"), std::string::npos) << lines[2];
  EXPECT_EQ(lines[3].substr(0, 5), "tree ");
}

TEST(Show, WhichRanksShareANumaNode) {
  EXPECT_EQ(describePlaces(std::vector<connect::RankPlace>{{0, 0, -1}, {0, 1, -1}, {0, 0, -1}}),
            "host devices: ranks 0 2 on NUMA node 0, 1 on NUMA node 1");
  EXPECT_EQ(describePlaces(std::vector<connect::RankPlace>{{0, 0, -1}, {1, 0, -1}, {1, -1, -1}}),
            "host devices: ranks 0 on NUMA node 0 of host 0, 2 on no single NUMA node of host 1, 1 on NUMA node 0 of host 1");
}

TEST(Show, RingsAndTreesAsTheReferenceWritesThem) {
  const connect::Layout layout({0, 2, 1});
  EXPECT_EQ(describeRings(layout), (std::vector<std::string>{"Channel 00/01 : 0 2 1"}));
  const connect::Layout two = connect::Layout::ofRings({{0, 1, 2}, {0, 2, 1}});
  EXPECT_EQ(describeRings(two), (std::vector<std::string>{"Channel 00/02 : 0 1 2", "Channel 01/02 : 0 2 1"}));
  EXPECT_EQ(describeTrees(two, Rank(2)), describeTrees(connect::Layout({0, 1, 2}), Rank(2)) + " [2] -1/-1/-1->2->1 [3] 0/-1/-1->2->-1");
  EXPECT_EQ(describeTrees(connect::Layout::natural(1), Rank(0)), "Trees [0] -1/-1/-1->0->-1 [1] -1/-1/-1->0->-1");
  const std::string trees = describeTrees(connect::Layout::natural(2), Rank(1));
  EXPECT_EQ(trees, "Trees [0] -1/-1/-1->1->0 [1] 0/-1/-1->1->-1");
}

}  // namespace
}  // namespace tutti::machine::show_test
