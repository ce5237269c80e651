#include "comm/layouts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "comm/meeting.h"
#include "comm/net_facts.h"
#include "comm/settings.h"
#include "config/params.h"
#include "core/thread.h"
#include "driver/nvml/real.h"
#include "machine/host_layout.h"
#include "machine/hosts_layout.h"
#include "machine/place.h"
#include "machine/show.h"
#include "observe/log.h"
#include "topo/assemble.h"
#include "topo/detect/machine.h"
#include "topo/graph_xml.h"
#include "topo/host_devices.h"

namespace tutti::comm {

using config::Param;
using machine::Machine;
using observe::Subsys;
using topo::CpuSet;

namespace {

std::vector<int> devsOf(std::span<const Arrival> members) {
  std::vector<int> devs;
  for (const Arrival& member : members) devs.push_back(member.gpu);
  return devs;
}

std::vector<connect::RankPlace> placesOf(const transport::local::Hub& hub, std::span<const Arrival> members) {
  std::vector<connect::RankPlace> places;
  for (int32_t r = 0; r < hub.ranks(); ++r) {
    connect::RankPlace& place = places.emplace_back();
    if (hub.spansHosts()) place.host = hub.remote()->hostOf(Rank(r));
    if (members.empty()) continue;
    place.numa = members[static_cast<size_t>(r)].numa;
    place.cache = members[static_cast<size_t>(r)].cache;
  }
  return places;
}

/// How the ring passes the NUMA nodes of a host: by their distances where all ranks see the same machine, and so come to the same order.
/// Their hashes are compared with each other: with NCCL_GRAPH_FILE they hold more than the machine's.
connect::NumaOrder numaOrderOf(std::span<const Arrival> members, const std::shared_ptr<const Result<Machine>>& machine) {
  const bool isKnown = !members.empty() && *machine && std::all_of(members.begin(), members.end(), [&](const Arrival& member) {
    return member.machine != 0 && member.machine == members.front().machine;
  });
  if (!isKnown) return {};
  return [machine](int32_t, std::span<const int32_t> nodes) { return topo::orderNumaNodes((*machine)->document, nodes); };
}

/// The ranks on this host whose NUMA node is known.
std::vector<topo::HostDevice> hostDevicesOf(const Outcome& outcome) {
  const std::vector<connect::RankPlace> places = placesOf(*outcome.hub, outcome.membersOrNone());
  std::vector<topo::HostDevice> devices;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].host == places[static_cast<size_t>(outcome.place.rank.value)].host && places[rank].numa >= 0)
      devices.push_back({.rank = static_cast<int>(rank), .numa = places[rank].numa, .cpus = {}});
  }
  return devices;
}

/// Why the ranks' GPUs cannot be placed on one machine; empty: they can. The same text on all ranks.
std::string whyNot(std::span<const Arrival> members) {
  for (size_t r = 0; r < members.size(); ++r) {
    if (members[r].machine == 0) return format("rank {} could not find out what its machine is like", r);
    if (members[r].gpu < 0) return format("the GPU of rank {} is not in the machine's topology", r);
    if (members[r].machine != members[0].machine)
      return format("ranks 0 and {} see different machines (as in containers), or have other settings or files for topologies", r);
  }
  return {};
}

bool sharesGpus(std::vector<int> devs) {
  std::sort(devs.begin(), devs.end());
  return std::adjacent_find(devs.begin(), devs.end()) != devs.end();
}

/// Those of `near` that the process may use.
CpuSet allowedOf(const CpuSet& near) {
  if (near.empty() || config::get<Param::IgnoreCpuAffinity>()) return near;
  const auto allowed = topo::detect::thisProcessMayUse();
  return allowed ? near & *allowed : CpuSet();
}

/// NCCL_GRAPH_FILE for ranks on host devices; of parts that are split off: no reason to warn.
std::string notOfTheirNumber(int32_t ranks) {
  return format("NCCL_GRAPH_FILE={} does not hold for {} ranks: its channels are not of as many GPUs as every host has ranks",
                config::get<Param::GraphFile>(), ranks);
}

void tellLayout(const connect::Layout& layout, Rank rank, const machine::GpuLayout* found) {
  constexpr Subsys kParts = Subsys::Init | Subsys::Graph;
  if (!observe::enabled(observe::Level::Info, kParts)) return;
  if (rank == Rank(0)) {
    if (found != nullptr)
      for (const std::string& line : machine::describe(*found)) observe::info(kParts, "{}", line);
    for (const std::string& line : machine::describeRings(layout)) observe::info(kParts, "{}", line);
  }
  observe::info(kParts, "{}", machine::describeTrees(layout, rank));
}

}  // namespace

