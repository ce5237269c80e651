#include "topology/svg_layout.h"

#include <algorithm>
#include <cmath>

namespace tutti::tool {
namespace {

using topo::Link;
using topo::LinkId;
using topo::LinkType;
using topo::NodeId;
using topo::NodeKind;
using topo::System;

class LayoutMaker {
 public:
  LayoutMaker(const System& system, double top)
      : system_(system), top_(top), row_(system.nodes.size(), -1), below_(system.nodes.size(), 0) {
    layout_.places.resize(system.nodes.size());
    layout_.isTreeLink.resize(system.links.size());
  }

  Layout make() {
    for (const NodeId cpu : system_.all(NodeKind::Cpu)) place(cpu, 0);
    for (size_t node = 0; node < row_.size(); ++node) {
      // What hangs at no CPU, and is no switch of NVLinks, stands for itself.
      const NodeId id{static_cast<int32_t>(node)};
      if (row_[node] < 0 && system_.at(id).kind != NodeKind::NvSwitch) place(id, 1);
    }
    alignRows();
    placeSwitches();
    layout_.width = std::max(columns_, 1.0) * Layout::kColumn;
    layout_.height = top_ + static_cast<double>(lastRow_ + 1) * Layout::kRow;
    for (size_t node = 0; node < row_.size(); ++node)
      layout_.places[node].y = top_ + (static_cast<double>(row_[node]) + 0.5) * Layout::kRow;
    return std::move(layout_);
  }

 private:
  /// A node and all below it.
  void place(NodeId id, int row) {
    row_[index(id)] = row;
    const double first = columns_;
    placeNets(id, row + 1);
    for (const LinkId linkId : system_.at(id).links) {
      const Link& link = system_.at(linkId);
      const bool isDown = link.type == LinkType::Pci || link.type == LinkType::Net || system_.at(link.to).kind == NodeKind::Host;
      if (!isDown || row_[index(link.to)] >= 0) continue;
      layout_.isTreeLink[static_cast<size_t>(linkId.value)] = true;
      place(link.to, row + 1);
    }
    if (columns_ == first) columns_ += 1;
    layout_.places[index(id)].x = (first + columns_) / 2 * Layout::kColumn;
  }

  /// More nets than a row should have, as of a NIC of virtual interfaces: a block of them.
  void placeNets(NodeId nic, int row) {
    std::vector<LinkId> nets;
    for (const LinkId id : system_.at(nic).links)
      if (system_.at(id).type == LinkType::Net && system_.at(system_.at(id).to).kind == NodeKind::Net && row_[index(system_.at(id).to)] < 0)
        nets.push_back(id);
    if (nets.size() <= kMostAside) return;
    const auto wide = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(nets.size()))));
    for (size_t i = 0; i < nets.size(); ++i) {
      const size_t net = index(system_.at(nets[i]).to);
      layout_.isTreeLink[static_cast<size_t>(nets[i].value)] = true;
      row_[net] = row;
      below_[net] = static_cast<int>(i / wide);
      layout_.places[net].x = (columns_ + static_cast<double>(i % wide) + 0.5) * Layout::kColumn;
    }
    columns_ += static_cast<double>(wide);
  }

  void alignRows() {
    int leaves = 0;
    for (const NodeKind kind : {NodeKind::Gpu, NodeKind::Host, NodeKind::Nic}) {
      for (const NodeId id : system_.all(kind)) leaves = std::max(leaves, row_[index(id)]);
    }
    const bool hasDirect = std::any_of(system_.links.begin(), system_.links.end(), [&](const Link& link) {
      return link.type == LinkType::Nvl && system_.at(link.from).kind == NodeKind::Gpu && system_.at(link.to).kind == NodeKind::Gpu;
    });
    const int belowGpus = hasDirect ? 2 : 1;
    for (const NodeKind kind : {NodeKind::Gpu, NodeKind::Host, NodeKind::Nic, NodeKind::Net}) {
      const int row = leaves + (kind == NodeKind::Net ? belowGpus : 0);
      for (const NodeId id : system_.all(kind)) row_[index(id)] = row + below_[index(id)];
    }
    lastRow_ = std::max(*std::max_element(row_.begin(), row_.end()), leaves + belowGpus - 1);
  }

  void placeSwitches() {
    const std::vector<NodeId>& switches = system_.all(NodeKind::NvSwitch);
    if (switches.empty()) return;
    ++lastRow_;
    const double share = std::max(columns_, static_cast<double>(switches.size())) / static_cast<double>(switches.size());
    for (size_t i = 0; i < switches.size(); ++i) {
      row_[index(switches[i])] = lastRow_;
      layout_.places[index(switches[i])].x = (static_cast<double>(i) + 0.5) * share * Layout::kColumn;
    }
    columns_ = std::max(columns_, static_cast<double>(switches.size()));
  }

  static constexpr size_t kMostAside = 8;

  static size_t index(NodeId id) { return static_cast<size_t>(id.value); }

  const System& system_;
  const double top_;
  Layout layout_;
  std::vector<int> row_;    // by node; −1: not placed yet
  std::vector<int> below_;  // by node: rows farther down than its kind
  double columns_ = 0;    // taken so far
  int lastRow_ = 0;
};

}  // namespace

Layout layOut(const topo::System& system, double top) { return LayoutMaker(system, top).make(); }

}  // namespace tutti::tool
