#include "topo/paths.h"

#include <gtest/gtest.h>

#include "topo/reach.h"

namespace tutti::topo::paths_test {
namespace {

/// Machines are put together by hand, a node a line.
struct Bench {
  System system;
  int ranks = 0;

  NodeId cpu(int numa, CpuVendor vendor = CpuVendor::Intel) {
    const NodeId id = system.addNode(NodeKind::Cpu, static_cast<uint64_t>(numa));
    system.at(id).cpu = {.arch = CpuArch::X86, .vendor = vendor, .model = CpuModel::Skylake, .affinity = ""};
    return id;
  }
  NodeId below(NodeId parent, NodeKind kind, float GBps = 12) {
    const NodeId id = system.addNode(kind, 0x1000 * (system.nodes.size() + 1));
    both(parent, id, LinkType::Pci, GBps);
    return id;
  }
  NodeId gpu(NodeId parent, float GBps = 12) {
    const NodeId id = below(parent, NodeKind::Gpu, GBps);
    system.at(id).gpu = {.dev = ranks, .rank = ranks, .sm = 80, .gdr = true, .gcn = ""};
    system.ranks = ++ranks;
    return id;
  }
  NodeId net(NodeId parent, int dev, float GBps = 10) {
    const NodeId nic = below(parent, NodeKind::Nic);
    const NodeId id = system.addNode(NodeKind::Net, static_cast<uint64_t>(dev));
    system.at(id).net.dev = dev;
    system.at(id).net.gdr = true;
    both(nic, id, LinkType::Net, GBps);
    return id;
  }
  void both(NodeId a, NodeId b, LinkType type, float GBps) {
    system.connect(a, b, type, GBps);
    system.connect(b, a, type, GBps);
  }
  Paths compute(const PathSettings& settings = {}) {
    auto paths = computePaths(system, settings);
    EXPECT_TRUE(paths.has_value()) << paths.error().text();
    return paths ? *paths : Paths(system);
  }
  std::string via(const Paths& paths, NodeId from, NodeId to) const {
    std::string text;
    for (const LinkId link : paths.links(from, to)) text += nodeName(system, system.at(link).to) + " ";
    return text;
  }
};

TEST(Paths, TypesByWhatIsPassed) {
  Bench b;
  const NodeId cpu0 = b.cpu(0);
  const NodeId cpu1 = b.cpu(1);
  b.both(cpu0, cpu1, LinkType::Sys, 10);
  const NodeId upper = b.below(cpu0, NodeKind::Pci);
  const NodeId left = b.below(upper, NodeKind::Pci);
  const NodeId right = b.below(upper, NodeKind::Pci);
  const NodeId gpu0 = b.gpu(left);
  const NodeId gpu1 = b.gpu(left);
  const NodeId gpu2 = b.gpu(right);
  const NodeId gpu3 = b.gpu(cpu0);
  const NodeId gpu4 = b.gpu(cpu1);
  const Paths paths = b.compute({.p2pLevel = PathType::Sys});
  EXPECT_EQ(paths.get(gpu0, gpu0).type, PathType::Loc);
  EXPECT_EQ(paths.get(gpu0, gpu0).GBps, kLocalGBps);
  EXPECT_EQ(paths.get(gpu0, gpu1).type, PathType::Pix);
  EXPECT_EQ(paths.get(gpu0, gpu2).type, PathType::Pxb);
  EXPECT_EQ(paths.get(gpu0, gpu3).type, PathType::Phb);
  EXPECT_EQ(paths.get(gpu0, gpu4).type, PathType::Sys);
  EXPECT_EQ(paths.get(gpu0, gpu4).GBps, 10.0F);
  EXPECT_EQ(paths.get(gpu0, gpu2).count, 4);
  EXPECT_EQ(rangeFromGpus(b.system, paths, NodeKind::Gpu).nearest, PathType::Pix);
  EXPECT_EQ(rangeFromGpus(b.system, paths, NodeKind::Gpu).farthest, PathType::Sys);
}

TEST(Paths, OneGpuMayStandBetweenButNotTwo) {
  Bench b;
  const NodeId cpu = b.cpu(0);
  std::vector<NodeId> gpus;
  for (int i = 0; i < 4; ++i) gpus.push_back(b.gpu(cpu));
  for (int i = 0; i < 3; ++i) b.both(gpus[static_cast<size_t>(i)], gpus[static_cast<size_t>(i + 1)], LinkType::Nvl, 40);
  const Paths paths = b.compute();
  EXPECT_EQ(paths.get(gpus[0], gpus[1]).type, PathType::Nvl);
  EXPECT_EQ(paths.get(gpus[0], gpus[2]).type, PathType::Nvb);
  EXPECT_EQ(b.via(paths, gpus[0], gpus[2]), "GPU1 GPU2 ");
  EXPECT_EQ(paths.get(gpus[0], gpus[3]).type, PathType::Phb);
  EXPECT_EQ(peerAccess(b.system, paths, {}, gpus[0], gpus[2])->between, gpus[1]);
  EXPECT_EQ(b.compute({.nvbDisabled = true}).get(gpus[0], gpus[2]).type, PathType::Phb);
}

TEST(Paths, TheShortestCountsAndOfThoseTheWidest) {
  Bench b;
  const NodeId cpu = b.cpu(0);
  const NodeId gpu0 = b.gpu(cpu);
  const NodeId gpu1 = b.gpu(cpu);
  const NodeId narrow = b.system.addNode(NodeKind::NvSwitch, 0);
  const NodeId wide = b.system.addNode(NodeKind::NvSwitch, 1);
  for (const NodeId gpu : {gpu0, gpu1}) {
    b.both(gpu, narrow, LinkType::Nvl, 20);
    b.both(gpu, wide, LinkType::Nvl, 60);
  }
  const Paths paths = b.compute();
  EXPECT_EQ(paths.get(gpu0, gpu1).GBps, 60.0F);
  EXPECT_EQ(b.via(paths, gpu0, gpu1), "NVS0-1 GPU1 ");
}

TEST(Paths, WithoutPeerAccessTrafficPassesTheReceiversCpu) {
  Bench b;
  const NodeId cpu = b.cpu(0);
  const NodeId bridge = b.below(cpu, NodeKind::Pci);
  const NodeId gpu0 = b.gpu(bridge);
  const NodeId gpu1 = b.gpu(bridge);
  EXPECT_EQ(b.compute().get(gpu0, gpu1).type, PathType::Pix);
  for (const PathSettings& settings :
       {PathSettings{.p2pLevel = PathType::Loc}, PathSettings{.p2pDisabled = true}, PathSettings{.driverP2p = false}}) {
    const Paths paths = b.compute(settings);
    EXPECT_EQ(paths.get(gpu0, gpu1).type, PathType::Phb);
    EXPECT_EQ(paths.get(gpu0, gpu1).count, 4);
    EXPECT_NE(b.via(paths, gpu0, gpu1).find("CPU0-0"), std::string::npos);
  }
}

TEST(Paths, ADriverThatForbidsAccessOverNvLinkIsAnError) {
  Bench b;
  const NodeId cpu = b.cpu(0);
  b.both(b.gpu(cpu), b.gpu(cpu), LinkType::Nvl, 40);
  const auto paths = computePaths(b.system, {.driverP2p = false});
  ASSERT_FALSE(paths.has_value());
  EXPECT_EQ(paths.error().code(), Code::UnhandledCudaError);
}

TEST(Paths, TwoGpusOfAnAmdHostReachEachOtherAcrossTheHostBridge) {
  for (const CpuVendor vendor : {CpuVendor::Amd, CpuVendor::Intel}) {
    Bench b;
    const NodeId cpu = b.cpu(0, vendor);
    const NodeId gpu0 = b.gpu(cpu);
    const NodeId gpu1 = b.gpu(cpu);
    const Paths paths = b.compute();
    EXPECT_EQ(peerAccess(b.system, paths, {}, gpu0, gpu1)->direct, vendor == CpuVendor::Amd);
  }
}

TEST(Paths, SendingToADistantNicGoesThroughTheGpuBesideIt) {
  Bench b;
  const NodeId cpu0 = b.cpu(0);
  const NodeId cpu1 = b.cpu(1);
  b.both(cpu0, cpu1, LinkType::Sys, 6);
  const NodeId bridge0 = b.below(cpu0, NodeKind::Pci);
  const NodeId bridge1 = b.below(cpu1, NodeKind::Pci);
  const NodeId gpu0 = b.gpu(bridge0);
  const NodeId gpu1 = b.gpu(bridge1);
  b.both(gpu0, gpu1, LinkType::Nvl, 40);
  const NodeId net0 = b.net(bridge0, 0);
  const NodeId net1 = b.net(bridge1, 1);
  const Paths paths = b.compute();
  EXPECT_EQ(paths.get(gpu0, net0).type, PathType::Pix);
  EXPECT_EQ(paths.get(gpu0, net1).type, PathType::Pxn);
  EXPECT_EQ(paths.get(gpu0, net1).GBps, 10.0F);
  EXPECT_EQ(pxnGpu(b.system, paths, gpu0, net1), gpu1);
  EXPECT_EQ(paths.get(net1, gpu0).type, PathType::Sys) << "receiving stays as it is";
  EXPECT_EQ(gdrMode(b.system, paths, {}, gpu0, net1, true), GdrMode::Default) << "by the GPU in between";
  EXPECT_EQ(b.system.at(net1).net.localGpu, gpu1);
  EXPECT_EQ(b.compute({.pxnDisabled = true}).get(gpu0, net1).type, PathType::Sys);
}

TEST(Paths, WithoutGdrTheNicsTrafficPassesTheCpu) {
  Bench b;
  const NodeId bridge = b.below(b.cpu(0), NodeKind::Pci);
  const NodeId gpu = b.gpu(bridge);
  const NodeId net = b.net(bridge, 0);
  EXPECT_EQ(b.compute().get(gpu, net).type, PathType::Pix);
  EXPECT_EQ(b.compute({.netGdrLevel = PathType::Loc}).get(gpu, net).type, PathType::Phb);
  b.system.at(net).net.gdr = false;
  const Paths paths = b.compute();
  EXPECT_EQ(paths.get(gpu, net).type, PathType::Phb);
  EXPECT_EQ(paths.get(net, gpu).type, PathType::Phb);
  EXPECT_NE(b.via(paths, gpu, net).find("CPU0-0"), std::string::npos);
}

TEST(Paths, GpusThatTheNetworkServesBetterAreTrimmed) {
  Bench b;
  const NodeId cpu0 = b.cpu(0);
  const NodeId cpu1 = b.cpu(1);
  b.both(cpu0, cpu1, LinkType::Sys, 6);
  const NodeId bridge0 = b.below(cpu0, NodeKind::Pci, 24);
  const NodeId bridge1 = b.below(cpu1, NodeKind::Pci, 24);
  b.gpu(bridge0);
  b.gpu(bridge0);
  b.gpu(bridge1);
  b.net(bridge0, 0);
  b.net(bridge1, 1);
  for (const bool isDisabled : {false, true}) {
    System system = b.system;
    const PathSettings settings{.netIntraDisabled = isDisabled};
    const auto first = computePaths(system, settings);
    ASSERT_TRUE(first.has_value());
    ASSERT_TRUE(trim(system, *first, 2, settings).has_value());
    EXPECT_EQ(system.count(NodeKind::Gpu), isDisabled ? 3 : 1);
    EXPECT_EQ(system.inter, !isDisabled);
    if (!isDisabled) {
      EXPECT_EQ(system.at(system.all(NodeKind::Gpu)[0]).gpu.rank, 2);
    }
  }
}

TEST(Paths, BandwidthsAreThoseOfTheBestPathAndOfAllLinks) {
  Bench b;
  const NodeId cpu = b.cpu(0);
  const NodeId gpu0 = b.gpu(cpu);
  const NodeId gpu1 = b.gpu(cpu);
  const NodeId gpu2 = b.gpu(cpu);
  b.both(gpu0, gpu1, LinkType::Nvl, 40);
  b.both(gpu0, gpu2, LinkType::Nvl, 20);
  b.net(cpu, 0);
  const Paths paths = b.compute();
  setBandwidths(b.system, paths);
  EXPECT_EQ(b.system.maxGBps, 40.0F);
  EXPECT_EQ(b.system.totalGBps, 60.0F);
  b.system.inter = true;
  setBandwidths(b.system, paths);
  EXPECT_EQ(b.system.maxGBps, 10.0F);
}

TEST(Paths, RefusesALinkThatOnlyOneSideStatesAndAGpuWithoutCpu) {
  Bench b;
  const NodeId cpu = b.cpu(0);
  const NodeId gpu0 = b.gpu(cpu);
  const NodeId gpu1 = b.gpu(cpu);
  b.system.connect(gpu0, gpu1, LinkType::Nvl, 40);
  EXPECT_EQ(computePaths(b.system, {}).error().text(), "GPU0 states a NVL link to GPU1, which states none back");
  Bench lone;
  lone.system.at(lone.system.addNode(NodeKind::Gpu, 1)).gpu.rank = 0;
  EXPECT_EQ(computePaths(lone.system, {}).error().text(), "GPU0 reaches no CPU");
}

}  // namespace
}  // namespace tutti::topo::paths_test
