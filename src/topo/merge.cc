#include "topo/merge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "topo/bandwidth.h"
#include "topo/settings.h"

namespace tutti::topo {
namespace {

constexpr std::string_view kNames[] = {"NCCL_NET_MERGE_LEVEL", "NCCL_NET_FORCE_MERGE"};
constexpr int64_t kMaxDev = 1 << 20;
constexpr int kMostLanes = 64;
constexpr size_t kMostNets = 4096;  // every one is compared with all others

/// Children by index from the root down.
using Place = std::vector<size_t>;

struct Net {
  Place place;
  std::string host;  ///< host_hash of its CPU; empty where there is none
  std::string name;
  int64_t dev = 0;
  int64_t speed = 0;
  std::string pciDevice;  ///< The address without its function; empty for a net that is no PCI device.
  bool isMerged = false;
};

std::vector<std::string_view> split(std::string_view text, char cut) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(cut);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Status refuse(std::string_view name, const std::string& value, std::string_view expected) {
  return error(Code::InvalidUsage, "{}=\"{}\"; expected {}", name, value, expected);
}

Status readLevel(std::string_view name, const std::string& value, MergeLevel& level) {
  const auto path = value == "PORT" ? std::optional(PathType::Nvl) : parseLevel(value);
  if (!path) return refuse(name, value, "LOC for no merging, PORT, PIX, PXB, PHB or SYS");
  level = *path == PathType::Loc   ? MergeLevel::None
          : *path < PathType::Pix  ? MergeLevel::Port
          : *path == PathType::Pix ? MergeLevel::Pix
          : *path < PathType::Phb  ? MergeLevel::Pxb
          : *path == PathType::Phb ? MergeLevel::Phb
                                   : MergeLevel::Sys;
  return {};
}

Status readGroups(std::string_view name, const std::string& value, std::vector<std::vector<std::string>>& groups) {
  std::vector<std::string> seen;
  groups.clear();
  for (const std::string_view group : split(value, ';')) {
    if (group.empty()) continue;  // a cut at the end
    std::vector<std::string>& made = groups.emplace_back();
    for (const std::string_view net : split(group, ',')) {
      if (net.empty()) return refuse(name, value, "names of nets: \"a,b;c,d\"");
      if (std::find(seen.begin(), seen.end(), net) != seen.end())
        return refuse(name, value, format("every net once: {} stands twice", net));
      seen.emplace_back(net);
      made.emplace_back(net);
    }
    if (made.size() < 2 || made.size() > kMostMerged)
      return refuse(name, value, format("2 to {} nets in a group: \"{}\" has {}", kMostMerged, group, made.size()));
  }
  return {};
}

class Merger {
 public:
  Merger(Document& machine, const MergeSettings& settings) : machine_(machine), settings_(settings) {}

  Status run() {
    Place place;
    TUTTI_TRY(collect(machine_.root, place, {}, ""));
    for (const auto& group : settings_.groups) TUTTI_TRY(mergeNamed(group));
    if (settings_.level != MergeLevel::None) mergeNear();
    for (const std::vector<size_t>& members : merged_) make(members);
    remove(machine_.root, {});
    return {};
  }

 private:
  static std::string hostOf(const Element& cpu) {
    const std::string* hash = cpu.find("host_hash");
    return hash == nullptr ? std::string() : *hash;
  }

  Status collect(const Element& element, Place& place, const std::string& host, const std::string& busId) {
    if (element.name == "net") {
      const auto dev = findInteger(machine_, element, "dev", -1, kMaxDev);
      if (!dev) return dev.error();
      const auto speed = findInteger(machine_, element, "speed", -1, INT32_MAX);
      if (!speed) return speed.error();
      const int64_t number = dev->value_or(-1);
      if (number < 0) return {};  // nobody uses it
      const std::string* name = element.find("name");
      int64_t& next = nextDev_[host];
      next = std::max(next, number + 1);
      if (element.find("devs") != nullptr) return {};  // merged already
      if (nets_.size() == kMostNets)
        return error(Code::InvalidUsage, "{}: expected at most {} nets to be merged", placeOf(machine_, element), kMostNets);
      nets_.push_back({.place = place,
                       .host = host,
                       .name = name == nullptr ? std::string() : *name,
                       .dev = number,
                       .speed = speed->value_or(0),
                       .pciDevice = busId.substr(0, busId.rfind('.'))});
      return {};
    }
    const std::string* own = element.name == "pci" ? element.find("busid") : nullptr;
    for (size_t i = 0; i < element.children.size(); ++i) {
      place.push_back(i);
      TUTTI_TRY(collect(element.children[i], place, place.size() == 1 ? hostOf(element.children[i]) : host, own == nullptr ? busId : *own));
      place.pop_back();
    }
    return {};
  }

