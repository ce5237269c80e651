#include "topo/detect/detect.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "topo/view.h"

namespace tutti::topo::detect {
namespace {

/// A recorded machine: devices in /sys/devices as the kernel nests them, linked from /sys/bus/pci/devices.
class Machine : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "tutti_detect_" + std::string(6, 'X');
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    makeFolders("sys/bus/pci/devices");
  }
  void TearDown() override {
    const std::string command = "rm -rf '" + root_ + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }

  void makeFolders(const std::string& path) const {
    for (size_t cut = 0; cut != std::string::npos;) {
      cut = path.find('/', cut + 1);
      mkdir((root_ + "/" + path.substr(0, cut)).c_str(), 0755);
    }
  }
  void write(const std::string& path, const std::string& text) const {
    makeFolders(path.substr(0, path.rfind('/')));
    std::FILE* file = std::fopen((root_ + "/" + path).c_str(), "w");
    ASSERT_NE(file, nullptr) << path;
    std::fputs(text.c_str(), file);
    std::fclose(file);
  }
  /// `path` below /sys/devices; the last part is the address.
  void device(const std::string& path, const std::string& pciClass, const std::string& speed, int width, int numa) const {
    const std::string folder = "sys/devices/" + path;
    const std::string busId = path.substr(path.rfind('/') + 1);
    write(folder + "/class", pciClass + "\n");
    write(folder + "/vendor", "0x10de\n");
    write(folder + "/max_link_speed", speed + "\n");
    write(folder + "/max_link_width", format("{}\n", width));
    write(folder + "/numa_node", format("{}\n", numa));
    ASSERT_EQ(symlink(format("../../../devices/{}", path).c_str(), format("{}/sys/bus/pci/devices/{}", root_, busId).c_str()), 0);
  }
  /// A GPU and a NIC behind a switch of CPU 1, a GPU at a root port of CPU 0.
  void build() const {
    write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: EPYC\n");
    write("sys/devices/system/node/node0/cpumap", "00ff\n");
    write("sys/devices/system/node/node1/cpumap", "ff00\n");
    const std::string up = "pci0000:10/0000:10:01.0";
    device(up, "0x060400", "32.0 GT/s PCIe", 16, 1);
    device(up + "/0000:11:00.0", "0x060400", "32.0 GT/s PCIe", 16, 1);
    for (const char* port : {"/0000:12:01.0", "/0000:12:02.0"}) device(up + "/0000:11:00.0" + port, "0x060400", "16.0 GT/s PCIe", 16, 1);
    device(up + "/0000:11:00.0/0000:12:02.0/0000:14:00.0", "0x030200", "32.0 GT/s PCIe", 8, 1);
    device(up + "/0000:11:00.0/0000:12:01.0/0000:13:00.0", "0x020000", "16.0 GT/s PCIe", 16, 1);
    write("sys/devices/" + up + "/0000:11:00.0/0000:12:01.0/0000:13:00.0/net/eth0/address", "00\n");
    device("pci0000:00/0000:00:01.0", "0x060400", "32.0 GT/s PCIe", 16, 0);
    device("pci0000:00/0000:00:01.0/0000:01:00.0", "0x030200", "32.0 GT/s PCIe", 16, 0);
  }
  static GpuFacts gpu(const std::string& busId, int dev) {
    return {.busId = busId, .dev = dev, .sm = 90, .gdr = true, .nvlinks = {}, .c2cLinks = 0, .c2cMBps = 0};
  }
  static NetFacts net(const std::string& path) {
    return {.name = "eth0",
            .pciPath = path,
            .dev = 0,
            .speedMbps = 200000,
            .port = 1,
            .latencyUs = 0,
            .guid = 0x12,
            .maxConnections = 64,
            .gdr = true};
  }

  std::string root_;
};

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
}  // namespace tutti::topo::detect
