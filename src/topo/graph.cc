#include "topo/graph.h"

#include <algorithm>

#include "core/format.h"

namespace tutti::topo {

NodeId System::addNode(NodeKind kind, uint64_t id) {
  const NodeId made{static_cast<int32_t>(nodes.size())};
  Node& node = nodes.emplace_back();
  node.kind = kind;
  node.id = id;
  ofKind[static_cast<size_t>(kind)].push_back(made);
  return made;
}

NodeId System::find(NodeKind kind, uint64_t id) const {
  for (const NodeId candidate : all(kind)) {
    if (at(candidate).id == id) return candidate;
  }
  return kNoNode;
}

NodeId System::gpuOfRank(int rank) const {
  for (const NodeId candidate : all(NodeKind::Gpu)) {
    if (at(candidate).gpu.rank == rank) return candidate;
  }
  return kNoNode;
}

LinkId System::linkBetween(NodeId from, NodeId to, LinkType type) const {
  for (const LinkId id : at(from).links) {
    if (at(id).to == to && at(id).type == type) return id;
  }
  return kNoLink;
}

void System::connect(NodeId from, NodeId to, LinkType type, float GBps) {
  LinkId id = linkBetween(from, to, type);
  if (id == kNoLink) {
    id = LinkId(static_cast<int32_t>(links.size()));
    const LinkId reverse = linkBetween(to, from, type);
    links.push_back({.from = from, .to = to, .type = type, .GBps = 0, .reverse = reverse});
    if (reverse != kNoLink) at(reverse).reverse = id;
    if (from == to) at(id).reverse = id;
    at(from).links.push_back(id);
  }
  at(id).GBps += GBps;

  // It moves forward past the slower ones, and stays behind those as fast.
  std::vector<LinkId>& order = at(from).links;
  const auto now = std::find(order.begin(), order.end(), id);
  const auto place = std::find_if(order.begin(), now, [&](LinkId other) { return at(other).GBps < at(id).GBps; });
  std::rotate(place, now, now + 1);
}

System withoutNodes(const System& system, const std::vector<bool>& drop) {
  System kept = system;
  for (auto& list : kept.ofKind) list.clear();
  kept.nodes.clear();
  kept.links.clear();

  std::vector<NodeId> nodeNow(system.nodes.size(), kNoNode);
  for (size_t old = 0; old < system.nodes.size(); ++old) {
    if (drop[old]) continue;
    nodeNow[old] = NodeId(static_cast<int32_t>(kept.nodes.size()));
    kept.nodes.push_back(system.nodes[old]);
  }
  const auto nowOf = [&](NodeId old) { return old == kNoNode ? kNoNode : nodeNow[static_cast<size_t>(old.value)]; };
  for (const NodeKind kind : kAllNodeKinds) {
    for (const NodeId old : system.all(kind)) {
      if (nowOf(old) != kNoNode) kept.ofKind[static_cast<size_t>(kind)].push_back(nowOf(old));
    }
  }

  std::vector<LinkId> linkNow(system.links.size(), kNoLink);
  for (size_t old = 0; old < system.links.size(); ++old) {
    Link link = system.links[old];
    link.from = nowOf(link.from);
    link.to = nowOf(link.to);
    if (link.from == kNoNode || link.to == kNoNode) continue;
    linkNow[old] = LinkId(static_cast<int32_t>(kept.links.size()));
    kept.links.push_back(link);
  }
  const auto linkNowOf = [&](LinkId old) { return old == kNoLink ? kNoLink : linkNow[static_cast<size_t>(old.value)]; };
  for (Link& link : kept.links) link.reverse = linkNowOf(link.reverse);
  for (Node& node : kept.nodes) {
    std::erase_if(node.links, [&](LinkId old) { return linkNowOf(old) == kNoLink; });
    for (LinkId& id : node.links) id = linkNowOf(id);
    node.net.localGpu = nowOf(node.net.localGpu);
  }
  return kept;
}

std::string nodeName(const System& system, NodeId id) {
  const Node& node = system.at(id);
  const int host = systemOf(node.id);
  if (node.kind == NodeKind::Gpu) return format("GPU{}", node.gpu.rank);
  if (node.kind == NodeKind::Host) return format("HOST{}", node.host.rank);
  if (node.kind == NodeKind::Net) return host == system.systemId ? format("NET{}", node.net.dev) : format("NET{}.{}", host, node.net.dev);
  return format("{}{}-{:x}", nodeKindName(node.kind), host, localIdOf(node.id));
}

std::string busIdText(uint64_t id) {
  const uint64_t local = localIdOf(id);
  return format("{:04x}:{:02x}:{:02x}.{:x}", local >> 20, (local >> 12) & 0xff, (local >> 4) & 0xff, local & 0xf);
}

std::string_view nodeKindName(NodeKind kind) {
  static constexpr std::array<std::string_view, kNodeKinds> kNames = {"GPU", "PCI", "NVS", "CPU", "NIC", "NET", "HOST"};
  return kNames[static_cast<size_t>(kind)];
}

namespace {
constexpr std::array<std::string_view, 12> kPathNames = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                         "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
}

std::string_view linkTypeName(LinkType type) { return type == LinkType::Pci ? "PCI" : kPathNames[static_cast<size_t>(type)]; }

std::string_view pathTypeName(PathType type) { return kPathNames[static_cast<size_t>(type)]; }

std::optional<PathType> pathTypeFromName(std::string_view name) {
  const auto found = std::find(kPathNames.begin(), kPathNames.end(), name);
  if (found == kPathNames.end()) return std::nullopt;
  return static_cast<PathType>(found - kPathNames.begin());
}

}  // namespace tutti::topo
