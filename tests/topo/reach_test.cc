#include "topo/reach.h"

#include <gtest/gtest.h>

#include "topo/data.h"
#include "topo/view.h"

namespace tutti::topo::reach_test {
namespace {

View viewOf(const std::string& name, int nodes, const PathSettings& settings = {}) {
  const auto machine = readXml(test::ownFile(name));
  EXPECT_TRUE(machine.has_value());
  auto request = *identicalNodes(*machine, nodes, false, {});
  request.settings = settings;
  auto view = makeView(*machine, request);
  EXPECT_TRUE(view.has_value()) << view.error().text();
  return *std::move(view);
}

TEST(Reach, GpusThatShareNetsTakeTurnsByThePolicy) {
  const View view = viewOf("nvidia-gb200-nvl72-tray", 2);
  const NodeId gpu = view.system.gpuOfRank(0);
  const auto nets = localNodes(view.system, view.paths, gpu, NodeKind::Net);
  ASSERT_EQ(nets.size(), 2u) << "those at its own CPU, which it shares with another GPU";
  const auto devOf = [&](const PathSettings& settings, int channel) {
    return view.system.at(localNet(view.system, view.paths, settings, gpu, channel)).net.dev;
  };
  std::vector<int> automatic;
  std::vector<int> all;
  for (int channel = 0; channel < 4; ++channel) {
    automatic.push_back(devOf({}, channel));
    all.push_back(devOf({.netsPerGpu = -1}, channel));
  }
  EXPECT_EQ(automatic, (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(all, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(devOf({.netsPerGpu = 1}, 3), 0);
}

TEST(Reach, GdrOverC2cKeepsToTheCpuUnlessTheWayIsPci) {
  const View view = viewOf("nvidia-gh200-1gpu", 2);
  const NodeId gpu = view.system.gpuOfRank(0);
  const NodeId net = view.system.all(NodeKind::Net)[0];
  EXPECT_EQ(view.paths.get(gpu, net).type, PathType::P2c);
  EXPECT_EQ(gdrMode(view.system, view.paths, {}, gpu, net, false), GdrMode::Default);
  EXPECT_EQ(gdrMode(view.system, view.paths, {.gdrC2c = false}, gpu, net, false), GdrMode::Off);
  EXPECT_EQ(gdrMode(view.system, view.paths, {.netGdrLevel = PathType::Sys, .gdrC2c = false}, gpu, net, false), GdrMode::Pci);
}

TEST(Reach, BeforeAmpereSendingDirectlyNeedsNvLinkPeers) {
  const View dgx = viewOf("nvidia-dgx1v-v100x8", 2);
  const View pcie = viewOf("pcie-v100x4-2level", 2);
  for (const View* view : {&dgx, &pcie}) {
    const NodeId gpu = view->system.gpuOfRank(0);
    const NodeId net = localNet(view->system, view->paths, {}, gpu, 0);
    ASSERT_EQ(gdrMode(view->system, view->paths, {}, gpu, net, false), GdrMode::Default);
    EXPECT_EQ(gdrMode(view->system, view->paths, {}, gpu, net, true), view == &dgx ? GdrMode::Default : GdrMode::Off);
    EXPECT_EQ(gdrMode(view->system, view->paths, {.netGdrRead = true}, gpu, net, true), GdrMode::Default);
    EXPECT_EQ(gdrMode(view->system, view->paths, {.netGdrRead = false}, gpu, net, true), GdrMode::Off);
  }
}

TEST(Reach, NvLinkDomains) {
  const View pairs = viewOf("pcie-a100nvlx4-pairs", 1);
  EXPECT_TRUE(isSplitNvLink(pairs.system, pairs.paths));
  EXPECT_FALSE(isAllNvLink(pairs.system, pairs.paths));
  const View whole = viewOf("nvidia-dgxh100-h100x8", 1);
  EXPECT_FALSE(isSplitNvLink(whole.system, whole.paths));
  EXPECT_TRUE(isAllNvLink(whole.system, whole.paths));
}

TEST(Reach, OnlyAmpereReads) {
  const View ampere = viewOf("nvidia-dgxa100-a100x8", 1);
  const View hopper = viewOf("nvidia-dgxh100-h100x8", 1);
  for (const View* view : {&ampere, &hopper}) {
    const auto access = peerAccess(view->system, view->paths, {}, view->system.gpuOfRank(0), view->system.gpuOfRank(1));
    EXPECT_TRUE(access->direct);
    EXPECT_EQ(access->read, view == &ampere);
  }
}

TEST(Reach, NothingIsLocalWhereThereIsNoNet) {
  const View view = viewOf("pcie-l4x2-amd1s", 1);
  EXPECT_EQ(localNet(view.system, view.paths, {}, view.system.gpuOfRank(0), 0), kNoNode);
  EXPECT_EQ(localCpu(view.system, view.paths, view.system.gpuOfRank(1)), view.system.all(NodeKind::Cpu)[0]);
}

}  // namespace
}  // namespace tutti::topo::reach_test
