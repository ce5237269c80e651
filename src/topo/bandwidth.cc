#include "topo/bandwidth.h"

#include <charconv>
#include <cmath>

namespace tutti::topo {
namespace {

struct PciRate {
  double gigatransfers;
  int hundredMbps;  ///< Of one lane, after its coding, rounded as the reference does.
};
constexpr PciRate kPciRates[] = {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
constexpr int kUnknownRate = 60;
constexpr int kUsualWidth = 16;

}  // namespace

float nvlinkGBps(int sm) {
  if (sm >= 100) return 40.1F;
  if (sm >= 90) return 20.6F;
  if (sm == 86) return 12.0F;
  if (sm >= 70 || sm < 60) return 20.0F;
  return 18.0F;
}

float xgmiGBps(std::string_view gcn) {
  if (gcn == "910" || gcn.starts_with("gfx90a")) return 36.0F;
  if (gcn.starts_with("94") || gcn.starts_with("gfx94")) return 48.0F;
  return 24.0F;
}

float betweenCpusGBps(const CpuInfo& cpu) {
  switch (cpu.arch) {
    case CpuArch::Power: return 32.0F;
    case CpuArch::Arm: return 6.0F;
    case CpuArch::X86: break;
    default: return kLocalGBps;
  }
  switch (cpu.vendor) {
    case CpuVendor::Intel:
      if (cpu.model == CpuModel::EmeraldRapids) return 40.0F;
      if (cpu.model == CpuModel::SapphireRapids) return 22.0F;
      return cpu.model == CpuModel::Skylake ? 10.0F : 6.0F;
    case CpuVendor::Amd: return 16.0F;
    case CpuVendor::Zhaoxin: return cpu.model == CpuModel::Yongfeng ? 9.0F : 6.0F;
    default: return kLocalGBps;
  }
}

std::optional<float> pciGBps(std::string_view speed, int width) {
  int rate = kUnknownRate;
  if (!speed.empty() && !speed.starts_with("Unknown")) {
    double gigatransfers = 0;
    const char* const last = speed.data() + speed.size();
    const auto [end, problem] = std::from_chars(speed.data(), last, gigatransfers);
    if (problem != std::errc() || !std::string_view(end, static_cast<size_t>(last - end)).starts_with(" GT/s")) return std::nullopt;
    if (!(gigatransfers > 0) || !std::isfinite(gigatransfers)) return std::nullopt;
    for (const PciRate& known : kPciRates) {
      if (known.gigatransfers == gigatransfers) rate = known.hundredMbps;
    }
  }
  return static_cast<float>((width == 0 ? kUsualWidth : width) * rate / 80.0);
}

CpuModel cpuModel(CpuVendor vendor, int family, int model) {
  if (vendor == CpuVendor::Intel) {
    if (family != 6) return CpuModel::Broadwell;
    if (model >= 0xCF) return CpuModel::EmeraldRapids;
    if (model >= 0x8F) return CpuModel::SapphireRapids;
    return model >= 0x55 ? CpuModel::Skylake : CpuModel::Broadwell;
  }
  if (vendor == CpuVendor::Zhaoxin && family == 7 && model == 0x5B) return CpuModel::Yongfeng;
  return CpuModel::Undefined;
}

}  // namespace tutti::topo
