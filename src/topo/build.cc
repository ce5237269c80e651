#include "topo/build.h"

#include <algorithm>
#include <charconv>

#include "topo/affinity.h"
#include "topo/bandwidth.h"
#include "topo/build_parts.h"
#include "topo/host_devices.h"
#include "topo/merge.h"

namespace tutti::topo {
namespace {

constexpr int64_t kMaxNuma = 1 << 20;
constexpr int64_t kMaxIndex = 1 << 20;
constexpr size_t kMaxHosts = 256;
constexpr size_t kMaxNodes = 4096;  // all pairs have a path
constexpr int kMaxCpus = 256;       // of one host: each has a link to each other one
constexpr int kDefaultNetMbps = 10000;
constexpr int kDefaultNetChannels = 64;

std::string_view textOf(const Element& element, std::string_view attribute) {
  const std::string* text = element.find(attribute);
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

std::optional<std::vector<int>> memberDevs(std::string_view text) {
  std::vector<int> devs;
  while (true) {
    int dev = -1;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), dev);
    if (problem != std::errc() || dev < 0) return std::nullopt;
    devs.push_back(dev);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return devs;
    if (text.front() != ',' || devs.size() == kMostMerged) return std::nullopt;
    text.remove_prefix(1);
  }
}

class Builder {
 public:
  explicit Builder(const Document& xml) : xml_(xml) {}

  Status run(uint64_t localHostHash);
  Build take() { return std::move(build_); }

 private:
  Status checkRoot();
  Status addCpu(const Element& cpu);
  Status fillCpu(const Element& cpu, CpuInfo& info);
  Status addHostDevice(const Element& device, NodeId cpu);
  Status addPci(const Element& pci, NodeId parent);
  Result<NodeId> addGpu(const Element& gpu, uint64_t busId);
  Status addSwitch(const Element& pci, uint64_t busId, NodeId& made);
  Status addNic(const Element& nic, NodeId node, uint64_t busId);
  Status addNet(const Element& net, NodeId nic, uint64_t busId);
  Status linkToParent(const Element& pci, NodeId node, NodeId parent);
  Status chooseHost(const Element& cpu);
  Status checkRoom(const Element& element) const;
  uint64_t idOf(uint64_t local) const { return makeNodeId(host_, local); }

  template <class... Args>
  void note(const Element& element, fmt::format_string<Args...> text, Args&&... args) {
    build_.notes.push_back(placeOf(xml_, element) + ": " + formatArgs(text, fmt::make_format_args(args...)));
  }

