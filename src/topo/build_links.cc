#include <algorithm>

#include "topo/bandwidth.h"
#include "topo/build_parts.h"

namespace tutti::topo {
namespace {

constexpr int64_t kMaxLinks = 1024;

class LinkWalk {
 public:
  LinkWalk(const Document& xml, std::span<const NodeId> parents, Build& build)
      : xml_(xml), parents_(parents), system_(build.system), notes_(build.notes) {}

  Status run() {
    for (const Pass pass : {Pass::GpuLinks, Pass::C2c, Pass::PciLinks}) {
      pass_ = pass;
      TUTTI_TRY(walk(xml_.root, 0));
    }
    return checkBothStateThem();
  }

 private:
  enum class Pass { GpuLinks, C2c, PciLinks };

  Status walk(const Element& element, uint64_t busId);
  Status enterHost(const Element& cpu);
  Status addGpuLink(const Element& link, uint64_t busId);
  Status addC2c(const Element& c2c, uint64_t busId);
  Status addPciLink(const Element& link, uint64_t busId);
  Status checkBothStateThem() const;
  Result<NodeId> nvlinkTarget(const Element& link, NodeId gpu);
  NodeId cpuAbove(NodeId node) const;
  uint64_t idOf(uint64_t local) const { return makeNodeId(host_, local); }

