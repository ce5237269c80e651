#include "tune/link_model.h"

#include <gtest/gtest.h>

namespace tutti::tune::link_model_test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

Fabric fabricOf(int32_t nodes, int32_t perNode = 8) {
  Fabric fabric;
  fabric.ranks = nodes * perNode;
  fabric.nodes = nodes;
  fabric.rings = {16, 20, 12, LinkKind::NvLink, 0, false};
  fabric.trees = fabric.rings;
  return fabric;
}

Cost cost(const Fabric& fabric, std::string_view algorithm, NcclProtocol protocol, uint64_t bytes, int32_t channels = 16,
          Collective collective = Collective::AllReduce) {
  LinkModel model(fabric, linkConstants());
  const auto found = model.estimate(*exec::record::findAlgorithm(collective, algorithm), protocol, channels, bytes);
  EXPECT_TRUE(found) << algorithm;
  return found.value_or(Cost());
}

// 2 (n - 1) hops of a ring, and 2 (n - 1) / n of the bytes over channels × speed.
TEST(LinkModel, IsTheSumOfHopsAndBytes) {
  const Cost ring = cost(fabricOf(1), "ring", NcclProtocol::Simple, 320 * 1000 * 1000);
  EXPECT_DOUBLE_EQ(ring.launchUs, 8.4);
  EXPECT_DOUBLE_EQ(ring.hopsUs, 14 * 3.4);
  EXPECT_NEAR(ring.trafficUs, 1000 * 14.0 / 8, 1);
  const Cost small = cost(fabricOf(1), "ring", NcclProtocol::LL, 8);
  EXPECT_DOUBLE_EQ(small.hopsUs, 14 * 0.6);
  EXPECT_LT(small.sum(), ring.sum());
}

TEST(LinkModel, HopsOverNetsCostMoreAndNetsBoundTheSpeed) {
  const Cost near = cost(fabricOf(1, 16), "ring", NcclProtocol::LL128, 64 * kMiB);
  const Cost far = cost(fabricOf(2), "ring", NcclProtocol::LL128, 64 * kMiB);
  EXPECT_GT(far.hopsUs, near.hopsUs);
  EXPECT_GT(far.trafficUs, near.trafficUs);
  Fabric slow = fabricOf(2);
  slow.rings.interGBps = 1;
  EXPECT_GT(cost(slow, "ring", NcclProtocol::LL128, 64 * kMiB).trafficUs, 5 * far.trafficUs);
  slow.rings.netUs = 100;
  EXPECT_GT(cost(slow, "ring", NcclProtocol::LL128, 8).hopsUs, 100);
}

TEST(LinkModel, TreesWinOverManyNodesWhereCallsAreSmall) {
  for (const int32_t nodes : {16, 64}) {
    EXPECT_LT(cost(fabricOf(nodes), "tree", NcclProtocol::LL, 8).sum(), cost(fabricOf(nodes), "ring", NcclProtocol::LL, 8).sum());
  }
}

TEST(LinkModel, ProtocolsAreBounded) {
  const auto gbps = [](NcclProtocol protocol, int32_t channels) {
    Fabric fabric = fabricOf(1);
    fabric.rings.intraGBps = 1000;
    return 1e3 * kMiB * 1024 / 1e6 / cost(fabric, "ring", protocol, 1024 * kMiB, channels).trafficUs * 14 / 8;
  };
  EXPECT_NEAR(gbps(NcclProtocol::LL, 64), 141, 1) << "all channels together";
  EXPECT_NEAR(gbps(NcclProtocol::LL128, 2), 2 * 36.7, 1) << "each channel";
  EXPECT_NEAR(gbps(NcclProtocol::Simple, 2), 2000, 20);
}

TEST(LinkModel, KnowsOnlyWhatHasConstants) {
  LinkModel model(fabricOf(1), linkConstants());
  const auto& pat = *exec::record::findAlgorithm(Collective::AllGather, "pat");
  EXPECT_FALSE(model.estimate(pat, NcclProtocol::LL, 4, 8));
  EXPECT_TRUE(model.estimate(pat, NcclProtocol::Simple, 4, 8));
  EXPECT_FALSE(model.estimate(*exec::record::findAlgorithm(Collective::AllReduce, "oneshot"), NcclProtocol::LL, 4, 8));
  EXPECT_FALSE(model.estimate(pat, NcclProtocol::Simple, 0, 8)) << "no channel";
}

}  // namespace
}  // namespace tutti::tune::link_model_test