  const Document& xml_;
  Build build_;
  System& system_ = build_.system;
  std::vector<NodeId> parent_;  // by node: what it hangs below in its PCI tree
  std::vector<int> cpusOfHost_;
  int host_ = 0;
};

Status Builder::run(uint64_t localHostHash) {
  TUTTI_TRY(checkRoot());
  for (const Element& child : xml_.root.children) {
    if (child.name == "cpu") {
      TUTTI_TRY(addCpu(child));
    } else {
      note(child, "unknown element below <system>, left out");
    }
  }
  const auto own = std::find(system_.hostHashes.begin(), system_.hostHashes.end(), localHostHash);
  if (own == system_.hostHashes.end() && !system_.hostHashes.empty()) {
    return error(Code::InvalidArgument, "{}: no <cpu> has host_hash=\"{:#x}\", the own host's", xml_.file, localHostHash);
  }
  system_.systemId = static_cast<int>(own - system_.hostHashes.begin());
  parent_.resize(system_.nodes.size(), kNoNode);
  TUTTI_TRY(addLinks(xml_, parent_, build_));
  flattenSwitches(system_);
  connectCpus(system_);
  sortLinks(system_);
  system_.ranks = system_.count(NodeKind::Gpu);
  return {};
}

Status Builder::checkRoot() {
  if (xml_.root.name != "system") {
    return error(Code::InvalidUsage, "{}: expected <system version=\"1\"> as root element", placeOf(xml_, xml_.root));
  }
  const auto version = needInteger(xml_, xml_.root, "version", 1, 2);  // 2 is RCCL's dialect
  return version ? Status() : version.error();
}

Status Builder::chooseHost(const Element& cpu) {
  const auto hash = findHex(xml_, cpu, "host_hash");
  if (!hash) return hash.error();
  const auto known = std::find(system_.hostHashes.begin(), system_.hostHashes.end(), hash->value_or(0));
  host_ = static_cast<int>(known - system_.hostHashes.begin());
  if (known != system_.hostHashes.end()) return {};
  if (system_.hostHashes.size() == kMaxHosts) return error(Code::InvalidUsage, "{}: more than {} hosts", placeOf(xml_, cpu), kMaxHosts);
  system_.hostHashes.push_back(hash->value_or(0));
  cpusOfHost_.push_back(0);
  return {};
}

/// Before a node is added for an element.
Status Builder::checkRoom(const Element& element) const {
  if (system_.nodes.size() < kMaxNodes) return {};
  return error(Code::InvalidUsage, "{}: more than {} CPUs, switches, GPUs and NICs in all", placeOf(xml_, element), kMaxNodes);
}

Status Builder::addCpu(const Element& cpu) {
  const auto numa = needInteger(xml_, cpu, "numaid", -1, kMaxNuma);
  if (!numa) return numa.error();
  TUTTI_TRY(chooseHost(cpu));
  const uint64_t id = idOf(static_cast<uint64_t>(*numa));
  if (system_.find(NodeKind::Cpu, id) != kNoNode) {
    return badAttribute(xml_, cpu, "numaid", cpu.find("numaid"), "a number that no other <cpu> of the host has");
  }
  if (++cpusOfHost_[static_cast<size_t>(host_)] > kMaxCpus) {
    return error(Code::InvalidUsage, "{}: more than {} CPUs in a host", placeOf(xml_, cpu), kMaxCpus);
  }
  TUTTI_TRY(checkRoom(cpu));
  const NodeId node = system_.addNode(NodeKind::Cpu, id);
  TUTTI_TRY(fillCpu(cpu, system_.at(node).cpu));
  for (const Element& child : cpu.children) {
    if (child.name == "pci") {
      TUTTI_TRY(addPci(child, node));
    } else if (child.name == "nic") {
      // NICs without a PCI address: one for the whole host, at the first CPU that lists any.
      NodeId nic = system_.find(NodeKind::Nic, idOf(0));
      if (nic == kNoNode) {
        nic = system_.addNode(NodeKind::Nic, idOf(0));
        system_.connect(node, nic, LinkType::Pci, kLocalGBps);
        system_.connect(nic, node, LinkType::Pci, kLocalGBps);
      }
      TUTTI_TRY(addNic(child, nic, 0));
    } else if (child.name == "hostdev") {
      TUTTI_TRY(addHostDevice(child, node));
    } else {
      note(child, "unknown element below <cpu>, left out");
    }
  }
  return {};
}

Status Builder::fillCpu(const Element& cpu, CpuInfo& info) {
  info.affinity = textOf(cpu, "affinity");
  if (!info.affinity.empty() && !CpuSet::fromMask(info.affinity))
    return badAttribute(xml_, cpu, "affinity", cpu.find("affinity"), "a mask of CPUs in hexadecimal, such as \"ffffffff,0000ffff\"");
  const auto memory = findInteger(xml_, cpu, "memory", 0, int64_t{1} << 40);
  if (!memory) return memory.error();
  info.memoryMiB = memory->value_or(0);
  const auto distances = parseDistances(textOf(cpu, "distances"));
  if (!distances)
    return badAttribute(xml_, cpu, "distances", cpu.find("distances"), "distances to NUMA nodes from 10 to 255, such as \"0:10,1:21\"");
  info.distances = *distances;
  const std::string_view arch = textOf(cpu, "arch");
  if (arch == "x86_64") info.arch = CpuArch::X86;
  if (arch == "arm64") info.arch = CpuArch::Arm;
  if (arch == "ppc64") info.arch = CpuArch::Power;
  if (info.arch == CpuArch::Undefined) note(cpu, "arch=\"{}\" is not x86_64, arm64 or ppc64: bandwidth between CPUs is unknown", arch);
  if (info.arch != CpuArch::X86) return {};
  const std::string_view vendor = textOf(cpu, "vendor");
  if (vendor == "GenuineIntel") info.vendor = CpuVendor::Intel;
  if (vendor == "AuthenticAMD") info.vendor = CpuVendor::Amd;
  if (vendor == "CentaurHauls" || vendor == "  Shanghai  ") info.vendor = CpuVendor::Zhaoxin;
  if (info.vendor == CpuVendor::Undefined) note(cpu, "vendor=\"{}\" is not known: bandwidth between CPUs is unknown", vendor);
  const auto family = findInteger(xml_, cpu, "familyid", 0, INT32_MAX);
  const auto model = findInteger(xml_, cpu, "modelid", 0, INT32_MAX);
  if (!family) return family.error();
  if (!model) return model.error();
  if (info.vendor == CpuVendor::Intel && !(family->has_value() && model->has_value())) note(cpu, "familyid or modelid is missing");
  info.model = cpuModel(info.vendor, static_cast<int>(family->value_or(0)), static_cast<int>(model->value_or(0)));
  return {};
}

Status Builder::addHostDevice(const Element& device, NodeId cpu) {
  TUTTI_TRY(checkRoom(device));
  const auto dev = needInteger(xml_, device, "dev", 0, kMaxIndex);
  if (!dev) return dev.error();
  const auto rank = needInteger(xml_, device, "rank", 0, INT32_MAX);
  if (!rank) return rank.error();
  const std::string* cpus = device.find("cpus");
  if (cpus != nullptr && !CpuSet::fromList(*cpus)) return badAttribute(xml_, device, "cpus", cpus, "a list of CPUs such as \"0-3,8\"");
  const uint64_t id = idOf(static_cast<uint64_t>(*dev));
  if (system_.find(NodeKind::Host, id) != kNoNode)
    return badAttribute(xml_, device, "dev", device.find("dev"), "a number that no other <hostdev> of the host has");
  for (const NodeId other : system_.all(NodeKind::Host)) {
    if (system_.at(other).host.rank == *rank)
      return badAttribute(xml_, device, "rank", device.find("rank"), "a rank that no other <hostdev> has");
  }
  const NodeId node = system_.addNode(NodeKind::Host, id);
  system_.at(node).host = {.dev = static_cast<int>(*dev), .rank = static_cast<int>(*rank), .cpus = std::string(textOf(device, "cpus"))};
  system_.connect(node, cpu, LinkType::Loc, kHostDeviceGBps);
  system_.connect(cpu, node, LinkType::Loc, kHostDeviceGBps);
  return {};
}

Status Builder::addPci(const Element& pci, NodeId parent) {
  TUTTI_TRY(checkRoom(pci));
  const auto busId = needBusId(xml_, pci, "busid");
  if (!busId) return busId.error();
  const Element* gpu = pci.child("gpu");
  const Element* nic = pci.child("nic");
  const bool isSwitch = pci.child("pci") != nullptr;
  const NodeKind kind = kindOfClass(textOf(pci, "class"));

  if (gpu != nullptr && gpu->find("rank") != nullptr) {
    const auto node = addGpu(*gpu, *busId);
    if (!node) return node.error();
    TUTTI_TRY(linkToParent(pci, *node, parent));
  } else if (gpu != nullptr) {
    note(*gpu, "no rank uses this GPU, left out");
  }
  NodeId above = parent;
  if (isSwitch || (gpu == nullptr && nic == nullptr && kind == NodeKind::Pci)) TUTTI_TRY(addSwitch(pci, *busId, above));
  if (nic != nullptr) {
    if (isSwitch) note(pci, "is a switch and a NIC at once; the NIC is taken to be behind the switch");
    NodeId node = system_.find(NodeKind::Nic, idOf(*busId));
    const bool isNew = node == kNoNode;  // ports of one NIC may be listed apart
    if (isNew) node = system_.addNode(NodeKind::Nic, idOf(*busId));
    if (!isNew) note(pci, "the same NIC stands elsewhere, too: its nets are one NIC's, and hang where it stands first");
    TUTTI_TRY(addNic(*nic, node, *busId));
    if (isNew) TUTTI_TRY(linkToParent(pci, node, above));
  }
  if (above != parent) return linkToParent(pci, above, parent);
  if (gpu == nullptr && nic == nullptr && kind == NodeKind::Gpu)
    note(pci, "is a GPU by its class, but has no <gpu>: dev, sm and links are unknown");
  if (gpu == nullptr && nic == nullptr && kind == NodeKind::Nic) note(pci, "is a NIC by its class, but has no <nic>: its nets are unknown");
  return {};
}

Result<NodeId> Builder::addGpu(const Element& gpu, uint64_t busId) {
  if (system_.find(NodeKind::Gpu, idOf(busId)) != kNoNode) {
    return fail(Code::InvalidUsage, "{}: another GPU of the host has the same busid", placeOf(xml_, gpu));
  }
  const auto sm = findInteger(xml_, gpu, "sm", 0, 10000);
  const auto rank = needInteger(xml_, gpu, "rank", 0, INT32_MAX);
  const auto dev = findInteger(xml_, gpu, "dev", 0, kMaxIndex);
  const auto gdr = findInteger(xml_, gpu, "gdr", 0, 1);
  for (const auto* value : {&sm, &dev, &gdr}) {
    if (!*value) return tl::unexpected(value->error());
  }
  if (!rank) return tl::unexpected(rank.error());
  if (system_.gpuOfRank(static_cast<int>(*rank)) != kNoNode) {
    return tl::unexpected(badAttribute(xml_, gpu, "rank", gpu.find("rank"), "a rank that no other GPU has"));
  }
  if (!sm->has_value()) note(gpu, "sm is missing: the speed of its links is a guess");
  if (!dev->has_value()) note(gpu, "dev is missing");
  if (!gdr->has_value()) note(gpu, "gdr is missing: taken for 0, no GPUDirect RDMA");
  const NodeId node = system_.addNode(NodeKind::Gpu, idOf(busId));
  system_.at(node).gpu = {.dev = static_cast<int>(dev->value_or(-1)),
                          .rank = static_cast<int>(*rank),
                          .sm = static_cast<int>(sm->value_or(0)),
                          .gdr = gdr->value_or(0) != 0,
                          .gcn = std::string(textOf(gpu, "gcn"))};
  return node;
}

Status Builder::addSwitch(const Element& pci, uint64_t busId, NodeId& made) {
  if (system_.find(NodeKind::Pci, idOf(busId)) != kNoNode) note(pci, "another switch of the host has the same busid");
  made = system_.addNode(NodeKind::Pci, idOf(busId));
  uint64_t device = 0;
  for (const std::string_view part : {"vendor", "device", "subsystem_vendor", "subsystem_device"}) {
    const auto value = findInteger(xml_, pci, part, 0, 0xffff);
    if (!value) return value.error();
    device = device << 16 | static_cast<uint64_t>(value->value_or(0));
  }
  system_.at(made).pciDevice = device;
  for (const Element& child : pci.children) {
    if (child.name == "pci") {
      TUTTI_TRY(addPci(child, made));
    } else if (child.name != "pcilink" && child.name != "nic" && child.name != "gpu") {
      note(child, "unknown element below <pci>, left out");
    }
  }
  return {};
}

Status Builder::linkToParent(const Element& pci, NodeId node, NodeId parent) {
  const auto stated = findInteger(xml_, pci, "link_width", 0, 255);
  if (!stated) return stated.error();
  int width = static_cast<int>(stated->value_or(0));
  if (width > 64) {
    note(pci, "link_width=\"{}\" is no width that there is: taken for unknown", width);
    width = 0;
  }
  const std::string_view speed = textOf(pci, "link_speed");
  const auto GBps = pciGBps(speed, width);
  if (!GBps) return badAttribute(xml_, pci, "link_speed", pci.find("link_speed"), "a speed such as \"32.0 GT/s PCIe\", or nothing");
  if (speed.empty()) note(pci, "link_speed is missing: taken for 8 GT/s");
  parent_.resize(system_.nodes.size(), kNoNode);
  parent_[static_cast<size_t>(node.value)] = parent;
  system_.connect(node, parent, LinkType::Pci, *GBps);
  system_.connect(parent, node, LinkType::Pci, *GBps);
  return {};
}

Status Builder::addNic(const Element& nic, NodeId node, uint64_t busId) {
  for (const Element& child : nic.children) {
    if (child.name != "net") {
      note(child, "unknown element below <nic>, left out");
    } else {
      TUTTI_TRY(addNet(child, node, busId));
    }
  }
  return {};
}

Status Builder::addNet(const Element& net, NodeId nic, uint64_t busId) {
  const auto given = findInteger(xml_, net, "dev", -1, kMaxIndex);
  if (!given) return given.error();
  const int64_t dev = given->value_or(-1);
  if (dev < 0) {
    note(net, "dev is missing, left out");
    return {};
  }
  TUTTI_TRY(checkRoom(net));
  const auto guid = findHex(xml_, net, "guid");
  if (!guid) return guid.error();
  const auto latency = findNumber(xml_, net, "latency", 0, 1e9);
  if (!latency) return latency.error();
  const auto speed = findInteger(xml_, net, "speed", -1, INT32_MAX);  // −1 and 0: not known
  const auto port = findInteger(xml_, net, "port", INT32_MIN, INT32_MAX);
  const auto gdr = findInteger(xml_, net, "gdr", 0, 1);
  const auto coll = findInteger(xml_, net, "coll", 0, 1);
  const auto channels = findInteger(xml_, net, "maxconn", 0, INT32_MAX);
  for (const auto* value : {&speed, &port, &gdr, &coll, &channels}) {
    if (!*value) return value->error();
  }
  int64_t mbps = speed->value_or(0);
  if (mbps <= 0) {
    note(net, "speed is {}: taken for {} Mbit/s", speed->has_value() ? "not known" : "missing", kDefaultNetMbps);
    mbps = kDefaultNetMbps;
  }
  const uint64_t id = idOf(static_cast<uint64_t>(dev));
  if (system_.find(NodeKind::Net, id) != kNoNode) note(net, "another net of the host has the same dev: paths lead to the first alone");
  const std::string* devs = net.find("devs");
  const auto members = devs == nullptr ? std::optional(std::vector<int>()) : memberDevs(*devs);
  if (!members) return badAttribute(xml_, net, "devs", devs, "the numbers of nets that it is made of, such as \"0,1\"");
  const NodeId node = system_.addNode(NodeKind::Net, id);
  system_.at(node).net = {.dev = static_cast<int>(dev),
                          .port = static_cast<int>(port->value_or(0)),
                          .guid = guid->value_or(id),
                          .busId = busId,
                          .GBps = static_cast<float>(static_cast<double>(mbps) / 8000.0),
                          .latencyUs = static_cast<float>(latency->value_or(0)),
                          .maxChannels = static_cast<int>(channels->value_or(kDefaultNetChannels)),
                          .gdr = gdr->value_or(0) != 0,
                          .coll = coll->value_or(0) != 0,
                          .members = *members,
                          .localGpu = kNoNode};
  const float GBps = system_.at(node).net.GBps;
  system_.connect(nic, node, LinkType::Net, GBps);
  system_.connect(node, nic, LinkType::Net, GBps);
  return {};
}

}  // namespace

Result<Build> buildSystem(const Document& xml, uint64_t localHostHash) {
  Builder builder(xml);
  if (Status status = builder.run(localHostHash); !status.ok()) return tl::unexpected(std::move(status));
  return builder.take();
}

}  // namespace tutti::topo
