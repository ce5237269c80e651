#include "machine/place.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/format.h"
#include "topo/detect/machine.h"

namespace tutti::machine {
namespace {

bool isWithin(const topo::CpuSet& part, const topo::CpuSet& whole) { return (part & whole) == part; }

int32_t numaOf(const Machine& machine, const topo::CpuSet& allowed) {
  for (const topo::Element& cpu : machine.document.root.children) {
    const std::string* const affinity = cpu.find("affinity");
    if (cpu.name != "cpu" || affinity == nullptr) continue;
    const auto cpus = topo::CpuSet::fromMask(*affinity);
    if (!cpus || !isWithin(allowed, *cpus)) continue;
    const auto numa = topo::needInteger(machine.document, cpu, "numaid", -1, INT32_MAX);
    return numa ? static_cast<int32_t>(*numa) : -1;
  }
  return -1;
}

/// What the system says of a CPU's last-level cache.
std::optional<std::string> textOfCache(const topo::detect::Files& files, int cpu, std::string_view what) {
  constexpr int kLastLevel = 3;
  return files.text(format("/sys/devices/system/cpu/cpu{}/cache/index{}/{}", cpu, kLastLevel, what));
}

std::optional<topo::CpuSet> sharedCache(const topo::detect::Files& files, int cpu) {
  const auto list = textOfCache(files, cpu, "shared_cpu_list");
  auto shared = list ? topo::CpuSet::fromList(*list) : std::nullopt;
  return shared && shared->has(cpu) ? shared : std::nullopt;
}

int32_t cacheOf(const topo::detect::Files& files, const topo::CpuSet& allowed) {
  const auto shared = sharedCache(files, allowed.cpus().front());
  return shared && isWithin(allowed, *shared) ? shared->cpus().front() : -1;
}

}  // namespace

Place placeOf(const Machine& machine, const topo::CpuSet& allowed) {
  if (allowed.empty()) return {};
  return {numaOf(machine, allowed), cacheOf(*machine.files, allowed)};
}

uint64_t cacheBytesOf(const topo::detect::Files& files, const topo::CpuSet& cpus) {
  const auto text = cpus.empty() ? std::nullopt : textOfCache(files, cpus.cpus().front(), "size");
  if (!text) return 0;
  uint64_t kibibytes = 0;  // the only unit that there is: "32768K"
  const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), kibibytes);
  const bool isSize = failed == std::errc() && end != text->data() + text->size() && *end == 'K' && kibibytes < UINT64_MAX / 1024;
  return isSize ? kibibytes * 1024 : 0;
}

std::vector<topo::CpuSet> cachesOf(const topo::detect::Files& files, const topo::CpuSet& cpus) {
  std::vector<topo::CpuSet> caches;
  for (const int cpu : cpus.cpus()) {
    if (std::any_of(caches.begin(), caches.end(), [cpu](const topo::CpuSet& known) { return known.has(cpu); })) continue;
    auto shared = sharedCache(files, cpu);
    if (shared) caches.push_back(*std::move(shared));
  }
  return caches;
}

bool bindThread(const topo::CpuSet& cpus) {
  const std::vector<int> all = cpus.cpus();
  if (all.empty()) return false;
  std::vector<cpu_set_t> raw(static_cast<size_t>(all.back()) / CPU_SETSIZE + 1);
  const size_t bytes = raw.size() * sizeof(cpu_set_t);
  for (const int cpu : all) CPU_SET_S(cpu, bytes, raw.data());
  return sched_setaffinity(0, bytes, raw.data()) == 0;
}

ThreadNear::ThreadNear(const topo::CpuSet& cpus) {
  if (cpus.empty()) return;
  auto before = topo::detect::thisProcessMayUse();
  if (before && bindThread(cpus)) before_ = *std::move(before);
}

ThreadNear::~ThreadNear() {
  if (!before_.empty()) (void)bindThread(before_);
}

}  // namespace tutti::machine
