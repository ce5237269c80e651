#include "topo/detect/detect.h"

#include <algorithm>

namespace tutti::topo::detect {
namespace {

constexpr std::string_view kSwitchClass = "0x068000";

void setIfAbsent(Element& element, std::string_view name, std::string value) {
  if (element.find(name) == nullptr) element.set(name, std::move(value));
}

Element& childOf(Element& element, std::string_view name) {
  for (Element& child : element.children) {
    if (child.name == name) return child;
  }
  Element& made = element.children.emplace_back();
  made.name = name;
  return made;
}

/// Anywhere in the tree; null when there is none. Valid until the tree gets another element.
Element* find(Element& element, std::string_view name, std::string_view attribute, std::string_view value) {
  if (const std::string* own = element.find(attribute); element.name == name && own != nullptr && *own == value) return &element;
  for (Element& child : element.children) {
    if (Element* found = find(child, name, attribute, value); found != nullptr) return found;
  }
  return nullptr;
}

void ensureCpu(Document& machine, const Sysfs& sysfs, int numa) {
  Element* cpu = find(machine.root, "cpu", "numaid", format("{}", numa));
  if (cpu == nullptr) {
    cpu = &machine.root.children.emplace_back();
    cpu->name = "cpu";
    cpu->set("numaid", format("{}", numa));
  }
  if (auto affinity = sysfs.affinity(numa)) setIfAbsent(*cpu, "affinity", *std::move(affinity));
  if (auto distances = sysfs.distances(numa)) setIfAbsent(*cpu, "distances", *std::move(distances));
  const CpuFacts facts = sysfs.cpu();
  if (!facts.arch.empty()) setIfAbsent(*cpu, "arch", facts.arch);
  if (facts.vendor.empty()) return;
  setIfAbsent(*cpu, "vendor", facts.vendor);
  if (cpu->find("familyid") != nullptr) return;
  cpu->set("familyid", format("{}", facts.family));
  setIfAbsent(*cpu, "modelid", format("{}", facts.model));
}

void describePci(Element& pci, const Sysfs& sysfs, std::string_view busId) {
  for (const std::string_view name : {"class", "vendor", "device", "subsystem_vendor", "subsystem_device"}) {
    if (auto value = sysfs.read(busId, name)) setIfAbsent(pci, name, *std::move(value));
  }
  const bool isKnown = sysfs.above(busId).has_value();
  setIfAbsent(pci, "link_speed", isKnown ? sysfs.linkSpeed(busId) : "");
  setIfAbsent(pci, "link_width", isKnown ? format("{}", sysfs.linkWidth(busId)) : "");
}

/// The element of a PCI device, and those of the bridges above it.
void ensurePci(Document& machine, const Sysfs& sysfs, const std::string& busId) {
  if (Element* known = find(machine.root, "pci", "busid", busId); known != nullptr) return describePci(*known, sysfs, busId);
  const Above above = sysfs.above(busId).value_or(Above{});
  if (above.busId.empty()) {
    ensureCpu(machine, sysfs, above.numa);
  } else {
    ensurePci(machine, sysfs, above.busId);
  }
  Element* parent = above.busId.empty() ? find(machine.root, "cpu", "numaid", format("{}", above.numa))
                                        : find(machine.root, "pci", "busid", above.busId);
  const auto place = std::find_if(parent->children.begin(), parent->children.end(), [&](const Element& sibling) {
    const std::string* other = sibling.find("busid");
    return other != nullptr && busId < *other;
  });
  Element pci;
  pci.name = "pci";
  pci.set("busid", busId);
  describePci(pci, sysfs, busId);
  parent->children.insert(place, std::move(pci));
}

void addNvLinks(Element& element, const Sysfs& sysfs, const GpuFacts& gpu) {
  if (element.child("nvlink") == nullptr) {
    for (const GpuFacts::Link& link : gpu.nvlinks) {
      Element& made = element.children.emplace_back();
      made.name = "nvlink";
      made.set("target", link.target);
      made.set("count", format("{}", link.count));
      if (!sysfs.read(link.target, "class") && !link.pciClass.empty()) made.set("tclass", link.pciClass);
    }
  }
  for (Element& child : element.children) {
    const std::string* target = child.find("target");
    if (child.name != "nvlink" || target == nullptr || child.find("tclass") != nullptr) continue;
    // Where nobody knows the other side, as in a virtual machine, it is a switch.
    child.set("tclass", sysfs.read(*target, "class").value_or(std::string(kSwitchClass)));
  }
}

}  // namespace

Document emptyMachine() {
  Document machine{.file = "this machine", .root = {}};
  machine.root.name = "system";
  machine.root.set("version", "1");
  return machine;
}

Status addGpu(Document& machine, const Sysfs& sysfs, const GpuFacts& gpu) {
  if (!isBusId(gpu.busId))
    return error(Code::InvalidArgument, "GPU {} has the PCI address \"{}\"; expected one such as 0000:1b:00.0", gpu.dev, gpu.busId);
  ensurePci(machine, sysfs, gpu.busId);
  Element& pci = *find(machine.root, "pci", "busid", gpu.busId);
  setIfAbsent(pci, "class", "0x03");
  Element& element = childOf(pci, "gpu");
  setIfAbsent(element, "dev", format("{}", gpu.dev));
  setIfAbsent(element, "sm", format("{}", gpu.sm));
  setIfAbsent(element, "gdr", gpu.gdr ? "1" : "0");
  addNvLinks(element, sysfs, gpu);
  if (gpu.c2cLinks > 0 && element.child("c2c") == nullptr) {
    Element& c2c = childOf(element, "c2c");
    c2c.set("bw", format("{}", gpu.c2cMBps));
    c2c.set("count", format("{}", gpu.c2cLinks));
  }
  return {};
}

void addCpus(Document& machine, const Sysfs& sysfs) {
  for (const int numa : sysfs.numaNodes()) ensureCpu(machine, sysfs, numa);
  if (machine.root.child("cpu") == nullptr) ensureCpu(machine, sysfs, 0);
}

void addMemory(Document& machine, const Sysfs& sysfs) {
  for (Element& cpu : machine.root.children) {
    const auto numa = cpu.name == "cpu" ? findInteger(machine, cpu, "numaid", 0, INT32_MAX) : Result<std::optional<int64_t>>(std::nullopt);
    const int64_t number = numa ? numa->value_or(-1) : -1;
    if (number < 0) continue;
    if (const auto memory = sysfs.memoryMiB(static_cast<int>(number))) setIfAbsent(cpu, "memory", format("{}", *memory));
  }
}

Status addNet(Document& machine, const Sysfs& sysfs, const NetFacts& net) {
  Element* element = find(machine.root, "net", "name", net.name);
  if (element == nullptr) {
    const auto busId = net.pciPath.empty() ? std::nullopt : sysfs.busIdOfPath(net.pciPath);
    Element* parent = nullptr;
    if (busId) {
      ensurePci(machine, sysfs, *busId);
      parent = find(machine.root, "pci", "busid", *busId);
      setIfAbsent(*parent, "class", "0x02");
    } else {
      const auto cpu =
          std::find_if(machine.root.children.begin(), machine.root.children.end(), [](const Element& e) { return e.name == "cpu"; });
      if (cpu == machine.root.children.end()) {
        return error(Code::InvalidUsage, "net {} is no PCI device, and there is no CPU in the topology to put it at", net.name);
      }
      parent = &*cpu;
    }
    element = &childOf(*parent, "nic").children.emplace_back();
    element->name = "net";
    element->set("name", net.name);
  }
  element->set("dev", format("{}", net.dev));  // the plugin's count, whatever a file says
  setIfAbsent(*element, "latency", format("{:g}", net.latencyUs));
  setIfAbsent(*element, "speed", format("{}", std::max(net.speedMbps, -1)));
  setIfAbsent(*element, "port", format("{}", net.port));
  setIfAbsent(*element, "guid", format("{:#x}", net.guid));
  setIfAbsent(*element, "maxconn", format("{}", net.maxConnections));
  setIfAbsent(*element, "gdr", net.gdr ? "1" : "0");
  return {};
}

}  // namespace tutti::topo::detect