  Element& at(const Place& place, size_t depth) {
    Element* element = &machine_.root;
    for (size_t i = 0; i < depth; ++i) element = &element->children[place[i]];
    return *element;
  }

  /// How many elements below the root the two have in common.
  static size_t commonDepth(const Net& a, const Net& b) {
    const auto end = std::mismatch(a.place.begin(), a.place.end(), b.place.begin(), b.place.end());
    return static_cast<size_t>(end.first - a.place.begin());
  }

  /// Switches above the NIC up to `depth`.
  size_t switchesBelow(const Net& net, size_t depth) {
    size_t count = 0;
    for (size_t d = depth + 1; d <= net.place.size(); ++d) count += at(net.place, d).name == "pci" ? 1 : 0;
    return count - 1;  // the NIC's own
  }

  std::optional<MergeLevel> distance(const Net& a, const Net& b) {
    if (a.pciDevice.empty() || b.pciDevice.empty() || a.host != b.host) return std::nullopt;
    if (a.pciDevice == b.pciDevice) return MergeLevel::Port;
    const size_t depth = commonDepth(a, b);
    if (depth == 0) return MergeLevel::Sys;
    if (depth == 1) return MergeLevel::Phb;
    return switchesBelow(a, depth) + switchesBelow(b, depth) == 0 ? MergeLevel::Pix : MergeLevel::Pxb;
  }

  /// On every host that has such nets: names count within a host.
  Status mergeNamed(const std::vector<std::string>& names) {
    std::vector<std::string> hosts;
    for (const Net& net : nets_) {
      const bool isNamed = std::find(names.begin(), names.end(), net.name) != names.end();
      if (isNamed && std::find(hosts.begin(), hosts.end(), net.host) == hosts.end()) hosts.push_back(net.host);
    }
    if (hosts.empty()) hosts.emplace_back();
    for (const std::string& host : hosts) TUTTI_TRY(mergeNamed(names, host));
    return {};
  }

  Status mergeNamed(const std::vector<std::string>& names, const std::string& host) {
    std::vector<size_t> members;
    for (const std::string& name : names) {
      const auto found =
          std::find_if(nets_.begin(), nets_.end(), [&](const Net& net) { return net.name == name && net.host == host; });
      if (found == nets_.end()) {
        std::string known;
        for (const Net& net : nets_)
          if (net.host == host) known += format("{}{}", known.empty() ? "" : ", ", net.name);
        return error(Code::InvalidUsage, "NCCL_NET_FORCE_MERGE: {}{} has no net \"{}\"; it has {}", machine_.file,
                     host.empty() ? "" : format(", the host with host_hash=\"{}\",", host), name, known.empty() ? "none" : known);
      }
      found->isMerged = true;
      members.push_back(static_cast<size_t>(found - nets_.begin()));
    }
    merged_.push_back(std::move(members));
    return {};
  }

  /// The nearest ones first, so that ports of a NIC become one before they are taken apart by others.
  void mergeNear() {
    for (int level = static_cast<int>(MergeLevel::Port); level <= static_cast<int>(settings_.level); ++level) {
      for (size_t first = 0; first < nets_.size(); ++first) {
        if (nets_[first].isMerged) continue;
        std::vector<size_t> members = {first};
        for (size_t other = first + 1; other < nets_.size() && members.size() < kMostMerged; ++other) {
          if (nets_[other].isMerged || nets_[other].speed != nets_[first].speed || nets_[other].dev == nets_[first].dev) continue;
          const auto far = distance(nets_[first], nets_[other]);
          if (far && static_cast<int>(*far) <= level) members.push_back(other);
        }
        if (members.size() < 2) continue;
        for (const size_t member : members) nets_[member].isMerged = true;
        merged_.push_back(std::move(members));
      }
    }
  }

  void make(const std::vector<size_t>& members) {
    size_t depth = nets_[members[0]].place.size() - 1;
    for (const size_t member : members) depth = std::min(depth, commonDepth(nets_[members[0]], nets_[member]));
    depth = std::max<size_t>(depth, 1);  // of several CPUs: at the first one's
    const Place& first = nets_[members[0]].place;
    Element net = joined(members);
    Element& parent = at(first, depth);
    if (parent.name == "nic" || parent.name == "net") {
      at(first, first.size() - 1).children.push_back(std::move(net));  // ports that are listed together
      return;
    }
    Element nic;
    nic.name = "nic";
    nic.children.push_back(std::move(net));
    const size_t device = first.size() - 2;  // the NIC's own element
    if (nets_[members[0]].pciDevice.empty() || at(first, device).name != "pci" || device == depth) {
      parent.children.push_back(std::move(nic));
      return;
    }
    Element pci = at(first, device);
    pci.children.clear();
    widen(pci, members, depth);
    pci.children.push_back(std::move(nic));
    parent.children.push_back(std::move(pci));
  }