std::shared_ptr<const Result<Machine>> Layouts::machineOf(bool withGpus) {
  const std::string topoFile = config::get<Param::TopoFile>();
  const std::lock_guard lock(mutex_);
  Known& known = known_[withGpus ? 1 : 0];
  const uint64_t generation = withGpus ? devices_.generation() : 0;
  if (known.machine != nullptr && known.topoFile == topoFile && known.generation == generation) return known.machine;
  const machine::Sources sources{.cuda = withGpus ? devices_.openedDriver() : nullptr,
                                 .openNvml = [] { return driver::nvml::openNvml(); },
                                 .files = std::make_shared<topo::detect::RootFiles>(),
                                 .topoFile = topoFile};
  auto found = std::make_shared<const Result<Machine>>(machine::survey(sources));
  if (*found) {
    for (const std::string& note : (*found)->notes) observe::info(Subsys::Init | Subsys::Graph, "topology: {}", note);
  } else if (topoFile.empty()) {
    observe::warn("the machine's topology cannot be found out, and rings follow the order of ranks: {}", found->error().text());
  }
  known = {topoFile, generation, found};
  return found;
}

void Layouts::begin() {
  const std::lock_guard lock(aheadMutex_);
  if (begunFor_ == devices_.generation()) return;
  begunFor_ = devices_.generation();
  if (ahead_.joinable()) ahead_.join();
  const char* const name = config::get<config::Param::SetThreadName>() ? "tutti topology" : nullptr;
  auto started = startThread(name, "that looks at the machine", [this] { (void)machineOf(true); });
  if (started) ahead_ = std::move(*started);  // else describe() does it
}

void Layouts::await() {
  const std::lock_guard lock(aheadMutex_);
  if (ahead_.joinable()) ahead_.join();
}

Status Layouts::describe(int32_t gpu, Arrival& arrival) {
  const bool onGpu = gpu >= 0;
  arrival.pastCacheBytes = readPastCacheBytes();
  arrival.coreSet = availableCoreSet();
  const auto machine = machineOf(onGpu);
  if (!*machine) {
    if (!config::get<Param::TopoFile>().empty()) return Status(machine->error()).at("NCCL_TOPO_FILE");
    return {};
  }
  if (const auto allowed = topo::detect::thisProcessMayUse()) {
    const machine::Place place = placeOf(**machine, *allowed);
    arrival.numa = place.numa;
    arrival.cache = place.cache;
    arrival.caches = static_cast<int32_t>(machine::cachesOf(*(*machine)->files, *allowed).size());
    arrival.cacheBytes = machine::cacheBytesOf(*(*machine)->files, *allowed);
  }
  arrival.machine = (*machine)->hash;
  if (!onGpu && config::get<Param::GraphFile>().empty()) return {};
  const auto settings = machine::readSettings();
  if (!settings) return settings.error();
  arrival.machine = std::max<uint64_t>(mix((*machine)->hash, onGpu ? settings->hash : settings->hostHash), 1);
  if (!onGpu) return {};
  const Device* const device = devices_.find(gpu);
  arrival.gpu = device == nullptr ? -1 : machine::devOf(**machine, device->gpu->info().pciBusId).value_or(-1);
  return {};
}

Result<RankLayout> Layouts::find(const Outcome& outcome, bool onGpu, int32_t nodeRanks) {
  if (onGpu && !outcome.hub->spansHosts()) return findOnGpus(outcome, nodeRanks);
  RankLayout made;
  const std::span<const Arrival> members = outcome.membersOrNone();
  const std::vector<connect::RankPlace> places = placesOf(*outcome.hub, members);
  std::map<int32_t, int32_t> ranksOf;
  for (const connect::RankPlace& place : places) made.fullestHost = std::max(made.fullestHost, ++ranksOf[place.host]);
  made.layout = nodeRanks > 0 ? connect::Layout::natural(outcome.place.ranks, nodeRanks)
                : onGpu       ? connect::Layout::byPlace(places)
                              : connect::Layout::byPlace(places, numaOrderOf(members, machineOf(false)));
  if (!onGpu && outcome.place.rank == Rank(0)) observe::info(Subsys::Init | Subsys::Graph, "{}", machine::describePlaces(places));
  if (nodeRanks == 0 && outcome.hub->spansHosts())
    if (Status status = takeHosts(outcome, onGpu, made.layout); !status.ok()) return tl::unexpected(std::move(status));
  if (!onGpu && nodeRanks == 0 && !outcome.hub->spansHosts())
    if (Status status = takeStated(outcome, made.layout); !status.ok()) return tl::unexpected(std::move(status));
  tellLayout(made.layout, outcome.place.rank, nullptr);
  if (!onGpu) dump(outcome, false, nullptr);
  return made;
}

