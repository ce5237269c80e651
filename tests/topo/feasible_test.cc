// Hand-made channel sets that break one rule each; the checker has to name it.
#include "topo/feasible.h"

#include <gtest/gtest.h>

namespace tutti::topo::feasible_test {
namespace {

/// Four GPUs on an NVSwitch (100 GB/s each) and, in pairs, on two PCI switches with a NIC each (25 GB/s), on one CPU.
class Feasible : public ::testing::Test {
 protected:
  void SetUp() override { build(true); }

  void build(bool inter, int sm = 90, CpuVendor vendor = CpuVendor::Amd) {
    system = {};
    const NodeId cpu = system.addNode(NodeKind::Cpu, makeNodeId(0, 0));
    system.at(cpu).cpu = {.arch = CpuArch::X86, .vendor = vendor, .model = CpuModel::Skylake, .affinity = {}};
    const NodeId nvs = system.addNode(NodeKind::NvSwitch, makeNodeId(0, 0));
    for (int half = 0; half < 2; ++half) {
      const NodeId sw = system.addNode(NodeKind::Pci, makeNodeId(0, 0x1000U * static_cast<unsigned>(half + 1)));
      both(sw, cpu, LinkType::Pci, 48);
      for (int i = 0; i < 2; ++i) {
        const int dev = 2 * half + i;
        const NodeId made = system.addNode(NodeKind::Gpu, makeNodeId(0, 0x100000U + 0x1000U * static_cast<unsigned>(dev)));
        system.at(made).gpu = {.dev = dev, .rank = dev, .sm = sm, .gdr = true, .gcn = {}};
        both(made, nvs, LinkType::Nvl, 100);
        both(made, sw, LinkType::Pci, 48);
      }
      const NodeId nic = system.addNode(NodeKind::Nic, makeNodeId(0, 0x200000U + 0x1000U * static_cast<unsigned>(half)));
      const NodeId net = system.addNode(NodeKind::Net, makeNodeId(0, static_cast<uint64_t>(half)));
      system.at(net).net = {.dev = half,
                            .port = 1,
                            .guid = 7U + static_cast<uint64_t>(half),
                            .busId = 0,
                            .GBps = 25,
                            .latencyUs = 0,
                            .maxChannels = 64,
                            .gdr = true,
                            .coll = false,
                            .localGpu = kNoNode};
      both(nic, sw, LinkType::Pci, 48);
      both(nic, net, LinkType::Net, 25);
    }
    system.ranks = inter ? 8 : 4;
    auto found = computePaths(system, {});
    ASSERT_TRUE(found) << found.error().text();
    auto trimmed = trim(system, *found, 0, {});
    ASSERT_TRUE(trimmed) << trimmed.error().text();
    paths = *std::move(trimmed);
  }
  void both(NodeId a, NodeId b, LinkType type, float GBps) {
    system.connect(a, b, type, GBps);
    system.connect(b, a, type, GBps);
  }
  NodeId gpu(int i) const { return system.all(NodeKind::Gpu)[static_cast<size_t>(i)]; }
  NodeId net(int i) const { return system.all(NodeKind::Net)[static_cast<size_t>(i)]; }

  /// One ring, in and out by the first net; correct as it stands.
  ChannelSet ring(std::vector<int> order = {0, 2, 3, 1}) const {
    ChannelSet set;
    Channel channel;
    for (const int i : order) channel.gpus.push_back(gpu(i));
    channel.netIn = channel.netOut = system.inter ? net(0) : kNoNode;
    set.channels = {channel};
    set.intraGBps = set.interGBps = 20;
    set.typeIntra = PathType::Nvl;
    set.typeInter = PathType::Pix;
    return set;
  }
  std::string firstViolation(const ChannelSet& set, SearchRequest request = {}) const {
    request.pattern = set.pattern;
    const Feasibility found = checkChannels(system, paths, request, set);
    return found.ok() ? "" : found.violations[0];
  }

