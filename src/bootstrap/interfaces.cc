#include "bootstrap/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/format.h"

namespace tutti::bootstrap {
namespace {

/// The grammar of NCCL_SOCKET_IFNAME.
struct NameFilter {
  bool excludes = false;
  bool isExact = false;
  std::vector<std::string_view> names;

  /// Where in the list a name matches.
  std::optional<size_t> find(std::string_view name) const {
    for (size_t i = 0; i < names.size(); ++i) {
      if (isExact ? name == names[i] : name.substr(0, names[i].size()) == names[i]) return i;
    }
    return std::nullopt;
  }
};

NameFilter parseFilter(std::string_view text) {
  NameFilter filter;
  for (; !text.empty() && (text.front() == '^' || text.front() == '='); text.remove_prefix(1))
    (text.front() == '^' ? filter.excludes : filter.isExact) = true;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) filter.names.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return filter;
}

/// Smaller is better; a class is used when no better one has anything.
enum Class : uint8_t { InfiniBand, Ordinary, Docker, Loopback };

Class classOf(const Interface& interface) {
  const auto startsWith = [&](std::string_view prefix) { return interface.name.compare(0, prefix.size(), prefix) == 0; };
  if (startsWith("ib")) return InfiniBand;
  if (startsWith("docker")) return Docker;
  if (startsWith("lo") || isLoopback(interface.address)) return Loopback;
  return Ordinary;
}

struct Judged {
  const Interface* interface = nullptr;
  size_t order = 0;
  Class kind = Ordinary;
  std::string_view refusal;  ///< empty: may be chosen
  size_t earlier = 0;        ///< addresses of the same interface and IP version before it
};

Judged judge(const Interface& interface, const NameFilter& filter, Family family) {
  Judged candidate{&interface, 0, classOf(interface), {}, 0};
  const auto place = filter.find(interface.name);
  if (!filter.excludes && place) candidate.order = *place;
  if (!interface.isUp) {
    candidate.refusal = "it is down";
  } else if (filter.excludes && place) {
    candidate.refusal = "NCCL_SOCKET_IFNAME excludes it";
  } else if (!filter.excludes && !filter.names.empty() && !place) {
    candidate.refusal = "NCCL_SOCKET_IFNAME does not name it";
  } else if (family != Family::Any && interface.address.isV6 != (family == Family::V6)) {
    candidate.refusal = "NCCL_SOCKET_FAMILY asks for the other IP version";
  } else if (isLinkLocal(interface.address)) {
    candidate.refusal = "its address means something on its own link only";
  }
  return candidate;
}

/// Without a list of names, docker* and lo serve only where nothing better does.
void refuseSpares(std::vector<Judged>& candidates) {
  Class best = Loopback;
  for (const Judged& candidate : candidates) {
    if (candidate.refusal.empty()) best = std::min(best, candidate.kind);
  }
  for (Judged& candidate : candidates) {
    if (candidate.refusal.empty() && candidate.kind > std::max(best, Ordinary)) candidate.refusal = "there is a better one";
  }
}

/// Further addresses may have labels of their own: eth0:1.
void countEarlier(std::vector<Judged>& candidates) {
  std::map<std::pair<std::string_view, bool>, size_t> seen;
  for (Judged& candidate : candidates) {
    const std::string_view name = candidate.interface->name;
    if (candidate.refusal.empty()) candidate.earlier = seen[{name.substr(0, name.find(':')), candidate.interface->address.isV6}]++;
  }
}

}  // namespace

Result<std::vector<Interface>> listInterfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return fail(Code::SystemError, "cannot list the network interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const auto address = fromSocketAddress(*entry->ifa_addr);
    if (address) all.push_back({entry->ifa_name, *address, (entry->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING)});
  }
  return all;
}

Family parseFamily(std::string_view text) {
  if (text == "AF_INET") return Family::V4;
  return text == "AF_INET6" ? Family::V6 : Family::Any;
}

Result<Choice> chooseInterfaces(const std::vector<Interface>& all, std::string_view names, Family family) {
  const NameFilter filter = parseFilter(names);
  const bool isNamed = !filter.excludes && !filter.names.empty();
  std::vector<Judged> candidates;
  for (const Interface& interface : all) candidates.push_back(judge(interface, filter, family));
  if (!isNamed) refuseSpares(candidates);
  countEarlier(candidates);
  std::stable_sort(candidates.begin(), candidates.end(), [&](const Judged& a, const Judged& b) {
    if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
    const auto placeOf = [&](const Judged& c) { return std::pair(c.earlier, isNamed ? c.order : size_t{c.kind}); };
    return placeOf(a) < placeOf(b);
  });
  Choice choice;
  for (const Judged& candidate : candidates) choice.candidates.push_back({*candidate.interface, std::string(candidate.refusal)});
  if (candidates.empty() || !candidates.front().refusal.empty()) {
    std::string table;
    for (const std::string& line : choice.table()) table += '\n' + line;
    return fail(Code::InvalidUsage, "no network interface can be used (NCCL_SOCKET_IFNAME={}):{}", names.empty() ? "not set" : names,
                table.empty() ? "\n  there is none" : table);
  }
  return choice;
}

Choice forData(Choice choice, std::string_view names) {
  const auto isInfiniBand = [](const Candidate& candidate) {
    return candidate.refusal.empty() && classOf(candidate.interface) == InfiniBand;
  };
  if (!names.empty() || std::none_of(choice.candidates.begin(), choice.candidates.end(), isInfiniBand)) return choice;
  for (Candidate& candidate : choice.candidates)
    if (candidate.refusal.empty() && !isInfiniBand(candidate)) candidate.refusal = "it would hold up the InfiniBand beside it";
  std::stable_partition(choice.candidates.begin(), choice.candidates.end(), [](const Candidate& c) { return c.refusal.empty(); });
  return choice;
}

std::vector<Interface> Choice::chosen() const {
  std::vector<Interface> found;
  for (const Candidate& candidate : candidates)
    if (candidate.refusal.empty()) found.push_back(candidate.interface);
  return found;
}

std::vector<std::string> Choice::table() const {
  std::vector<std::string> lines;
  for (const Candidate& candidate : candidates) {
    const std::string address = describe(candidate.interface.address);
    const std::string_view bare = std::string_view(address).substr(0, address.rfind(':'));
    lines.push_back(format("  {:<16} {:<40} {}{}", candidate.interface.name, bare,
                           candidate.refusal.empty() ? "chosen" : "not chosen: ", candidate.refusal));
  }
  return lines;
}

}  // namespace tutti::bootstrap
