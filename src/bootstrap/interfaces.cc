#include "bootstrap/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

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

struct Candidate {
  const Interface* interface = nullptr;
  size_t order = 0;
  Class kind = Ordinary;
  std::string_view refusal;  ///< empty: may be chosen
};

Candidate judge(const Interface& interface, const NameFilter& filter, Family family) {
  Candidate candidate{&interface, 0, classOf(interface), {}};
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
void refuseSpares(std::vector<Candidate>& candidates) {
  Class best = Loopback;
  for (const Candidate& candidate : candidates) {
    if (candidate.refusal.empty()) best = std::min(best, candidate.kind);
  }
  for (Candidate& candidate : candidates) {
    if (candidate.refusal.empty() && candidate.kind > std::max(best, Ordinary)) candidate.refusal = "there is a better one";
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
  std::vector<Candidate> candidates;
  for (const Interface& interface : all) candidates.push_back(judge(interface, filter, family));
  if (!isNamed) refuseSpares(candidates);
  std::stable_sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
    return isNamed ? a.order < b.order : a.kind < b.kind;
  });
  Choice choice;
  for (const Candidate& candidate : candidates) {
    const std::string address = describe(candidate.interface->address);
    const std::string_view bare = std::string_view(address).substr(0, address.rfind(':'));
    choice.table += format("{}  {:<16} {:<40} {}{}", choice.table.empty() ? "" : "\n", candidate.interface->name, bare,
                           candidate.refusal.empty() ? "chosen" : "not chosen: ", candidate.refusal);
    if (candidate.refusal.empty()) choice.chosen.push_back(*candidate.interface);
  }
  if (choice.chosen.empty())
    return fail(Code::InvalidUsage, "no network interface can be used (NCCL_SOCKET_IFNAME={}):\n{}", names.empty() ? "not set" : names,
                choice.table.empty() ? "  there is none" : choice.table);
  return choice;
}

std::vector<Interface> forData(const Choice& choice, std::string_view names) {
  std::vector<Interface> left = choice.chosen;
  const auto isOrdinary = [](const Interface& interface) { return classOf(interface) != InfiniBand; };
  if (names.empty() && !std::all_of(left.begin(), left.end(), isOrdinary)) std::erase_if(left, isOrdinary);
  return left;
}

}  // namespace tutti::bootstrap
