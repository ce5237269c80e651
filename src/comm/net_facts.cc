#include "comm/net_facts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "comm/networks.h"
#include "core/format.h"
#include "topo/assemble.h"
#include "topo/detect/machine.h"
#include "topo/detect/sysfs.h"

namespace tutti::comm {

using topo::detect::NetFacts;
using transport::net::MemoryKind;
using transport::net::Properties;

namespace {

bool reachesGpus(const Properties& net) {
  return (net.memoryKinds & (static_cast<int32_t>(MemoryKind::Cuda) | static_cast<int32_t>(MemoryKind::DmaBuf))) != 0;
}

}  // namespace

Result<std::vector<NetFacts>> netsOf(const transport::net::Network& network) {
  std::vector<NetFacts> nets;
  for (int32_t device = 0; device < network.devices(); ++device) {
    const auto net = network.properties(device);
    if (!net) return tl::unexpected(net.error());
    nets.push_back({.name = net->name,
                    .pciPath = net->pciPath,
                    .dev = device,
                    .speedMbps = static_cast<int>(std::min<int64_t>(net->speedMbps, std::numeric_limits<int>::max())),
                    .port = net->port,
                    .latencyUs = net->latencyUs,
                    .guid = net->guid,
                    .maxConnections = net->maxComms,
                    .gdr = reachesGpus(*net)});
  }
  return nets;
}

Result<std::vector<NetFacts>> findNets(std::vector<std::string>& notes) {
  const auto network = openNetwork("");
  if (network) return netsOf(**network);
  notes.push_back(format("no nets: {}", network.error().text()));
  return std::vector<NetFacts>();
}

namespace {

/// Nets that are none of `nets` are left out, and so is what a file says of a net that it names twice; GUIDs are numbered as they come.
void keepNets(topo::Element& element, std::span<const NetFacts> nets, std::set<std::string>& met, std::map<std::string, size_t>& guids) {
  std::erase_if(element.children, [&](const topo::Element& child) {
    const std::string* const name = child.name == "net" ? child.find("name") : nullptr;
    if (child.name != "net") return false;
    const bool isOne = name != nullptr && std::any_of(nets.begin(), nets.end(), [&](const NetFacts& net) { return net.name == *name; });
    return !isOne || !met.insert(*name).second;
  });
  for (topo::Element& child : element.children) {
    const std::string* const guid = child.name == "net" ? child.find("guid") : nullptr;
    if (guid != nullptr) child.set("guid", format("{:#x}", guids.try_emplace(*guid, guids.size() + 1).first->second));
    keepNets(child, nets, met, guids);
  }
}

}  // namespace

Result<topo::Document> withNetsOf(const machine::Machine& machine, const transport::net::Network& network) {
  auto nets = netsOf(network);
  if (!nets) return tl::unexpected(std::move(nets).error());
  topo::Document whole = machine.document;
  Status status = complete(whole, topo::detect::Sysfs(machine.files), {.gpus = machine.gpus, .nets = *nets, .allowed = {}});
  if (!status.ok()) return tl::unexpected(std::move(status));
  std::set<std::string> met;
  std::map<std::string, size_t> guids;
  keepNets(whole.root, *nets, met, guids);
  return whole;
}

namespace {

Result<topo::Document> withNets(const machine::Machine& machine) {
  std::vector<std::string> notes;
  auto nets = findNets(notes);
  if (!nets) return tl::unexpected(std::move(nets).error());
  topo::Document whole = machine.document;
  const topo::detect::Sysfs sysfs(machine.files);
  Status status = complete(whole, sysfs, {.gpus = machine.gpus, .nets = *std::move(nets), .allowed = {}});
  if (!status.ok()) return tl::unexpected(std::move(status));
  addMemory(whole, sysfs);
  return whole;
}

}  // namespace

Status writeTopology(const std::string& path, const machine::Machine& machine, const std::vector<int>& devs) {
  const auto whole = withNets(machine);
  if (!whole) return whole.error();
  if (devs.empty()) return topo::writeXmlFile(path, whole->root);
  topo::UsedHost host{.hostHash = machine.hash, .gpus = {}};
  for (size_t rank = 0; rank < devs.size(); ++rank) host.gpus.push_back({.dev = devs[rank], .rank = static_cast<int>(rank)});
  const auto used = topo::arrange(*whole, std::span(&host, 1));
  return used ? topo::writeXmlFile(path, used->root) : used.error();
}

Status writeHostTopology(const std::string& path, const machine::Machine& machine, const std::vector<topo::HostDevice>& devices) {
  auto whole = withNets(machine);
  if (!whole) return std::move(whole).error();
  TUTTI_TRY(topo::addHostDevices(*whole, devices));
  return topo::writeXmlFile(path, whole->root);
}

}  // namespace tutti::comm
