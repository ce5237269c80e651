// Equality of XML trees and of systems, for tests that write and read again.
#pragma once

#include "topo/graph.h"
#include "topo/xml.h"

namespace tutti::topo::test {

/// Whether two trees have the same names, attributes (in any order) and children (in the same order); `where` gets the first difference.
inline bool areSame(const Element& a, const Element& b, std::string& where) {
  where = "<" + a.name + "> of line " + std::to_string(a.line) + " and <" + b.name + "> of line " + std::to_string(b.line);
  if (a.name != b.name || a.attributes.size() != b.attributes.size() || a.children.size() != b.children.size()) return false;
  for (const Attribute& attribute : a.attributes) {
    const std::string* other = b.find(attribute.name);
    if (other == nullptr || *other != attribute.value) return false;
  }
  for (size_t i = 0; i < a.children.size(); ++i) {
    if (!areSame(a.children[i], b.children[i], where)) return false;
  }
  return true;
}

/// Everything that a system states, as text.
inline std::string describe(const System& system) {
  std::string text;
  for (const NodeKind kind : kAllNodeKinds) {
    for (const NodeId id : system.all(kind)) {
      const Node& node = system.at(id);
      text += format("{} {:x} gpu {} {} {} {} {} net {} {} {:x} {} {} {} {} cpu {} {} {} {} pci {:x}:", nodeName(system, id), node.id,
                     node.gpu.dev, node.gpu.rank, node.gpu.sm, node.gpu.gdr, node.gpu.gcn, node.net.dev, node.net.port, node.net.guid,
                     node.net.GBps, node.net.latencyUs, node.net.gdr, node.net.coll, static_cast<int>(node.cpu.arch),
                     static_cast<int>(node.cpu.vendor), static_cast<int>(node.cpu.model), node.cpu.affinity, node.pciDevice);
      for (const LinkId link : node.links) {
        text += format(" {} {} {}", linkTypeName(system.at(link).type), system.at(link).GBps, nodeName(system, system.at(link).to));
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace tutti::topo::test
