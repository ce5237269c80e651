#include "topo/detect/driver.h"

#include <algorithm>

namespace tutti::topo::detect {
namespace {

using driver::nvml::RemoteType;

constexpr const char* kHiddenSwitch = "fffffff:ff:ff.0";  // as the reference writes it

std::string classOf(RemoteType type) {
  switch (type) {
    case RemoteType::Gpu: return "0x030000";
    case RemoteType::IbmNpu: return "0x068001";
    default: return "";
  }
}

Status addHidden(driver::nvml::Nvml& nvml, std::vector<GpuFacts>& gpus) {
  const auto all = nvml.all();
  if (!all) return all.error();
  const bool gdr = !gpus.empty() && gpus.front().gdr;
  const size_t visible = gpus.size();
  for (const driver::nvml::Device& device : *all) {
    const auto end = gpus.begin() + static_cast<std::ptrdiff_t>(visible);
    if (std::any_of(gpus.begin(), end, [&](const GpuFacts& known) { return known.busId == device.busId; })) continue;
    const auto sm = nvml.capability(device);
    if (!sm) return sm.error();
    auto facts = askNvml(nvml, device.busId, *sm, gdr);
    if (!facts) return std::move(facts).error();
    gpus.push_back(*std::move(facts));
  }
  return {};
}

}  // namespace

Result<GpuFacts> askNvml(driver::nvml::Nvml& nvml, const std::string& busId, int sm, bool gdr) {
  const auto device = nvml.find(busId);
  if (!device) return tl::unexpected(device.error());
  const auto index = nvml.index(*device);
  if (!index) return tl::unexpected(index.error());
  const auto links = nvml.links(*device);
  if (!links) return tl::unexpected(links.error());

  GpuFacts facts{.busId = driver::nvml::canonicalBusId(busId.c_str()),
                 .dev = static_cast<int>(*index),
                 .sm = sm,
                 .gdr = gdr,
                 .nvlinks = {},
                 .c2cLinks = 0,
                 .c2cMBps = 0};
  const auto toCpu = nvml.c2cLinks(*device);
  if (!toCpu) return tl::unexpected(toCpu.error());
  facts.c2cLinks = toCpu->count;
  facts.c2cMBps = toCpu->megabytesPerSecond;
  for (const driver::nvml::Link& link : *links) {
    const std::string target = link.remoteBusId.empty() ? kHiddenSwitch : link.remoteBusId;
    const auto known =
        std::find_if(facts.nvlinks.begin(), facts.nvlinks.end(), [&](const GpuFacts::Link& other) { return other.target == target; });
    if (known == facts.nvlinks.end()) {
      facts.nvlinks.push_back({.target = target, .count = 1, .pciClass = classOf(link.remote)});
    } else {
      ++known->count;
    }
  }
  return facts;
}

Result<std::vector<GpuFacts>> askDrivers(driver::cuda::Driver& cuda, driver::nvml::Nvml* nvml, bool hiddenToo) {
  const auto count = cuda.countDevices();
  if (!count) return tl::unexpected(count.error());
  std::vector<GpuFacts> gpus;
  for (int32_t ordinal = 0; ordinal < *count; ++ordinal) {
    const auto info = cuda.describe(ordinal);
    if (!info) return tl::unexpected(info.error());
    const int sm = info->major * 10 + info->minor;
    if (nvml == nullptr) {
      gpus.push_back(
          {.busId = info->pciBusId, .dev = ordinal, .sm = sm, .gdr = info->rdma, .nvlinks = {}, .c2cLinks = 0, .c2cMBps = 0});
      continue;
    }
    auto facts = askNvml(*nvml, info->pciBusId, sm, info->rdma);
    if (!facts) return tl::unexpected(std::move(facts).error());
    gpus.push_back(*std::move(facts));
  }
  if (nvml == nullptr || !hiddenToo) return gpus;
  if (Status status = addHidden(*nvml, gpus); !status.ok()) return tl::unexpected(std::move(status));
  std::sort(gpus.begin(), gpus.end(), [](const GpuFacts& a, const GpuFacts& b) { return a.dev < b.dev; });
  return gpus;
}

}  // namespace tutti::topo::detect
