#include "topo/bandwidth.h"

#include <gtest/gtest.h>

namespace tutti::topo::bandwidth_test {
namespace {

TEST(Bandwidth, OfPciLinks) {
  EXPECT_EQ(pciGBps("32.0 GT/s PCIe", 16), 48.0F);
  EXPECT_EQ(pciGBps("16 GT/s", 16), 24.0F);
  EXPECT_EQ(pciGBps("32 GT/s PCIe/s", 16), 48.0F);
  EXPECT_EQ(pciGBps("64.0 GT/s PCIe", 16), 96.0F);
  EXPECT_EQ(pciGBps("5.0 GT/s PCIe", 4), 1.5F);
  EXPECT_EQ(pciGBps("2.5 GT/s", 1), 0.1875F);
  EXPECT_EQ(pciGBps("", 16), 12.0F) << "unknown counts as 8 GT/s";
  EXPECT_EQ(pciGBps("Unknown", 8), 6.0F);
  EXPECT_EQ(pciGBps("8.0 GT/s PCIe", 0), 12.0F) << "unknown width counts as 16";
  for (const char* const nonsense : {"fast", "nan GT/s", "inf GT/s", "-5 GT/s", "0 GT/s"})
    EXPECT_EQ(pciGBps(nonsense, 16), std::nullopt) << nonsense;
  EXPECT_EQ(pciGBps("32 GB/s", 16), std::nullopt);
}

TEST(Bandwidth, OfNvLinks) {
  EXPECT_EQ(nvlinkGBps(60), 18.0F);
  EXPECT_EQ(nvlinkGBps(70), 20.0F);
  EXPECT_EQ(nvlinkGBps(80), 20.0F);
  EXPECT_EQ(nvlinkGBps(86), 12.0F);
  EXPECT_EQ(nvlinkGBps(90), 20.6F);
  EXPECT_EQ(nvlinkGBps(103), 40.1F);
  EXPECT_EQ(xgmiGBps("908"), 24.0F);
  EXPECT_EQ(xgmiGBps("910"), 36.0F);
  EXPECT_EQ(xgmiGBps("gfx942"), 48.0F);
}

TEST(Bandwidth, BetweenCpus) {
  const auto of = [](CpuArch arch, CpuVendor vendor, int family, int model) {
    return betweenCpusGBps({.arch = arch, .vendor = vendor, .model = cpuModel(vendor, family, model), .affinity = ""});
  };
  EXPECT_EQ(of(CpuArch::X86, CpuVendor::Intel, 6, 0x4F), 6.0F);
  EXPECT_EQ(of(CpuArch::X86, CpuVendor::Intel, 6, 0x55), 10.0F);
  EXPECT_EQ(of(CpuArch::X86, CpuVendor::Intel, 6, 0x8F), 22.0F);
  EXPECT_EQ(of(CpuArch::X86, CpuVendor::Intel, 6, 0xCF), 40.0F);
  EXPECT_EQ(of(CpuArch::X86, CpuVendor::Intel, 15, 0xCF), 6.0F);
  EXPECT_EQ(of(CpuArch::X86, CpuVendor::Amd, 175, 144), 16.0F);
  EXPECT_EQ(of(CpuArch::X86, CpuVendor::Zhaoxin, 7, 0x5B), 9.0F);
  EXPECT_EQ(of(CpuArch::X86, CpuVendor::Zhaoxin, 7, 0x3B), 6.0F);
  EXPECT_EQ(of(CpuArch::Arm, CpuVendor::Undefined, 0, 0), 6.0F);
  EXPECT_EQ(of(CpuArch::Power, CpuVendor::Undefined, 0, 0), 32.0F);
  EXPECT_EQ(of(CpuArch::Undefined, CpuVendor::Undefined, 0, 0), kLocalGBps);
}

}  // namespace
}  // namespace tutti::topo::bandwidth_test
