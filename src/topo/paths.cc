#include "topo/paths.h"

#include <algorithm>

namespace tutti::topo {
namespace {

bool isTarget(NodeKind kind) {
  return kind == NodeKind::Gpu || kind == NodeKind::Net || kind == NodeKind::Cpu || kind == NodeKind::NvSwitch ||
         kind == NodeKind::Host;
}

/// What a path becomes when it is led on over `link`, which leaves `at` towards `next`.
PathType typeOver(const System& system, const Path& path, const Link& link, int count) {
  const NodeKind at = system.at(link.from).kind;
  const NodeKind next = system.at(link.to).kind;
  PathType type = link.type == LinkType::Net ? PathType::Loc : pathTypeOf(link.type);  // only the way from the NIC on counts
  if (at == NodeKind::Pci && next == NodeKind::Pci) type = PathType::Pxb;
  if (link.type == LinkType::Pci && (at == NodeKind::Cpu || next == NodeKind::Cpu)) type = PathType::Phb;
  if (at == NodeKind::Gpu && path.type == PathType::Nvl && type == PathType::Nvl && count > 1) type = PathType::Nvb;
  return std::max(path.type, type);
}

/// A search outwards from one target, level by level: the shortest path counts, and of those as short, the widest.
class Search {
 public:
  Search(const System& system, const PathSettings& settings, Paths& paths, NodeId target)
      : system_(system),
        settings_(settings),
        paths_(paths),
        target_(target),
        column_(system.find(system.at(target).kind, system.at(target).id)),
        isQueued_(system.nodes.size(), false) {}

  Status run() {
    paths_.extend(target_, column_, PathType::Loc, kLocalGBps, kNoLink, Path{});
    level_ = {target_};
    while (!level_.empty()) {
      for (const NodeId node : level_) {
        for (const LinkId link : system_.at(node).links) TUTTI_TRY(leadOn(node, system_.at(link)));
      }
      for (const NodeId node : next_) isQueued_[static_cast<size_t>(node.value)] = false;
      level_.swap(next_);
      next_.clear();
    }
    return {};
  }

 private:
  /// A GPU hands on only what comes over one NVLink and leaves over one.
  bool mayPass(NodeId node, const Link& link, const Path& path) const {
    if (node == target_ || system_.at(node).kind != NodeKind::Gpu) return true;
    return !settings_.nvbDisabled && link.type == LinkType::Nvl && system_.at(link.to).kind == NodeKind::Gpu && path.count <= 1;
  }

  Status leadOn(NodeId node, const Link& link) {
    const Path path = paths_.get(node, column_);
    if (!mayPass(node, link, path)) return {};
    const Path& known = paths_.get(link.to, column_);
    // What flows towards the target flows over the reverse; the two sides of an NVLink may state different speeds.
    const float GBps = std::min(path.GBps, link.reverse == kNoLink ? link.GBps : system_.at(link.reverse).GBps);
    if ((known.GBps != 0 && known.count <= path.count) || known.GBps >= GBps) return {};
    if (link.reverse == kNoLink) {
      return error(Code::InvalidUsage, "{} states a {} link to {}, which states none back", nodeName(system_, node),
                   linkTypeName(link.type), nodeName(system_, link.to));
    }
    paths_.extend(link.to, column_, typeOver(system_, path, link, path.count + 1), GBps, link.reverse, path);
    if (!isQueued_[static_cast<size_t>(link.to.value)]) {
      isQueued_[static_cast<size_t>(link.to.value)] = true;
      next_.push_back(link.to);
    }
    return {};
  }

  const System& system_;
  const PathSettings& settings_;
  Paths& paths_;
  const NodeId target_;
  const NodeId column_;  // the first node with the target's id, which stands for all
  std::vector<bool> isQueued_;
  std::vector<NodeId> level_;
  std::vector<NodeId> next_;
};

}  // namespace

Paths::Paths(const System& system) : rows_(system.nodes.size()), column_(system.nodes.size(), -1) {
  int32_t columns = 0;
  for (size_t node = 0; node < system.nodes.size(); ++node) {
    if (isTarget(system.nodes[node].kind)) column_[node] = columns++;
  }
  table_.resize(rows_ * static_cast<size_t>(columns));
  pool_.reserve(table_.size() * 2);
}

void Paths::append(const Path& path) {
  const auto first = static_cast<size_t>(path.first);
  for (size_t i = 0; i < static_cast<size_t>(path.count); ++i) pool_.push_back(LinkId(pool_[first + i]));
}

void Paths::extend(NodeId from, NodeId to, PathType type, float GBps, LinkId head, const Path& rest) {
  const auto first = static_cast<int32_t>(pool_.size());
  if (head != kNoLink) pool_.push_back(head);
  append(rest);
  table_[cell(from, to)] = {.type = type, .GBps = GBps, .first = first, .count = static_cast<int32_t>(pool_.size()) - first};
}

void Paths::join(NodeId from, NodeId to, PathType type, float GBps, const Path& first, const Path& second) {
  const auto begin = static_cast<int32_t>(pool_.size());
  append(first);
  append(second);
  table_[cell(from, to)] = {.type = type, .GBps = GBps, .first = begin, .count = static_cast<int32_t>(pool_.size()) - begin};
}

Status Paths::checkSize() const {
  if (pool_.size() <= kMostLinks) return {};
  return error(Code::InvalidUsage, "the paths between its nodes have more than {} links: a machine of this form has too many nodes",
               kMostLinks);
}

Result<Paths> findPaths(const System& system, const PathSettings& settings) {
  Paths paths(system);
  for (const NodeKind kind : {NodeKind::Cpu, NodeKind::Gpu, NodeKind::Net, NodeKind::NvSwitch, NodeKind::Host}) {
    for (const NodeId target : system.all(kind)) {
      Status status = Search(system, settings, paths, target).run();
      if (status.ok()) status = paths.checkSize();
      if (!status.ok()) return tl::unexpected(std::move(status));
    }
  }
  return paths;
}

}  // namespace tutti::topo
