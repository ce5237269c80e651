// The least capacity that parts two sets of nodes, in a graph of directed links (augmenting paths, shortest first).
//
// Internal to the search of topo/; a value; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::topo {

class FlowGraph {
 public:
  explicit FlowGraph(int32_t nodes) : lastOf_(static_cast<size_t>(nodes), -1) {}

  /// Without links again, as it was made; the memory stays.
  void clear();

  /// A directed link; `tag` names it in the answer.
  void addLink(int32_t from, int32_t to, int64_t capacity, int32_t tag);
  /// The tags of links that a least cut between the sources and the sinks consists of.
  std::vector<int32_t> leastCut(const std::vector<int32_t>& sources, const std::vector<bool>& isSink);

 private:
  struct Arc {
    int32_t from;
    int32_t to;
    int32_t before;  // the arc of the same node that was added before this one, −1: none
    int32_t tag;     // −1: the way back of the arc before it
    int64_t room;
  };
  void addArc(int32_t from, int32_t to, int64_t room, int32_t tag);
  int32_t reach(const std::vector<int32_t>& sources, const std::vector<bool>& isSink);
  void push(int32_t end);

  std::vector<Arc> arcs_;  // arc i ^ 1 is the way back of arc i
  std::vector<int32_t> lastOf_;  // node → its last arc, −1: none
  std::vector<int32_t> cameBy_;  // node → arc, −1 a source, −2 not reached
  std::vector<int32_t> queue_;   // of the search under way
};

}  // namespace tutti::topo
