#include "topo/build_parts.h"

#include <algorithm>

#include "topo/bandwidth.h"

namespace tutti::topo {
namespace {

constexpr uint64_t kChip = 0xfffffffffffff000ULL;  // the last 12 bits count the ports of a chip
constexpr uint64_t kMerged = 0xffff;               // as subsystem device: not to be looked at again

/// The generation of a Broadcom switch at that level (0 upper, 1 lower) of the pair; 0 for any other device.
int broadcomGen(uint64_t device, uint64_t level) {
  if ((device & kChip) == 0x1000c0101000a000ULL) return 4;
  if ((device & kChip) == (0x1000c03010000000ULL | level * 0x1000)) return 5;
  return 0;
}

/// Hands the devices below `lower` over to `upper`, except the link between the two.
void handOver(System& system, NodeId upper, NodeId lower) {
  for (const LinkId id : system.at(lower).links) {
    Link& down = system.at(id);
    if (down.to == upper) continue;
    down.from = upper;
    system.at(upper).links.push_back(id);
    if (down.reverse != kNoLink) system.at(down.reverse).to = upper;
  }
  system.at(lower).links.clear();
}

void sortBelow(System& system, NodeId node, NodeId upper) {
  std::vector<LinkId>& links = system.at(node).links;
  if (upper != kNoNode) {
    const auto up = std::find_if(links.begin(), links.end(), [&](LinkId id) { return system.at(id).to == upper; });
    if (up != links.end()) std::rotate(up, up + 1, links.end());
  }
  for (const LinkId id : links) {
    const Link& link = system.at(id);
    if (link.type == LinkType::Pci && link.to != upper) sortBelow(system, link.to, node);
  }
}

}  // namespace

NodeKind kindOfClass(std::string_view pciClass) {
  if (pciClass.starts_with("0x068000")) return NodeKind::NvSwitch;
  if (pciClass.starts_with("0x068001")) return NodeKind::Cpu;
  if (pciClass.starts_with("0x03") || pciClass.starts_with("0x12")) return NodeKind::Gpu;
  if (pciClass.starts_with("0x02")) return NodeKind::Nic;
  return NodeKind::Pci;
}

void flattenSwitches(System& system) {
  std::vector<bool> drop(system.nodes.size(), false);
  bool found = true;
  while (found) {
    found = false;
    for (const NodeId upper : system.all(NodeKind::Pci)) {
      const int gen = broadcomGen(system.at(upper).pciDevice, 0);
      if (gen == 0 || drop[static_cast<size_t>(upper.value)]) continue;
      std::vector<NodeId> lowers;
      std::erase_if(system.at(upper).links, [&](LinkId id) {
        const NodeId lower = system.at(id).to;
        if (system.at(lower).kind != NodeKind::Pci || broadcomGen(system.at(lower).pciDevice, 1) != gen) return false;
        lowers.push_back(lower);
        return true;
      });
      for (const NodeId lower : lowers) {
        handOver(system, upper, lower);
        drop[static_cast<size_t>(lower.value)] = true;
      }
      system.at(upper).pciDevice |= kMerged;
      found = true;
      break;  // a switch further down may now be one level higher
    }
  }
  if (std::find(drop.begin(), drop.end(), true) != drop.end()) system = withoutNodes(system, drop);
}

void connectCpus(System& system) {
  const std::vector<NodeId> cpus = system.all(NodeKind::Cpu);
  for (const NodeId from : cpus) {
    for (const NodeId to : cpus) {
      if (from == to || systemOf(system.at(from).id) != systemOf(system.at(to).id)) continue;
      system.connect(from, to, LinkType::Sys, betweenCpusGBps(system.at(from).cpu));
    }
  }
}

void sortLinks(System& system) {
  for (const NodeId cpu : system.all(NodeKind::Cpu)) sortBelow(system, cpu, kNoNode);
}

}  // namespace tutti::topo
