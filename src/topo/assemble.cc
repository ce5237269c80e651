#include "topo/assemble.h"

#include <algorithm>
#include <climits>
#include <map>

namespace tutti::topo {
namespace {

constexpr int kMaxDev = 1 << 20;
constexpr int kUnused = INT_MAX;

/// Elements that are there only for what they lead to.
bool leads(const Element& element) {
  return element.name == "cpu" || element.name == "pci" || element.name == "nic" || element.name == "system";
}

Status collectDevs(const Document& machine, const Element& element, std::map<int, const Element*>& found) {
  if (element.name == "gpu") {
    const auto given = findInteger(machine, element, "dev", -1, kMaxDev);
    if (!given) return given.error();
    const int64_t dev = given->value_or(-1);
    if (dev < 0) return {};  // not an accessible GPU
    const auto [place, isNew] = found.emplace(static_cast<int>(dev), &element);
    if (!isNew) {
      return badAttribute(machine, element, "dev", element.find("dev"),
                          format("a number that no other GPU has (line {} has it too)", place->second->line));
    }
  }
  for (const Element& child : element.children) TUTTI_TRY(collectDevs(machine, child, found));
  return {};
}

/// Copies what one host uses. Returns the lowest rank that needs the element, kUnused for none.
class Arrangement {
 public:
  Arrangement(const UsedHost& host, const std::map<int, const Element*>& devs) : lowest_(kUnused) {
    for (const UsedGpu& gpu : host.gpus) {
      rankOf_[devs.at(gpu.dev)] = gpu.rank;
      lowest_ = std::min(lowest_, gpu.rank);
    }
  }

  int copy(const Element& from, Element& to) const {
    to.name = from.name;
    to.line = from.line;
    to.attributes = from.attributes;
    std::erase_if(to.attributes, [](const Attribute& attribute) { return attribute.name == "keep"; });
    if (from.name == "gpu") {
      const auto rank = rankOf_.find(&from);
      if (rank == rankOf_.end()) return kUnused;
      to.set("rank", format("{}", rank->second));
      to.children = from.children;
      return rank->second;
    }
    if (from.name == "net") {
      const std::string* dev = from.find("dev");
      return dev == nullptr || dev->empty() || *dev == "-1" ? kUnused : lowest_;
    }
    if (!leads(from)) {
      to.children = from.children;
      return kUnused;  // it goes along with what it belongs to
    }
    return copyChildren(from, to);
  }

 private:
  int copyChildren(const Element& from, Element& to) const {
    std::vector<std::pair<int, size_t>> order;
    std::vector<Element> copies(from.children.size());
    int first = kUnused;
    for (size_t i = 0; i < from.children.size(); ++i) {
      const Element& child = from.children[i];
      int rank = copy(child, copies[i]);
      const bool goesAlong = rank == kUnused && !leads(child) && child.name != "gpu" && child.name != "net";
      if (rank == kUnused && (!goesAlong || child.name == "hostdev")) continue;
      first = std::min(first, rank);
      if (goesAlong) rank = INT_MIN;
      order.emplace_back(rank, i);
    }
    // What goes along came with the first rank that needed the parent.
    for (auto& [rank, index] : order) {
      if (rank == INT_MIN) rank = first;
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    to.children.reserve(order.size());
    for (const auto& [rank, index] : order) to.children.push_back(std::move(copies[index]));
    return first;
  }

  std::map<const Element*, int> rankOf_;
  int lowest_;
};

bool areSame(const Element& a, const Element& b) {
  if (a.name != b.name || a.attributes.size() != b.attributes.size()) return false;
  return std::all_of(a.attributes.begin(), a.attributes.end(), [&](const Attribute& attribute) {
    const std::string* other = b.find(attribute.name);
    return other != nullptr && *other == attribute.value;
  });
}

}  // namespace

Result<std::vector<int>> gpuDevs(const Document& machine) {
  std::map<int, const Element*> found;
  if (Status status = collectDevs(machine, machine.root, found); !status.ok()) return tl::unexpected(std::move(status));
  std::vector<int> devs;
  devs.reserve(found.size());
  for (const auto& [dev, element] : found) devs.push_back(dev);
  return devs;
}

Result<Document> arrange(const Document& machine, std::span<const UsedHost> hosts) {
  std::map<int, const Element*> devs;
  if (Status status = collectDevs(machine, machine.root, devs); !status.ok()) return tl::unexpected(std::move(status));
  Document arranged{.file = machine.file, .root = {}};
  arranged.root.name = machine.root.name;
  arranged.root.line = machine.root.line;
  arranged.root.attributes = machine.root.attributes;
  for (const UsedHost& host : hosts) {
    for (const UsedGpu& gpu : host.gpus) {
      if (devs.contains(gpu.dev)) continue;
      return fail(Code::InvalidArgument, "{}: there is no <gpu dev=\"{}\">, which rank {} is to use; it has {} GPUs", machine.file, gpu.dev,
                  gpu.rank, devs.size());
    }
    Element used;
    Arrangement(host, devs).copy(machine.root, used);
    for (Element& child : used.children) {
      if (child.name == "cpu") child.set("host_hash", format("{:#x}", host.hostHash));
      arranged.root.children.push_back(std::move(child));
    }
  }
  return arranged;
}

Result<Document> partOfRank(const Document& machine, uint64_t hostHash, UsedGpu gpu) {
  const UsedHost host{.hostHash = hostHash, .gpus = {gpu}};
  return arrange(machine, {&host, 1});
}

Status fuse(Element& into, const Element& other) {
  if (into.name.empty()) {
    into = other;
    return {};
  }
  if (!areSame(into, other)) {
    return error(Code::InvalidUsage, "two <{}> of different attributes cannot be fused (lines {} and {})", other.name, into.line,
                 other.line);
  }
  for (const Element& child : other.children) {
    const auto known = std::find_if(into.children.begin(), into.children.end(), [&](const Element& mine) { return areSame(mine, child); });
    if (known == into.children.end()) {
      into.children.push_back(child);
    } else {
      TUTTI_TRY(fuse(*known, child));
    }
  }
  return {};
}

void markCollNets(Element& root, bool canReduce) {
  if (root.name == "net") root.set("coll", canReduce ? "1" : "0");
  for (Element& child : root.children) markCollNets(child, canReduce);
}

}  // namespace tutti::topo
