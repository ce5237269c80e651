#include "bootstrap/roster.h"

#include <algorithm>

#include "core/format.h"

namespace tutti::bootstrap {

std::string describeRanks(const std::vector<int32_t>& ranks) {
  constexpr size_t kMost = 16;  // names; the rest is counted
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i) text += format("{} {}", i > 0 ? "," : "", ranks[i]);
  if (ranks.size() > kMost) text += format(" and {} more", ranks.size() - kMost);
  return text;
}

std::string describeProcess(const Membership& membership, int32_t process) {
  const ProcessInfo& info = membership.process(process);
  return format("{} (process {} on {})", describeRanks(info.ranks), info.pid, membership.host(info.host).name);
}

std::string describeProcesses(const Membership& membership, const std::vector<int32_t>& processes) {
  constexpr size_t kMost = 8;  // names; the rest is counted
  std::string text;
  for (size_t i = 0; i < std::min(processes.size(), kMost); ++i) text += (i > 0 ? ", " : "") + describeProcess(membership, processes[i]);
  if (processes.size() > kMost) text += format(" and {} more processes", processes.size() - kMost);
  return text;
}

}  // namespace tutti::bootstrap