  const Document& xml_;
  std::span<const NodeId> parents_;
  System& system_;
  std::vector<std::string>& notes_;
  struct Stated {
    const Element* link;
    NodeId from;
    NodeId to;
  };
  std::vector<Stated> betweenGpus_;
  Pass pass_ = Pass::GpuLinks;
  int host_ = 0;
};

/// One walk over the tree for each kind of link; `busId` is that of the closest element above that has one.
Status LinkWalk::walk(const Element& element, uint64_t busId) {
  if (pass_ == Pass::GpuLinks && (element.name == "nvlink" || element.name == "xgmi")) return addGpuLink(element, busId);
  if (pass_ == Pass::C2c && element.name == "c2c") return addC2c(element, busId);
  if (pass_ == Pass::PciLinks && element.name == "pcilink") return addPciLink(element, busId);
  if (element.name == "cpu") TUTTI_TRY(enterHost(element));
  if (element.name == "gpu" && element.find("rank") == nullptr) return {};
  if (element.name == "pci") {
    const auto own = needBusId(xml_, element, "busid");
    if (!own) return own.error();
    busId = *own;
  }
  for (const Element& child : element.children) TUTTI_TRY(walk(child, busId));
  return {};
}

Status LinkWalk::enterHost(const Element& cpu) {
  const auto hash = findHex(xml_, cpu, "host_hash");
  if (!hash) return hash.error();
  const auto known = std::find(system_.hostHashes.begin(), system_.hostHashes.end(), hash->value_or(0));
  host_ = static_cast<int>(known - system_.hostHashes.begin());
  return {};
}

Status LinkWalk::addGpuLink(const Element& link, uint64_t busId) {
  const NodeId gpu = system_.find(NodeKind::Gpu, idOf(busId));
  if (gpu == kNoNode) return error(Code::InvalidUsage, "{}: expected it inside the <gpu> of a <pci>", placeOf(xml_, link));
  const auto count = needInteger(xml_, link, "count", 0, kMaxLinks);
  if (!count) return count.error();
  const auto target = nvlinkTarget(link, gpu);
  if (!target) return target.error();
  if (*target == kNoNode) return {};  // a GPU that no rank uses
  const GpuInfo& info = system_.at(gpu).gpu;
  const float one = link.name == "xgmi" ? xgmiGBps(info.gcn) : nvlinkGBps(info.sm);
  system_.connect(gpu, *target, LinkType::Nvl, static_cast<float>(*count) * one);
  // GPUs state their links themselves, each its own.
  if (system_.at(*target).kind != NodeKind::Gpu) system_.connect(*target, gpu, LinkType::Nvl, static_cast<float>(*count) * one);
  else betweenGpus_.push_back({&link, gpu, *target});
  return {};
}

Status LinkWalk::checkBothStateThem() const {
  for (const Stated& one : betweenGpus_) {
    if (system_.linkBetween(one.to, one.from, LinkType::Nvl) == kNoLink)
      return error(Code::InvalidUsage, "{}: {} states a link to {}, which states none back", placeOf(xml_, *one.link),
                   nodeName(system_, one.from), nodeName(system_, one.to));
  }
  return {};
}

Result<NodeId> LinkWalk::nvlinkTarget(const Element& link, NodeId gpu) {
  const std::string* pciClass = link.find("tclass");
  NodeKind kind = pciClass == nullptr ? NodeKind::NvSwitch : kindOfClass(*pciClass);
  if (pciClass == nullptr || pciClass->empty()) {
    // Hidden from a virtual machine: a switch, unless it is the address of a GPU.
    const auto busId = needBusId(xml_, link, "target");
    if (!busId) return tl::unexpected(busId.error());
    kind = system_.find(NodeKind::Gpu, idOf(*busId)) == kNoNode ? NodeKind::NvSwitch : NodeKind::Gpu;
    notes_.push_back(format("{}: tclass is missing: taken for {}", placeOf(xml_, link), kind == NodeKind::Gpu ? "a GPU" : "an NVSwitch"));
  }
  if (kind == NodeKind::Cpu) return cpuAbove(gpu);
  if (kind == NodeKind::Gpu) {
    const auto busId = needBusId(xml_, link, "target");
    if (!busId) return tl::unexpected(busId.error());
    return system_.find(NodeKind::Gpu, idOf(*busId));
  }
  if (kind != NodeKind::NvSwitch)
    notes_.push_back(format("{}: tclass=\"{}\" is no GPU's, CPU's or NVSwitch's: taken for an NVSwitch", placeOf(xml_, link), *pciClass));
  // All NVSwitches are one: which of them a link leads to makes no difference.
  const auto& switches = system_.all(NodeKind::NvSwitch);
  return switches.empty() ? system_.addNode(NodeKind::NvSwitch, 0) : switches[0];
}

Status LinkWalk::addC2c(const Element& c2c, uint64_t busId) {
  const NodeId gpu = system_.find(NodeKind::Gpu, idOf(busId));
  if (gpu == kNoNode) return error(Code::InvalidUsage, "{}: expected it inside the <gpu> of a <pci>", placeOf(xml_, c2c));
  const auto count = needInteger(xml_, c2c, "count", 0, kMaxLinks);
  if (!count) return count.error();
  const auto mbps = needInteger(xml_, c2c, "bw", 0, 10000000);
  if (!mbps) return mbps.error();
  const NodeId cpu = cpuAbove(gpu);
  if (cpu == kNoNode) return {};
  const auto GBps = static_cast<float>(static_cast<double>(*count * *mbps) / 1000.0);
  system_.connect(gpu, cpu, LinkType::C2c, GBps);
  system_.connect(cpu, gpu, LinkType::C2c, GBps);
  return {};
}

Status LinkWalk::addPciLink(const Element& link, uint64_t busId) {
  const auto target = needBusId(xml_, link, "target");
  if (!target) return target.error();
  const NodeId from = system_.find(NodeKind::Pci, idOf(busId));
  const NodeId to = system_.find(NodeKind::Pci, idOf(*target));
  if (from == kNoNode) return error(Code::InvalidUsage, "{}: expected it inside the <pci> of a switch", placeOf(xml_, link));
  if (to == kNoNode || to == from) return {};  // a switch that nobody uses
  system_.connect(from, to, LinkType::Loc, kLocalGBps);
  return {};
}

/// The CPU whose PCI tree holds the node.
NodeId LinkWalk::cpuAbove(NodeId node) const {
  while (node != kNoNode && system_.at(node).kind != NodeKind::Cpu) node = parents_[static_cast<size_t>(node.value)];
  return node;
}

}  // namespace

Status addLinks(const Document& xml, std::span<const NodeId> parents, Build& build) { return LinkWalk(xml, parents, build).run(); }

}  // namespace tutti::topo
