#include "topo/host_devices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include "topo/build.h"

namespace tutti::topo {
namespace {

constexpr int kMostByDefault = 8;  // of a NUMA node
constexpr int kOwnDistance = 10;
constexpr int kUnknownDistance = 20;  // what the kernel says of a remote node where firmware says nothing

struct NumaNode {
  int numa;
  std::vector<int> cpus;
};

Result<std::vector<NumaNode>> numaNodesOf(const Document& machine, const std::optional<CpuSet>& allowed) {
  std::vector<NumaNode> nodes;
  for (const Element& element : machine.root.children) {
    if (element.name != "cpu") continue;
    const auto numa = needInteger(machine, element, "numaid", -1, INT32_MAX);
    if (!numa) return tl::unexpected(numa.error());
    const std::string* text = element.find("affinity");
    const auto cpus = text == nullptr ? std::nullopt : CpuSet::fromMask(*text);
    if (!cpus) continue;
    std::vector<int> used = (allowed ? *cpus & *allowed : *cpus).cpus();
    if (!used.empty()) nodes.push_back({static_cast<int>(*numa), std::move(used)});
  }
  std::sort(nodes.begin(), nodes.end(), [](const NumaNode& a, const NumaNode& b) { return a.numa < b.numa; });
  if (nodes.empty())
    return fail(Code::InvalidUsage, "{}: no <cpu> with affinity=\"…\" that leaves a CPU to use: host devices run on CPUs", machine.file);
  return nodes;
}

/// How many of `count` each node gets: in proportion to its CPUs, the remainder one by one to those that are owed most.
std::vector<int> shares(const std::vector<NumaNode>& nodes, int count) {
  size_t all = 0;
  for (const NumaNode& node : nodes) all += node.cpus.size();
  std::vector<int> share;
  std::vector<std::pair<size_t, size_t>> owed;  // remainder, then the last node first, so that sorting backwards favours the first
  int given = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const size_t exact = nodes[i].cpus.size() * static_cast<size_t>(count);
    share.push_back(static_cast<int>(exact / all));
    given += share.back();
    owed.emplace_back(exact % all, nodes.size() - i);
  }
  std::sort(owed.rbegin(), owed.rend());
  for (size_t i = 0; given < count; ++i, ++given) ++share[nodes.size() - owed[i].second];
  return share;
}

CpuSet partOf(const std::vector<int>& cpus, int index, int parts) {
  CpuSet set;
  const size_t size = cpus.size();
  const auto at = [&](int i) { return size * static_cast<size_t>(i) / static_cast<size_t>(parts); };
  if (static_cast<size_t>(parts) > size) set.add(cpus[static_cast<size_t>(index) % size]);
  for (size_t i = at(index); static_cast<size_t>(parts) <= size && i < at(index + 1); ++i) set.add(cpus[i]);
  return set;
}

/// By pairs of NUMA nodes, as far as the machine says.
std::map<std::pair<int32_t, int32_t>, int> distancesOf(const Document& machine) {
  std::map<std::pair<int32_t, int32_t>, int> all;
  for (const Element& element : machine.root.children) {
    const std::string* text = element.name == "cpu" ? element.find("distances") : nullptr;
    const auto from = text == nullptr ? Result<int64_t>(-1) : needInteger(machine, element, "numaid", -1, INT32_MAX);
    const auto given = text == nullptr ? std::nullopt : parseDistances(*text);
    if (!from || !given) continue;
    for (const NumaDistance& one : *given) all[{static_cast<int32_t>(*from), one.numa}] = one.distance;
  }
  return all;
}

}  // namespace

Result<std::vector<HostDevice>> spreadHostDevices(const Document& machine, int count, const std::optional<CpuSet>& allowed) {
  const auto nodes = numaNodesOf(machine, allowed);
  if (!nodes) return tl::unexpected(nodes.error());
  if (count < 0 || count > kMostHostDevices)
    return fail(Code::InvalidArgument, "{} host devices; expected 1 to {}, or 0 for one a CPU", count, kMostHostDevices);
  std::vector<int> share;
  if (count > 0) share = shares(*nodes, count);
  else
    for (const NumaNode& node : *nodes) share.push_back(std::min(static_cast<int>(node.cpus.size()), kMostByDefault));
  std::vector<HostDevice> devices;
  for (size_t n = 0; n < nodes->size(); ++n) {
    for (int i = 0; i < share[n] && devices.size() < kMostHostDevices; ++i)
      devices.push_back(
          {.rank = static_cast<int>(devices.size()), .numa = (*nodes)[n].numa, .cpus = partOf((*nodes)[n].cpus, i, share[n])});
  }
  return devices;
}