Result<Site> Layouts::siteOf(const transport::net::Network& network, bool onGpu) {
  const auto settings = machine::readSettings();
  if (!settings) return tl::unexpected(settings.error());
  const uint64_t settingsHash = onGpu ? settings->hash : settings->hostHash;
  const auto machine = machineOf(onGpu);
  if (!*machine) return comm::siteOf({}, settingsHash);  // of which machineOf() has warned
  const auto whole = withNetsOf(**machine, network);
  if (whole) return comm::siteOf(topo::writeXml(whole->root), settingsHash);
  if (!config::get<Param::TopoFile>().empty()) return tl::unexpected(Status(whole.error()).at("NCCL_TOPO_FILE"));
  observe::warn("the nets of this machine cannot be placed in its topology: {}", whole.error().text());
  return comm::siteOf({}, settingsHash);
}

/// The layout of ranks on several hosts, as their topologies have it.
Status Layouts::takeHosts(const Outcome& outcome, bool onGpu, connect::Layout& layout) {
  const std::span<const Arrival> members = outcome.membersOrNone();
  if (outcome.sites == nullptr || members.empty()) return {};
  std::string cause = outcome.sites->whyNot;
  std::vector<machine::HostRanks> hosts;
  std::map<int32_t, size_t> placeOf;
  std::vector<int32_t> hostOf;
  for (int32_t r = 0; r < outcome.place.ranks && cause.empty(); ++r) {
    const Arrival& member = members[static_cast<size_t>(r)];
    const int32_t process = outcome.hub->processOf(Rank(r));
    const auto [place, isNew] = placeOf.try_emplace(hostOf.emplace_back(outcome.hub->remote()->hostOf(Rank(r))), hosts.size());
    if (isNew) hosts.push_back({outcome.sites->machineOf(process), outcome.sites->hashOf[static_cast<size_t>(process)], {}});
    hosts[place->second].ranks.push_back({r, member.gpu, member.numa, member.cache});
    if (onGpu && member.gpu < 0) cause = format("the GPU of rank {} is not in its machine's topology", r);
  }
  if (cause.empty()) {
    const auto settings = machine::readSettings();
    if (!settings) return settings.error();
    const auto take = [&](machine::HostsLayout found) {
      layout = std::move(found.layout);
      if (outcome.place.rank != Rank(0)) return;
      for (const std::string& line : machine::describeNets(layout, hostOf)) observe::info(Subsys::Init | Subsys::Graph, "{}", line);
    };
    if (!onGpu && settings->graphs) {
      auto stated = machine::findStatedLayout(hosts, *settings->graphs);
      if (!stated) return Status(stated.error()).at("NCCL_GRAPH_FILE");
      if (std::optional<machine::HostsLayout>& ofFile = *stated) return take(*std::move(ofFile)), Status();
      if (outcome.place.rank == Rank(0)) observe::info(Subsys::Init | Subsys::Graph, "{}", notOfTheirNumber(outcome.place.ranks));
    }
    auto found = machine::findHostsLayout(hosts, *settings);
    if (found) return take(*std::move(found)), Status();
    cause = found.error().text();
  }
  if (outcome.place.rank == Rank(0))
    observe::warn("what crosses hosts uses device 0 of the network, and rings of {} ranks follow the order of hosts: {}",
                  outcome.place.ranks, cause);
  return {};
}

