#include "topo/search_flow.h"

#include <algorithm>

namespace tutti::topo {

void FlowGraph::clear() {
  arcs_.clear();
  std::fill(lastOf_.begin(), lastOf_.end(), -1);
}

void FlowGraph::addArc(int32_t from, int32_t to, int64_t room, int32_t tag) {
  int32_t& last = lastOf_[static_cast<size_t>(from)];
  arcs_.push_back({.from = from, .to = to, .before = last, .tag = tag, .room = room});
  last = static_cast<int32_t>(arcs_.size()) - 1;
}

void FlowGraph::addLink(int32_t from, int32_t to, int64_t capacity, int32_t tag) {
  addArc(from, to, capacity, tag);
  addArc(to, from, 0, -1);
}

// The first sink reached from the sources over arcs with room, or −1.
int32_t FlowGraph::reach(const std::vector<int32_t>& sources, const std::vector<bool>& isSink) {
  cameBy_.assign(lastOf_.size(), -2);
  queue_ = sources;
  for (const int32_t source : sources) cameBy_[static_cast<size_t>(source)] = -1;
  for (size_t next = 0; next < queue_.size(); ++next) {
    for (int32_t id = lastOf_[static_cast<size_t>(queue_[next])]; id >= 0; id = arcs_[static_cast<size_t>(id)].before) {
      const Arc& arc = arcs_[static_cast<size_t>(id)];
      int32_t& came = cameBy_[static_cast<size_t>(arc.to)];
      if (arc.room <= 0 || came != -2) continue;
      came = id;
      if (isSink[static_cast<size_t>(arc.to)]) return arc.to;
      queue_.push_back(arc.to);
    }
  }
  return -1;
}

void FlowGraph::push(int32_t end) {
  int64_t room = INT64_MAX;
  for (int32_t id = cameBy_[static_cast<size_t>(end)]; id >= 0; id = cameBy_[static_cast<size_t>(arcs_[static_cast<size_t>(id)].from)]) {
    room = std::min(room, arcs_[static_cast<size_t>(id)].room);
  }
  for (int32_t id = cameBy_[static_cast<size_t>(end)]; id >= 0; id = cameBy_[static_cast<size_t>(arcs_[static_cast<size_t>(id)].from)]) {
    arcs_[static_cast<size_t>(id)].room -= room;
    arcs_[static_cast<size_t>(id ^ 1)].room += room;
  }
}

std::vector<int32_t> FlowGraph::leastCut(const std::vector<int32_t>& sources, const std::vector<bool>& isSink) {
  for (int32_t end = reach(sources, isSink); end >= 0; end = reach(sources, isSink)) push(end);
  std::vector<int32_t> cut;
  for (const Arc& arc : arcs_) {
    if (arc.tag >= 0 && cameBy_[static_cast<size_t>(arc.from)] != -2 && cameBy_[static_cast<size_t>(arc.to)] == -2) cut.push_back(arc.tag);
  }
  return cut;
}

}  // namespace tutti::topo
