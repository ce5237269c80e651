#include "topo/detect/detect.h"

#include <gtest/gtest.h>

#include "topo/detect/tree.h"
#include "topo/view.h"

namespace tutti::topo::detect::detect_test {
namespace {

using Machine = test::Tree;

TEST_F(Machine, BridgesAreFoundBetweenDeviceAndCpu) {
  build();
  const Sysfs sysfs(root_);
  EXPECT_EQ(sysfs.above("0000:14:00.0")->busId, "0000:11:00.0") << "the upstream port stands for the switch";
  EXPECT_EQ(sysfs.above("0000:11:00.0")->busId, "") << "a root port is the CPU's";
  EXPECT_EQ(sysfs.above("0000:11:00.0")->numa, 1);
  EXPECT_EQ(sysfs.above("0000:01:00.0")->numa, 0);
  EXPECT_FALSE(sysfs.above("0000:99:00.0").has_value());
  EXPECT_EQ(sysfs.linkSpeed("0000:14:00.0"), "16.0 GT/s PCIe") << "the port is the slower one";
  EXPECT_EQ(sysfs.linkWidth("0000:14:00.0"), 8) << "the device is the narrower one";
  EXPECT_EQ(sysfs.busIdOfPath("/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:13:00.0"), "0000:13:00.0");
  EXPECT_EQ(sysfs.busIdOfPath("/sys/devices/system/node"), std::nullopt);
  EXPECT_EQ(sysfs.cpu().family, 175) << "as the reference counts";
}

TEST_F(Machine, WhatIsDetectedIsAMachineWithPaths) {
  build();
  const Sysfs sysfs(root_);
  Document machine = emptyMachine();
  ASSERT_TRUE(addGpu(machine, sysfs, gpu("0000:14:00.0", 1)).ok());
  ASSERT_TRUE(addGpu(machine, sysfs, gpu("0000:01:00.0", 0)).ok());
  ASSERT_TRUE(addNet(machine, sysfs, net("/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:13:00.0")).ok());
  const auto view = makeView(machine, *identicalNodes(machine, 2, false, {}));
  ASSERT_TRUE(view.has_value()) << view.error().text();
  const System& system = view->system;
  EXPECT_EQ(system.count(NodeKind::Cpu), 2);
  EXPECT_EQ(system.count(NodeKind::Pci), 1);
  const NodeId gpu1 = system.gpuOfRank(1);
  const NodeId net0 = system.all(NodeKind::Net).at(0);
  EXPECT_EQ(view->paths.get(gpu1, net0).type, PathType::Pix);
  EXPECT_EQ(view->paths.get(gpu1, net0).GBps, 12.0F) << "8 lanes of 16 GT/s";
  EXPECT_EQ(system.at(system.all(NodeKind::Cpu)[0]).cpu.vendor, CpuVendor::Amd);
  EXPECT_TRUE(view->notes.empty()) << view->notes.front();
  // In order of address below the switch, though the GPU came first.
  const Element& bridge = machine.root.children[0].children[0];
  EXPECT_EQ(*bridge.children[0].find("busid"), "0000:13:00.0");
  EXPECT_EQ(*bridge.children[1].find("busid"), "0000:14:00.0");
}

TEST_F(Machine, WhatAFileSaysStays) {
  build();
  const Sysfs sysfs(root_);
  const auto parsed =
      parseXml("vendor.xml", R"(<system version="1"><cpu numaid="1" affinity="f" arch="x86_64" vendor="GenuineIntel" familyid="6"
    modelid="143"><pci busid="ffff:ff:01.0" class="0x060400"><pci busid="0000:14:00.0" class="0x030200" link_speed="8.0 GT/s PCIe"
    link_width="16"/><pci busid="0000:13:00.0" class="0x020700"><nic><net name="eth0" dev="7" speed="100000"/></nic></pci></pci></cpu>
    </system>)");
  ASSERT_TRUE(parsed.has_value());
  Document machine = *parsed;
  ASSERT_TRUE(addGpu(machine, sysfs, gpu("0000:14:00.0", 0)).ok());
  ASSERT_TRUE(addNet(machine, sysfs, net("")).ok());
  const auto view = makeView(machine, *identicalNodes(machine, 2, false, {}));
  ASSERT_TRUE(view.has_value()) << view.error().text();
  const System& system = view->system;
  EXPECT_EQ(system.at(system.all(NodeKind::Cpu).at(0)).cpu.vendor, CpuVendor::Intel);
  EXPECT_EQ(system.at(system.gpuOfRank(0)).gpu.sm, 90);
  EXPECT_EQ(view->paths.get(system.gpuOfRank(0), system.all(NodeKind::Net).at(0)).type, PathType::Pix);
  EXPECT_EQ(system.at(system.all(NodeKind::Net)[0]).net.GBps, 12.5F);
  EXPECT_EQ(system.at(system.all(NodeKind::Net)[0]).net.dev, 0) << "but the plugin counts its nets itself";
  EXPECT_EQ(system.at(system.gpuOfRank(0)).links.size(), 1u);
}

TEST_F(Machine, DevicesThatTheKernelHidesHangAtAnUnknownCpu) {
  const Sysfs sysfs(root_);
  Document machine = emptyMachine();
  EXPECT_NE(addNet(machine, sysfs, net("")).text().find("there is no CPU in the topology to put it at"), std::string::npos);
  GpuFacts hidden = gpu("0000:06:00.0", 0);
  hidden.nvlinks = {{.target = "fffffff:ff:ff.0", .count = 18, .pciClass = ""}};
  ASSERT_TRUE(addGpu(machine, sysfs, hidden).ok());
  ASSERT_TRUE(addNet(machine, sysfs, net("/sys/devices/virtual/net/eth0")).ok());
  const auto view = makeView(machine, *identicalNodes(machine, 2, false, {}));
  ASSERT_TRUE(view.has_value()) << view.error().text();
  EXPECT_EQ(view->system.count(NodeKind::NvSwitch), 1);
  EXPECT_EQ(*machine.root.children.at(0).find("numaid"), "-1");
  EXPECT_EQ(view->system.count(NodeKind::Net), 1);
  EXPECT_FALSE(addGpu(machine, sysfs, gpu("GPU-7", 1)).ok());
}

TEST(ThisMachine, IsReadWithoutHarm) {
  const Sysfs sysfs;
  const CpuFacts cpu = sysfs.cpu();
#if defined(__x86_64__)
  EXPECT_EQ(cpu.arch, "x86_64");
  EXPECT_FALSE(cpu.vendor.empty());
#endif
  EXPECT_FALSE(sysfs.read("0000:00:00.0/../../../../etc/passwd", "").has_value());
}

}  // namespace
}  // namespace tutti::topo::detect::detect_test
