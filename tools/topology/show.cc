#include "topology/show.h"

#include <algorithm>
#include <string_view>

#include "core/format.h"
#include "topo/reach.h"

namespace tutti::tool {
namespace {

using topo::Link;
using topo::LinkId;
using topo::LinkType;
using topo::NodeId;
using topo::NodeKind;
using topo::Path;
using topo::System;
using topo::View;

std::string_view archOf(const topo::CpuInfo& cpu) {
  switch (cpu.arch) {
    case topo::CpuArch::X86: break;
    case topo::CpuArch::Arm: return "arm64";
    case topo::CpuArch::Power: return "ppc64";
    default: return "unknown CPU";
  }
  switch (cpu.vendor) {
    case topo::CpuVendor::Intel: return "x86_64 Intel";
    case topo::CpuVendor::Amd: return "x86_64 AMD";
    case topo::CpuVendor::Zhaoxin: return "x86_64 Zhaoxin";
    default: return "x86_64";
  }
}

std::string aboutNode(const System& system, NodeId id) {
  const topo::Node& node = system.at(id);
  std::string text = topo::nodeName(system, id);
  if (node.kind == NodeKind::Cpu) {
    text += format("  {}", archOf(node.cpu));
    const auto cpus = topo::cpusOf(node);
    if (cpus && !cpus->empty()) text += format("  CPUs {}", cpus->list());
    if (node.cpu.memoryMiB > 0) text += format("  {:.4g} GiB", static_cast<double>(node.cpu.memoryMiB) / 1024);
    for (const topo::NumaDistance& one : node.cpu.distances)
      if (node.cpu.distances.size() > 1)
        text += format("{}{}:{}", &one == node.cpu.distances.data() ? "  distances " : " ", one.numa, one.distance);
  }
  if (node.kind == NodeKind::Host && !node.host.cpus.empty()) text += format("  CPUs {}", node.host.cpus);
  if (node.kind == NodeKind::Gpu) {
    text += format("  {}  dev {}  sm {}", topo::busIdText(node.id), node.gpu.dev, node.gpu.sm);
    if (!node.gpu.gcn.empty()) text += format("  gcn {}", node.gpu.gcn);
    if (node.gpu.gdr) text += "  GDR";
  }
  if (node.kind == NodeKind::Net) {
    text += format("  port {}", node.net.port);
    for (const int& dev : node.net.members) text += format("{}{}", &dev == node.net.members.data() ? "  of NET" : "+NET", dev);
    if (node.net.gdr) text += "  GDR";
    if (node.net.coll) text += "  reduces";
    if (node.net.localGpu != topo::kNoNode) text += format("  serves {}", topo::nodeName(system, node.net.localGpu));
  }
  return text;
}

/// A node, the links of it that are not part of the tree, and all below it. `up`: the node that it hangs on.
void showTree(const System& system, NodeId id, NodeId up, size_t indent, std::string& text) {
  for (const LinkId linkId : system.at(id).links) {
    const Link& link = system.at(linkId);
    if (link.to == up) continue;
    const bool isDown = link.type == LinkType::Pci || link.type == LinkType::Net || system.at(link.to).kind == NodeKind::Host;
    text.append(indent, ' ');
    text += format("{} {:g} {} ", linkTypeName(link.type), link.GBps, isDown ? "-" : ">");
    if (isDown) {
      text += format("{}\n", aboutNode(system, link.to));
      showTree(system, link.to, id, indent + 4, text);
    } else {
      text += format("{}\n", topo::nodeName(system, link.to));
    }
  }
}

std::string cellOf(const Path& path) {
  if (path.type == topo::PathType::Loc && path.count == 0) return "-";
  if (path.type == topo::PathType::Dis) return "none";
  return format("{} {:.4g}", pathTypeName(path.type), path.GBps);
}

/// Rows and columns of equal width, with a heading.
void showMatrix(const View& view, NodeKind rows, NodeKind columns, std::string_view heading, std::string& text) {
  const System& system = view.system;
  if (system.count(rows) == 0 || system.count(columns) == 0) return;
  size_t width = 0;
  const auto widen = [&](const std::string& cell) { width = std::max(width, cell.size() + 2); };
  for (const NodeId to : system.all(columns)) {
    widen(topo::nodeName(system, to));
    for (const NodeId from : system.all(rows)) widen(cellOf(view.paths.get(from, to)));
  }
  for (const NodeId from : system.all(rows)) widen(topo::nodeName(system, from));
  const auto line = [&](NodeId row, const auto& cell) {
    std::string made;
    if (row != topo::kNoNode) made = topo::nodeName(system, row);
    size_t column = 0;
    for (const NodeId to : system.all(columns)) {
      column += width;
      made.resize(column, ' ');
      made += cell(to);
    }
    text += made;
    text += '\n';
  };
  text += format("\n{}\n", heading);
  line(topo::kNoNode, [&](NodeId to) { return topo::nodeName(system, to); });
  for (const NodeId from : system.all(rows)) line(from, [&](NodeId to) { return cellOf(view.paths.get(from, to)); });
}

void showGdr(const View& view, const topo::PathSettings& settings, std::string& text) {
  const System& system = view.system;
  if (system.count(NodeKind::Net) == 0) return;
  text += "\nGPUDirect RDMA (receiving)\n";
  const size_t before = text.size();
  for (const NodeId gpu : system.all(NodeKind::Gpu)) {
    std::string nets;
    for (const NodeId net : system.all(NodeKind::Net)) {
      if (topo::gdrMode(system, view.paths, settings, gpu, net, false) == topo::GdrMode::Off) continue;
      nets += format(" {}", topo::nodeName(system, net));
    }
    if (!nets.empty()) text += format("  {}:{}\n", topo::nodeName(system, gpu), nets);
  }
  if (text.size() == before) text += "  none\n";
}

void showTrees(const System& system, std::string& text) {
  for (const NodeId cpu : system.all(NodeKind::Cpu)) {
    text += format("\n{}\n", aboutNode(system, cpu));
    showTree(system, cpu, topo::kNoNode, 4, text);
  }
}

void showNotes(const std::vector<std::string>& notes, std::string& text) {
  if (!notes.empty()) text += "\nNotes\n";
  for (const std::string& note : notes) text += format("  {}\n", note);
}

std::string aboutCpus(const topo::CpuSet& cpus) {
  return cpus.empty() ? "none" : format("{} ({})", cpus.list(), cpus.count());
}

}  // namespace

std::string showTopology(const topo::View& view, const topo::PathSettings& settings) {
  const System& system = view.system;
  const bool onHost = system.count(NodeKind::Host) > 0;
  std::string text = format("{}: {} {}, {} nets, {} CPUs; best path {:g} GB/s", view.xml.file,
                            system.count(onHost ? NodeKind::Host : NodeKind::Gpu), onHost ? "host devices" : "GPUs",
                            system.count(NodeKind::Net), system.count(NodeKind::Cpu), system.maxGBps);
  if (system.inter) text += format("; {} ranks, of which some are reached over the network", system.ranks);
  text += '\n';
  showTrees(system, text);
  showMatrix(view, NodeKind::Host, NodeKind::Host, "Paths between host devices: type and GB/s", text);
  showMatrix(view, NodeKind::Host, NodeKind::Net, "Paths from host devices to nets", text);
  showMatrix(view, NodeKind::Gpu, NodeKind::Gpu, "Paths between GPUs: type and GB/s", text);
  showMatrix(view, NodeKind::Gpu, NodeKind::Net, "Paths from GPUs to nets", text);
  if (!onHost) showGdr(view, settings, text);
  showNotes(view.notes, text);
  return text;
}

std::string showHost(const std::string& name, const topo::Build& build) {
  const System& system = build.system;
  std::string text = format("{}: no GPU that can be used; {} CPUs, {} PCI switches, {} nets\n", name, system.count(NodeKind::Cpu),
                            system.count(NodeKind::Pci), system.count(NodeKind::Net));
  showTrees(system, text);
  showNotes(build.notes, text);
  return text;
}

std::string showAffinity(const topo::System& system, const topo::Paths& paths, const topo::CpuSet& allowed, bool ignoreAllowed,
                         std::span<const topo::CpuSet> caches) {
  std::string text = format("\nThis process may use CPUs {}\n", aboutCpus(allowed));
  for (const NodeId cpu : system.all(NodeKind::Cpu)) {
    const auto cpus = topo::cpusOf(system.at(cpu));
    text += format("  of {}: {}\n", topo::nodeName(system, cpu), cpus ? aboutCpus(*cpus & allowed) : "not known");
    for (const topo::CpuSet& cache : caches)
      if (cpus && (cache & *cpus) == cache) text += format("    below one cache: {}\n", aboutCpus(cache & allowed));
  }
  for (const NodeId gpu : system.all(NodeKind::Gpu)) {
    const topo::CpuSet cpus = topo::cpusForGpu(system, paths, gpu, allowed, ignoreAllowed);
    text += format("  threads of {}: {}\n", topo::nodeName(system, gpu),
                   cpus.empty() ? "anywhere, as none near it is allowed" : aboutCpus(cpus));
  }
  return text;
}

}  // namespace tutti::tool
