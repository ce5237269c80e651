#include "topo/charges.h"

namespace tutti::topo {

namespace {

bool passesIntelRoot(const System& system, std::span<const LinkId> links) {
  for (const LinkId id : links) {
    const Node& node = system.at(system.at(id).to);
    if (node.kind == NodeKind::Cpu && node.cpu.arch == CpuArch::X86 && node.cpu.vendor == CpuVendor::Intel) return true;
  }
  return false;
}

void add(std::vector<Charge>& charges, size_t first, LinkId link, int32_t weight) {
  for (size_t i = first; i < charges.size(); ++i) {
    if (charges[i].link == link) {
      charges[i].weight += weight;
      return;
    }
  }
  charges.push_back({link, weight});
}

}  // namespace

void appendCharges(const System& system, const Paths& paths, NodeId from, NodeId to, std::vector<Charge>& charges) {
  const size_t first = charges.size();
  const Path& path = paths.get(from, to);
  const std::span<const LinkId> links = paths.links(path);
  const bool fromGpu = system.at(from).kind == NodeKind::Gpu;
  const bool slowRoot = path.type == PathType::Phb && fromGpu && passesIntelRoot(system, links);
  for (const LinkId id : links) {
    const Link& link = system.at(id);
    const Node& end = system.at(link.to);
    const int32_t forward = slowRoot && link.type == LinkType::Pci ? kWholeWeight * 6 / 5 : kWholeWeight;
    add(charges, first, id, forward);
    if (link.reverse == kNoLink) continue;
    if (end.kind == NodeKind::Gpu && end.gpu.sm < 80 && !fromGpu) add(charges, first, link.reverse, forward / 8);
    if (end.kind == NodeKind::Cpu && end.cpu.arch == CpuArch::Power && link.type == LinkType::Nvl)
      add(charges, first, link.reverse, forward);
  }
}

bool sameRail(const System& system, NodeId net1, NodeId net2) {
  const NetInfo& a = system.at(net1).net;
  const NetInfo& b = system.at(net2).net;
  return a.guid == b.guid && a.port == b.port;
}

}  // namespace tutti::topo