  Element joined(const std::vector<size_t>& members) {
    const Place& first = nets_[members[0]].place;
    Element net = at(first, first.size());
    std::string name;
    std::string devs;
    int64_t slowest = INT32_MAX;
    bool hasGdr = true;
    bool reduces = true;
    for (const size_t member : members) {
      const Net& one = nets_[member];
      const Element& element = at(one.place, one.place.size());
      const auto isOne = [&](const char* attribute) {
        const std::string* text = element.find(attribute);
        return text != nullptr && *text == "1";
      };
      name += format("{}{}", name.empty() ? "" : "+", one.name);
      devs += format("{}{}", devs.empty() ? "" : ",", one.dev);
      slowest = std::min(slowest, one.speed);
      hasGdr = hasGdr && isOne("gdr");
      reduces = reduces && isOne("coll");
    }
    net.set("name", name);
    net.set("dev", format("{}", nextDev_[nets_[members[0]].host]++));
    net.set("devs", devs);
    if (slowest > 0) net.set("speed", format("{}", std::min<int64_t>(slowest * static_cast<int64_t>(members.size()), INT32_MAX)));
    net.set("gdr", hasGdr ? "1" : "0");
    if (net.find("coll") != nullptr) net.set("coll", reduces ? "1" : "0");
    return net;
  }

  /// The link of the NIC as wide as those of its members' devices together, each as narrow as its way up to `depth`.
  void widen(Element& pci, const std::vector<size_t>& members, size_t depth) {
    const std::string* own = pci.find("link_speed");
    const std::string speed = own == nullptr ? "" : *own;
    const float lane = pciGBps(speed, 1).value_or(0);
    float all = 0;
    std::vector<std::string> counted;
    for (const size_t member : members) {
      const Net& net = nets_[member];
      float least = kLocalGBps;
      for (size_t d = depth + 1; d < net.place.size(); ++d) {
        const Element& element = at(net.place, d);
        if (element.name != "pci") continue;
        const std::string* linkSpeed = element.find("link_speed");
        const auto width = findInteger(machine_, element, "link_width", 0, kMostLanes);
        const auto GBps = pciGBps(linkSpeed == nullptr ? "" : *linkSpeed, width ? static_cast<int>(width->value_or(0)) : 0);
        least = std::min(least, GBps.value_or(kLocalGBps));
      }
      // Functions of one device share its link.
      if (std::find(counted.begin(), counted.end(), net.pciDevice) != counted.end()) continue;
      counted.push_back(net.pciDevice);
      all += least;
    }
    if (lane > 0 && all < kLocalGBps)
      pci.set("link_width", format("{}", std::clamp(static_cast<int>(std::lround(all / lane)), 1, kMostLanes)));
  }

  /// The members, and what only led to them.
  bool remove(Element& element, const std::string& host) {
    if (element.name == "net") {
      const std::string* dev = element.find("dev");
      return dev != nullptr && element.find("devs") == nullptr && isMember(*dev, element, host);
    }
    const bool hadNets = element.name == "nic" && !element.children.empty();
    bool lost = false;
    std::erase_if(element.children, [&](Element& child) {
      const bool gone = remove(child, &element == &machine_.root ? hostOf(child) : host);
      lost = lost || gone;
      return gone;
    });
    if (element.name == "nic") return hadNets && element.children.empty();
    return element.name == "pci" && lost && element.children.empty();
  }

  bool isMember(const std::string& dev, const Element& element, const std::string& host) const {
    const std::string* name = element.find("name");
    return std::any_of(nets_.begin(), nets_.end(), [&](const Net& net) {
      return net.isMerged && net.host == host && dev == format("{}", net.dev) && (name == nullptr ? net.name.empty() : net.name == *name);
    });
  }

  Document& machine_;
  const MergeSettings& settings_;
  std::vector<Net> nets_;
  std::vector<std::vector<size_t>> merged_;
  std::map<std::string, int64_t> nextDev_;  // by host: networks count their devices there
};

}  // namespace

std::span<const std::string_view> mergeVariables() { return kNames; }

Status applyMergeVariable(std::string_view name, const std::string& value, MergeSettings& settings) {
  if (value.empty()) return {};
  if (name == "NCCL_NET_MERGE_LEVEL") return readLevel(name, value, settings.level);
  if (name == "NCCL_NET_FORCE_MERGE") return readGroups(name, value, settings.groups);
  return {};
}

Status mergeNets(Document& machine, const MergeSettings& settings) {
  if (settings.level == MergeLevel::None && settings.groups.empty()) return {};
  return Merger(machine, settings).run();
}

}  // namespace tutti::topo