Status addHostDevices(Document& machine, std::span<const HostDevice> devices) {
  for (Element& cpu : machine.root.children) std::erase_if(cpu.children, [](const Element& child) { return child.name == "hostdev"; });
  for (const HostDevice& device : devices) {
    const auto cpu = std::find_if(machine.root.children.begin(), machine.root.children.end(), [&](const Element& element) {
      const std::string* numa = element.find("numaid");
      return element.name == "cpu" && numa != nullptr && *numa == format("{}", device.numa);
    });
    if (cpu == machine.root.children.end()) {
      return error(Code::InvalidArgument, "{}: there is no <cpu numaid=\"{}\">, on which rank {} runs", machine.file, device.numa,
                   device.rank);
    }
    Element& made = cpu->children.emplace_back();
    made.name = "hostdev";
    made.set("dev", format("{}", device.rank));
    made.set("rank", format("{}", device.rank));
    if (!device.cpus.empty()) made.set("cpus", device.cpus.list());
  }
  return {};
}

Result<View> makeHostView(const Document& machine) {
  const Element* cpu = machine.root.child("cpu");
  const auto hash = cpu == nullptr ? Result<std::optional<uint64_t>>(std::nullopt) : findHex(machine, *cpu, "host_hash");
  if (!hash) return tl::unexpected(hash.error());
  auto built = buildSystem(machine, hash->value_or(0));
  if (!built) return tl::unexpected(std::move(built).error());
  View view{.xml = machine, .system = std::move(built->system), .paths = {}, .notes = std::move(built->notes)};
  view.system.ranks = view.system.count(NodeKind::Host);
  if (view.system.ranks == 0) return fail(Code::InvalidUsage, "{}: no <hostdev>", machine.file);
  auto paths = findPaths(view.system, {});
  if (!paths) return tl::unexpected(std::move(paths).error());
  view.paths = *std::move(paths);
  const auto& devices = view.system.all(NodeKind::Host);
  for (const NodeId from : devices) {
    for (const NodeId to : devices)
      if (from != to) view.system.maxGBps = std::max(view.system.maxGBps, view.paths.get(from, to).GBps);
  }
  view.system.totalGBps = view.system.maxGBps;
  return view;
}

std::optional<std::vector<NumaDistance>> parseDistances(std::string_view text) {
  std::vector<NumaDistance> all;
  while (!text.empty()) {
    NumaDistance one;
    const char* const end = text.data() + text.size();
    const auto [colon, badNuma] = std::from_chars(text.data(), end, one.numa);
    if (badNuma != std::errc() || one.numa < 0 || colon == end || *colon != ':') return std::nullopt;
    const auto [comma, badDistance] = std::from_chars(colon + 1, end, one.distance);
    constexpr int kUnreachable = 255;
    if (badDistance != std::errc() || one.distance < kOwnDistance || one.distance > kUnreachable) return std::nullopt;
    if (comma != end && (*comma != ',' || comma + 1 == end)) return std::nullopt;
    all.push_back(one);
    text.remove_prefix(static_cast<size_t>((comma == end ? end : comma + 1) - text.data()));
  }
  return all;
}

std::vector<int32_t> orderNumaNodes(const Document& machine, std::span<const int32_t> nodes) {
  std::vector<int32_t> order(nodes.begin(), nodes.end());
  const auto known = distancesOf(machine);
  if (order.size() < 4 || known.empty()) return order;  // a ring of three has one order and its reverse
  const auto distance = [&](int32_t from, int32_t to) {
    const auto found = known.find({from, to});
    return found == known.end() ? kUnknownDistance : found->second;
  };
  if (order.size() > kMostOrdered) {
    for (size_t i = 1; i + 1 < order.size(); ++i) {
      const auto rest = order.begin() + static_cast<std::ptrdiff_t>(i);
      const auto next =
          std::min_element(rest, order.end(), [&](int32_t a, int32_t b) { return distance(order[i - 1], a) < distance(order[i - 1], b); });
      std::rotate(rest, next, next + 1);
    }
    return order;
  }
  // All orders that begin with the first node, the given one first, so that another has to be better.
  const size_t size = order.size();
  std::array<std::array<int, kMostOrdered>, kMostOrdered> far{};
  for (size_t a = 0; a < size; ++a)
    for (size_t b = 0; b < size; ++b) far[a][b] = distance(order[a], order[b]);
  std::vector<size_t> turn(size);
  std::iota(turn.begin(), turn.end(), size_t{0});
  const auto around = [&] {
    int sum = 0;
    for (size_t i = 0; i < size; ++i) sum += far[turn[i]][turn[i + 1 == size ? 0 : i + 1]];
    return sum;
  };
  std::vector<size_t> best = turn;
  int least = around();
  while (std::next_permutation(turn.begin() + 1, turn.end())) {
    if (const int sum = around(); sum < least) {
      least = sum;
      best = turn;
    }
  }
  std::vector<int32_t> ordered;
  for (const size_t i : best) ordered.push_back(order[i]);
  return ordered;
}

}  // namespace tutti::topo
