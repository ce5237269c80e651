#include "topo/view.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "topo/build.h"

namespace tutti::topo {
namespace {

constexpr uint64_t kFirstHostHash = 0x1000;

const Element* findGpu(const Element& element, int dev) {
  const std::string* const own = element.name == "gpu" ? element.find("dev") : nullptr;
  if (own != nullptr && std::strtol(own->c_str(), nullptr, 0) == dev) return &element;
  for (const Element& child : element.children) {
    if (const Element* found = findGpu(child, dev)) return found;
  }
  return nullptr;
}

/// A <gpu> elsewhere than where it belongs becomes no node.
Status checkAllArePresent(const Document& machine, const System& system, const ViewRequest& request) {
  for (const UsedHost& host : request.hosts) {
    for (const UsedGpu& gpu : host.gpus) {
      if (system.gpuOfRank(gpu.rank) != kNoNode) continue;
      const Element* const found = findGpu(machine.root, gpu.dev);
      const std::string place = found != nullptr ? topo::placeOf(machine, *found) : format("{}: <gpu dev=\"{}\">", machine.file, gpu.dev);
      return error(Code::InvalidUsage, "{} is misplaced; expected it as the only <gpu> of a <pci> below a <cpu>", place);
    }
  }
  return {};
}

}  // namespace

Result<ViewRequest> identicalNodes(const Document& machine, int nodes, bool isClique, std::span<const int> devs) {
  auto known = gpuDevs(machine);
  if (!known) return tl::unexpected(std::move(known).error());
  if (known->empty()) {
    return fail(Code::InvalidUsage, "{}: no <gpu dev=\"…\">: the file describes no GPU, or only a part that detection completes",
                machine.file);
  }
  std::vector<int> used(devs.begin(), devs.end());
  if (used.empty()) used = *known;
  std::sort(used.begin(), used.end());
  for (size_t i = 0; i < used.size(); ++i) {
    if (i > 0 && used[i] == used[i - 1]) return fail(Code::InvalidArgument, "GPU {} is named twice", used[i]);
    if (std::binary_search(known->begin(), known->end(), used[i])) continue;
    return fail(Code::InvalidArgument, "{}: there is no GPU {}; there are {}, of dev {} to {}", machine.file, used[i], known->size(),
                known->front(), known->back());
  }
  ViewRequest request;
  request.ranks = nodes * static_cast<int>(used.size());
  const int hosts = isClique ? nodes : 1;
  int rank = 0;
  for (int host = 0; host < hosts; ++host) {
    UsedHost& made = request.hosts.emplace_back();
    made.hostHash = kFirstHostHash + static_cast<uint64_t>(host);
    for (const int dev : used) made.gpus.push_back({.dev = dev, .rank = rank++});
  }
  return request;
}

Result<View> makeView(const Document& machine, const ViewRequest& request) {
  uint64_t ownHash = 0;
  bool isPresent = false;
  for (const UsedHost& host : request.hosts) {
    for (const UsedGpu& gpu : host.gpus) {
      if (gpu.rank != request.rank) continue;
      ownHash = host.hostHash;
      isPresent = true;
    }
  }
  if (!isPresent) return fail(Code::InvalidArgument, "rank {} uses no GPU of the hosts given", request.rank);

  View view;
  auto arranged = arrange(machine, request.hosts);
  if (!arranged) return tl::unexpected(std::move(arranged).error());
  view.xml = *std::move(arranged);
  if (request.collNets.has_value()) markCollNets(view.xml.root, *request.collNets);

  auto built = buildSystem(view.xml, ownHash);
  if (!built) return tl::unexpected(std::move(built).error());
  view.system = std::move(built->system);
  view.notes = std::move(built->notes);
  view.system.ranks = request.ranks;
  if (Status status = checkAllArePresent(machine, view.system, request); !status.ok()) return tl::unexpected(std::move(status));

  auto first = computePaths(view.system, request.settings);
  if (!first) return tl::unexpected(std::move(first).error().at(format("topology {}", machine.file)));
  auto paths = trim(view.system, *first, request.rank, request.settings);
  if (!paths) return tl::unexpected(std::move(paths).error());
  view.paths = *std::move(paths);
  setBandwidths(view.system, view.paths);
  return view;
}

}  // namespace tutti::topo
