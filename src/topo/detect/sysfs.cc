#include "topo/detect/sysfs.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "core/format.h"
#include "topo/host_devices.h"
#include "topo/xml.h"

namespace tutti::topo::detect {
namespace {

std::vector<std::string_view> partsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const size_t cut = std::min(path.find('/'), path.size());
    if (cut > 0) parts.push_back(path.substr(0, cut));
    path.remove_prefix(std::min(cut + 1, path.size()));
  }
  return parts;
}

/// "16.0 GT/s PCIe" as 16; as good as endless where nothing is said.
double speedOf(const std::optional<std::string>& text) {
  double speed = 0;
  if (text) (void)std::from_chars(text->data(), text->data() + text->size(), speed);
  return speed > 0 ? speed : 1e9;
}

int numberOf(const std::optional<std::string>& text) { return text ? static_cast<int>(std::strtol(text->c_str(), nullptr, 0)) : 0; }

/// The value of the first line "name : value".
std::string fieldOf(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !line.starts_with(name)) continue;
    const std::string_view gap = line.substr(name.size(), colon - name.size());
    if (gap.find_first_not_of(" \t") != std::string_view::npos) continue;
    return std::string(colon + 2 <= line.size() ? line.substr(colon + 2) : std::string_view());
  }
  return {};
}

}  // namespace

bool isBusId(std::string_view text) {
  constexpr std::string_view kShape = "hhhh:hh:hh.h";
  if (text.size() != kShape.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (kShape[i] == 'h' ? !isHexDigit(text[i]) : text[i] != kShape[i]) return false;
  }
  return true;
}

std::optional<std::string> Sysfs::devicePath(std::string_view busId) const {
  if (!isBusId(busId)) return std::nullopt;
  std::string name(busId);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
  return files_->resolve(format("/sys/bus/pci/devices/{}", name));
}

std::optional<std::string> Sysfs::read(std::string_view busId, std::string_view file) const {
  const auto path = devicePath(busId);
  return path ? files_->text(format("{}/{}", *path, file)) : std::nullopt;
}

std::optional<std::string> Sysfs::readAbove(std::string_view busId, std::string_view file) const {
  const auto path = devicePath(busId);
  return path ? files_->text(format("{}/{}", std::string_view(*path).substr(0, path->rfind('/')), file)) : std::nullopt;
}

std::string Sysfs::linkSpeed(std::string_view busId) const {
  const auto own = read(busId, "max_link_speed");
  const auto port = readAbove(busId, "max_link_speed");
  return (speedOf(port) < speedOf(own) ? port : own).value_or("");
}

int Sysfs::linkWidth(std::string_view busId) const {
  const auto widthOf = [](const std::optional<std::string>& text) {
    const int width = numberOf(text);
    return width == 255 ? 0 : width;  // what the kernel says of a width that it does not know
  };
  return std::min(widthOf(read(busId, "max_link_width")), widthOf(readAbove(busId, "max_link_width")));
}

std::optional<Above> Sysfs::above(std::string_view busId) const {
  const auto path = devicePath(busId);
  if (!path) return std::nullopt;
  const std::vector<std::string_view> parts = partsOf(*path);
  // A switch is two devices, its downstream port and its upstream port: the latter stands for it. A root port is the CPU's.
  const size_t n = parts.size();
  if (n >= 3 && isBusId(parts[n - 2]) && isBusId(parts[n - 3])) return Above{.busId = std::string(parts[n - 3])};
  const auto numa = files_->text(*path + "/numa_node");
  return Above{.busId = "", .numa = numa ? numberOf(numa) : -1};
}

std::vector<int> Sysfs::numaNodes() const {
  const auto online = CpuSet::fromList(files_->text("/sys/devices/system/node/online").value_or(""));
  return online ? online->cpus() : std::vector<int>();
}

std::optional<std::string> Sysfs::affinity(int numa) const {
  if (auto mask = files_->text(format("/sys/devices/system/node/node{}/cpumap", numa)); mask || numa != 0) return mask;
  const auto online = CpuSet::fromList(files_->text("/sys/devices/system/cpu/online").value_or(""));
  return online && !online->empty() ? std::optional(online->mask()) : std::nullopt;
}

std::optional<std::string> Sysfs::distances(int numa) const {
  const auto text = files_->text(format("/sys/devices/system/node/node{}/distance", numa));
  if (!text) return std::nullopt;
  std::string pairs;
  std::string_view rest = *text;
  for (const int to : numaNodes()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    const std::string_view number = rest.substr(0, rest.find_first_of(" \t"));
    if (number.empty()) return std::nullopt;  // fewer than there are nodes
    rest.remove_prefix(number.size());
    pairs += format("{}{}:{}", pairs.empty() ? "" : ",", to, number);
  }
  return parseDistances(pairs) && !pairs.empty() ? std::optional(pairs) : std::nullopt;
}

std::optional<int64_t> Sysfs::memoryMiB(int numa) const {
  const auto text = files_->text(format("/sys/devices/system/node/node{}/meminfo", numa));
  const std::string value = text ? fieldOf(*text, "MemTotal") : std::string();
  const long long kiB = std::strtoll(value.c_str(), nullptr, 10);
  return kiB > 0 ? std::optional<int64_t>(kiB / 1024) : std::nullopt;
}

CpuFacts Sysfs::cpu() const {
  const std::string info = files_->text("/proc/cpuinfo").value_or("");
  CpuFacts facts;
  facts.vendor = fieldOf(info, "vendor_id");
  if (!facts.vendor.empty()) {
    facts.arch = "x86_64";
    const int family = numberOf(fieldOf(info, "cpu family"));
    constexpr int kExtended = 15;  // from here on the kernel has added the extended family, unshifted
    facts.family = family >= kExtended ? kExtended + ((family - kExtended) << 4) : family;
    facts.model = numberOf(fieldOf(info, "model"));
  } else if (!fieldOf(info, "CPU implementer").empty()) {
    facts.arch = "arm64";
  } else if (fieldOf(info, "cpu").starts_with("POWER")) {
    facts.arch = "ppc64";
  }
  return facts;
}

std::optional<std::string> Sysfs::busIdOfPath(const std::string& devicePath) const {
  const auto resolved = files_->resolve(devicePath);
  if (!resolved) return std::nullopt;
  const std::vector<std::string_view> parts = partsOf(*resolved);
  if (parts.empty() || !isBusId(parts.back())) return std::nullopt;
  return std::string(parts.back());
}

}  // namespace tutti::topo::detect