/// What NCCL_GRAPH_FILE says of ranks on host devices of one host.
Status Layouts::takeStated(const Outcome& outcome, connect::Layout& layout) {
  if (config::get<Param::GraphFile>().empty()) return {};
  const auto settings = machine::readSettings();
  if (!settings) return settings.error();
  const std::optional<topo::Document>& graphs = settings->graphs;
  if (!graphs) return {};
  const std::span<const Arrival> members = outcome.membersOrNone();
  const auto isOther = [&](const Arrival& member) { return member.machine == 0 || member.machine != members.front().machine; };
  std::string cause;
  std::optional<connect::Layout> stated;
  if (std::any_of(members.begin(), members.end(), isOther)) {
    cause = "they have different files, or see different machines";
  } else {
    auto found = machine::findHostLayout(*graphs, outcome.place.ranks);
    if (!found) return Status(found.error()).at("NCCL_GRAPH_FILE");
    stated = std::move(*found);
    if (!stated && outcome.place.rank == Rank(0) && outcome.place.ranks > 1)  // as of a part that was split off: no reason to warn
      observe::info(Subsys::Init | Subsys::Graph, "{}", notOfTheirNumber(outcome.place.ranks));
  }
  if (stated) layout = std::move(*stated);
  if (!cause.empty() && outcome.place.rank == Rank(0) && outcome.place.ranks > 1)
    observe::warn("NCCL_GRAPH_FILE={} does not hold for {} ranks on host devices: {}", config::get<Param::GraphFile>(),
                  outcome.place.ranks, cause);
  return {};
}

Result<RankLayout> Layouts::findOnGpus(const Outcome& outcome, int32_t nodeRanks) {
  const int32_t ranks = outcome.place.ranks;
  const Rank rank = outcome.place.rank;
  RankLayout made;
  made.layout = connect::Layout::natural(ranks, nodeRanks);
  const std::span<const Arrival> members = outcome.membersOrNone();
  if (members.empty()) return made;
  const std::vector<int> devs = devsOf(members);
  std::string cause = whyNot(members);
  std::shared_ptr<const Result<machine::GpuLayout>> found;
  if (cause.empty() && !sharesGpus(devs)) {  // several ranks on one GPU are the user's wish: any ring will do
    const auto machine = machineOf(true);
    const auto settings = machine::readSettings();
    if (!settings) return tl::unexpected(settings.error());
    if (!*machine) return tl::unexpected(machine->error());
    found = gpuLayouts_.find(**machine, devs, *settings);
    const bool isUsers = settings->graphs.has_value() || !config::get<Param::TopoFile>().empty();
    if (!*found && isUsers) return tl::unexpected(found->error());
    if (!*found) cause = found->error().text();
  }
  if (!cause.empty() && rank == Rank(0))
    observe::warn("rings and trees of {} ranks do not follow the machine's links, but the order of ranks: {}", ranks, cause);
  if (found != nullptr && *found) {
    if (rank == Rank(0) && !(*found)->graphs.note.empty()) observe::warn("NCCL_GRAPH_FILE: {}", (*found)->graphs.note);
    if (nodeRanks == 0) made.layout = (*found)->layout;
    made.nearGpu = allowedOf((*found)->nearCpus[static_cast<size_t>(rank.value)]);
  }
  const machine::GpuLayout* const known = found != nullptr && *found ? &**found : nullptr;
  tellLayout(made.layout, rank, known);
  dump(outcome, true, known);
  return made;
}

/// That something cannot be written down is no reason to compute nothing.
void Layouts::dump(const Outcome& outcome, bool onGpu, const machine::GpuLayout* found) {
  const auto tell = [](const char* variable, const Status& status) {
    if (!status.ok()) observe::warn("{}: {}", variable, status.text());
  };
  const int64_t rank = outcome.place.rank.value;
  if (const machine::Dump wanted = machine::topologyDump(); !wanted.path.empty() && wanted.rank == rank) {
    const auto machine = machineOf(onGpu);
    tell("NCCL_TOPO_DUMP_FILE",
         !*machine ? machine->error()
         : onGpu   ? writeTopology(wanted.path, **machine, devsOf(outcome.membersOrNone()))
                   : writeHostTopology(wanted.path, **machine, hostDevicesOf(outcome)));
  }
  if (const machine::Dump wanted = machine::graphDump(); !wanted.path.empty() && wanted.rank == rank) {
    tell("NCCL_GRAPH_DUMP_FILE", found != nullptr ? topo::writeXmlFile(wanted.path, topo::writeGraphs(found->graphs, found->view.system))
                                                  : error(Code::InvalidUsage, "there are no channels to write: the ranks compute with {}",
                                                          onGpu ? "GPUs whose topology is not known" : "host devices"));
  }
}

}  // namespace tutti::comm
