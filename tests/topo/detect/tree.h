// A machine's files as the kernel lays them out, written by a test.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/format.h"
#include "topo/detect/detect.h"

namespace tutti::topo::detect::test {

/// A machine's files below a folder: devices in /sys/devices as the kernel nests them, linked from /sys/bus/pci/devices.
class Tree : public testing::Test {
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

}  // namespace tutti::topo::detect::test