  System system;
  Paths paths;
};

#define EXPECT_NAMES(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(Feasible, AcceptsWhatFits) {
  EXPECT_EQ(firstViolation(ring()), "");
  build(false);
  EXPECT_EQ(firstViolation(ring()), "");
}

TEST_F(Feasible, NamesAGpuThatIsMissingOrTwice) {
  EXPECT_NAMES(firstViolation(ring({0, 2, 3})), "names 3 GPUs; 4 are wanted");
  EXPECT_NAMES(firstViolation(ring({0, 2, 0, 1})), "names GPU0 twice");
}

TEST_F(Feasible, NamesALinkThatCarriesTooMuch) {
  ChannelSet set = ring();
  for (int i = 0; i < 4; ++i) set.channels.push_back(set.channels[0]);
  set.interGBps = 1;
  set.intraGBps = 21;
  EXPECT_NAMES(firstViolation(set), "carries 105 GB/s; it has 100");
  set.intraGBps = 20;
  EXPECT_EQ(firstViolation(set), "");
}

TEST_F(Feasible, SumsTheNetsOfARail) {
  system.at(net(1)).net.guid = system.at(net(0)).net.guid;  // two ports that are one
  ChannelSet set = ring();
  Channel other = ring({2, 0, 1, 3}).channels[0];
  other.netIn = other.netOut = net(1);
  set.channels.push_back(other);
  EXPECT_NAMES(firstViolation(set), "brings in 40 GB/s; it has 25");
}

TEST_F(Feasible, NamesAPathThatIsFartherThanStated) {
  ChannelSet set = ring();
  set.channels[0].netOut = set.channels[0].netIn = net(1);
  EXPECT_NAMES(firstViolation(set), "at most PIX is stated");
}

TEST_F(Feasible, HoldsChannelsToTheirRails) {
  ChannelSet set = ring({0, 1, 3, 2});
  set.channels[0].netOut = net(1);
  EXPECT_NAMES(firstViolation(set), "in by NET0 and out by NET1 is not allowed");
  set.crossNic = CrossNic::Always;
  EXPECT_EQ(firstViolation(set), "");
  set.crossNic = CrossNic::InPairs;
  set.channels.push_back(set.channels[0]);
  set.interGBps = 12;
  EXPECT_NAMES(firstViolation(set), "channel 1: in by NET0 and out by NET1");
  std::reverse(set.channels[1].gpus.begin(), set.channels[1].gpus.end());
  std::swap(set.channels[1].netIn, set.channels[1].netOut);
  EXPECT_EQ(firstViolation(set), "");
}

TEST_F(Feasible, HoldsCountsSpeedsAndSamenessToWhatIsStated) {
  SearchRequest few;
  few.maxChannels = 1;
  ChannelSet set = ring();
  set.interGBps = 10;
  set.channels.push_back(set.channels[0]);
  EXPECT_NAMES(firstViolation(set, few), "2 channels; at most 1");
  set.sameChannels = true;
  EXPECT_EQ(firstViolation(set), "");
  set.channels[1].gpus = ring({0, 3, 2, 1}).channels[0].gpus;
  EXPECT_NAMES(firstViolation(set), "sameChannels");
  set = ring();
  set.interGBps = 0;
  EXPECT_NAMES(firstViolation(set), "must be above 0");
}

TEST_F(Feasible, WantsNetsThatReduceForCollNet) {
  ChannelSet set = ring({0, 1, 2, 3});
  set.pattern = Pattern::Tree;
  SearchRequest request;
  request.collnet = true;
  EXPECT_NAMES(firstViolation(set, request), "NET0 does not reduce");
  system.at(net(0)).net.coll = true;
  EXPECT_EQ(firstViolation(set, request), "");
}

TEST_F(Feasible, ChargesHalfToEachOfTheFirstTwoOfABalancedTree) {
  ChannelSet set = ring({0, 1, 2, 3});
  set.pattern = Pattern::BalancedTree;
  set.interGBps = 24;
  const Feasibility found = checkChannels(system, paths, {.pattern = set.pattern}, set);
  ASSERT_TRUE(found.ok()) << found.violations[0];
  for (int i = 0; i < 2; ++i) {
    const LinkId out = paths.links(gpu(i), net(0))[0];
    EXPECT_FLOAT_EQ(found.loadGBps[static_cast<size_t>(out.value)], 12) << "GPU" << i;
  }
}

TEST_F(Feasible, ChargesReadRequestsOfOldGpus) {
  build(true, 70);
  ChannelSet set = ring();
  const Feasibility found = checkChannels(system, paths, {}, set);
  ASSERT_TRUE(found.ok()) << found.violations[0];
  const LinkId in = paths.links(net(0), gpu(0)).back();
  EXPECT_FLOAT_EQ(found.loadGBps[static_cast<size_t>(in.value)], 20);
  EXPECT_FLOAT_EQ(found.loadGBps[static_cast<size_t>(system.at(in).reverse.value)], 2.5);
}

TEST_F(Feasible, ReportsTheLoadOfBothWaysBesideIt) {
  build(false);
  ChannelSet set = ring();
  set.intraGBps = set.interGBps = 60;
  const Feasibility found = checkChannels(system, paths, {}, set);
  EXPECT_TRUE(found.ok());
  EXPECT_FLOAT_EQ(found.twoWayLoad, 1.2F);  // what a GPU sends on and what flows back, on one link of 100
  EXPECT_NE(found.twoWayLink, kNoLink);
}

TEST_F(Feasible, NeedsAnNvSwitchAndOneHeadEachForNvls) {
  ChannelSet set;
  set.pattern = Pattern::Nvls;
  set.intraGBps = set.interGBps = 20;
  set.typeIntra = PathType::Nvl;
  build(false);
  for (int i = 0; i < 4; ++i) set.channels.push_back({{gpu(i)}, kNoNode, kNoNode});
  EXPECT_EQ(firstViolation(set), "");
  set.channels[1].gpus[0] = gpu(0);
  EXPECT_NAMES(firstViolation(set), "the same head GPU0");
  set.channels[1].gpus[0] = gpu(1);
  set.intraGBps = 21;  // five times, as four heads and one's own share come to
  EXPECT_NAMES(firstViolation(set), "carries 105 GB/s");
}

}  // namespace
}  // namespace tutti::topo::feasible_test
