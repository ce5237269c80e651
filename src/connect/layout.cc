#include "connect/layout.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "connect/channels.h"

namespace tutti::connect {
namespace {

/// In-order numbering: nodes 1 … size-1 form a binary search tree in which a node's height is the number of trailing zeros of
/// its number; node 0 sits above it as the root. Odd numbers are leaves.
struct InOrderTree {
  int32_t size;

  int32_t top() const { return size <= 1 ? -1 : static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(size - 1))); }

  int32_t parent(int32_t node) const {
    if (node == 0) return -1;
    if (node == top()) return 0;
    const int32_t bit = node & -node;
    const int32_t upper = (node ^ bit) | (bit << 1);
    return upper < size ? upper : node ^ bit;  // the right part of an incomplete tree hangs from the left neighbour
  }

  int32_t left(int32_t node) const {
    const int32_t bit = node & -node;
    return node == 0 ? top() : (bit > 1 ? node - bit / 2 : -1);
  }

  int32_t right(int32_t node) const {
    if (node == 0) return -1;
    for (int32_t half = (node & -node) / 2; half > 0; half /= 2)
      if (node + half < size) return node + half;
    return -1;
  }
};

}  // namespace

TreeNode nodeOfDoubleTree(int32_t tree, int32_t index, int32_t size) {
  // The second tree is the first one mirrored (even size) or shifted by one place (odd size): leaves become inner nodes.
  const bool mirror = tree == 1 && size % 2 == 0;
  const bool shift = tree == 1 && size % 2 == 1;
  const auto toNode = [&](int32_t i) { return mirror ? size - 1 - i : shift ? (i + size - 1) % size : i; };
  const auto toIndex = [&](int32_t node) { return node < 0 ? -1 : mirror ? size - 1 - node : shift ? (node + 1) % size : node; };

  const InOrderTree shape{size};
  const int32_t node = toNode(index);
  TreeNode found;
  found.parent = toIndex(shape.parent(node));
  found.isLower = node < shape.parent(node);
  found.lower = toIndex(node == 0 ? -1 : shape.left(node));
  found.upper = toIndex(node == 0 ? shape.left(node) : shape.right(node));
  return found;
}

algo::Tree doubleBinaryTree(int32_t tree, int32_t index, int32_t size) {
  const TreeNode node = nodeOfDoubleTree(tree, index, size);
  algo::Tree view;
  if (node.parent >= 0) view.parent = Rank(node.parent);
  for (const int32_t child : {node.lower, node.upper})
    if (child >= 0) view.children.add(Rank(child));
  return view;
}

Layout::Track Layout::trackOf(std::vector<int32_t> order) {
  Track track;
  track.position.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) track.position[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  track.order = std::move(order);
  return track;
}

Layout::Layout(std::vector<int32_t> order, int32_t localRanks) : localRanks_(localRanks) {
  tracks_.push_back(trackOf(std::move(order)));
  if (localRanks <= 0 || ranks() % localRanks != 0) localRanks_ = ranks();
}

Layout Layout::ofRings(std::vector<std::vector<int32_t>> orders, int32_t localRanks) {
  Layout layout(std::move(orders.front()), localRanks);
  for (size_t i = 1; i < orders.size(); ++i) layout.tracks_.push_back(trackOf(std::move(orders[i])));
  return layout;
}

Layout Layout::natural(int32_t ranks, int32_t localRanks) {
  std::vector<int32_t> order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return Layout(std::move(order), localRanks);
}

namespace {

/// How many ranks every node has; 0 where they differ.
int32_t evenSize(const std::vector<int32_t>& sizes) {
  const bool isEven = !sizes.empty() && std::all_of(sizes.begin(), sizes.end(), [&](int32_t size) { return size == sizes.front(); });
  return isEven ? sizes.front() : 0;
}

}  // namespace

Layout Layout::byPlace(const std::vector<RankPlace>& places, const NumaOrder& inOrder) {
  // A place comes where its first rank does: of the host, then of the NUMA node in it, then of the cache.
  std::map<RankPlace, int32_t> firstOf;
  const auto first = [&](const RankPlace& place, size_t rank) {
    return firstOf.try_emplace(place, static_cast<int32_t>(rank)).first->second;
  };
  std::vector<std::array<int32_t, 4>> keys;
  std::map<int32_t, int32_t> sizeOf;
  std::map<int32_t, std::vector<int32_t>> numaOf;  // by host, in the order of first ranks
  for (size_t r = 0; r < places.size(); ++r) {
    const RankPlace& at = places[r];
    constexpr int32_t kAny = -2;  // no place of anybody
    std::vector<int32_t>& nodes = numaOf[at.host];
    if (std::find(nodes.begin(), nodes.end(), at.numa) == nodes.end()) nodes.push_back(at.numa);
    keys.push_back({first({at.host, kAny, kAny}, r), 0, first(at, r), static_cast<int32_t>(r)});
    ++sizeOf[at.host];
  }
  if (inOrder)
    for (auto& [host, nodes] : numaOf) nodes = inOrder(host, nodes);
  for (size_t r = 0; r < places.size(); ++r) {
    const std::vector<int32_t>& nodes = numaOf[places[r].host];
    keys[r][1] = static_cast<int32_t>(std::find(nodes.begin(), nodes.end(), places[r].numa) - nodes.begin());
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int32_t> order;
  for (const auto& key : keys) order.push_back(key[3]);
  std::vector<int32_t> sizes;
  for (const auto& [host, size] : sizeOf) sizes.push_back(size);
  return Layout(std::move(order), evenSize(sizes));
}

Layout Layout::byHost(const std::vector<int32_t>& hostOf) {
  std::vector<RankPlace> places;
  for (const int32_t host : hostOf) places.push_back({.host = host});
  return byPlace(places);
}

namespace {

/// A channel's ring as it begins where the first node does; channels begin theirs at rank 0.
std::vector<int32_t> fromFirstNode(std::vector<int32_t> ring, const NodeGraphs& first) {
  std::vector<bool> isOfFirst(ring.size(), false);
  for (const int32_t rank : first.ranks) isOfFirst[static_cast<size_t>(rank)] = true;
  const auto isStart = [&](size_t at) {
    return isOfFirst[static_cast<size_t>(ring[at])] && !isOfFirst[static_cast<size_t>(ring[(at + ring.size() - 1) % ring.size()])];
  };
  for (size_t at = 0; at < ring.size(); ++at) {
    if (!isStart(at)) continue;
    std::rotate(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>(at), ring.end());
    break;
  }
  return ring;
}

std::vector<algo::Tree> treeOf(const std::vector<TreeLinks>& links) {
  std::vector<algo::Tree> trees;
  for (const TreeLinks& link : links) {
    algo::Tree& tree = trees.emplace_back();
    tree.parent = Rank(link.up);
    for (const int32_t child : link.down)
      if (child >= 0) tree.children.add(Rank(child));
  }
  return trees;
}

/// The length of the shortest beginning that, repeated, is the whole.
template <class Item>
size_t periodOf(const std::vector<Item>& items) {
  for (size_t period = 1; period < items.size(); ++period) {
    bool repeats = items.size() % period == 0;
    for (size_t i = period; repeats && i < items.size(); ++i) repeats = items[i] == items[i - period];
    if (repeats) return period;
  }
  return items.size();
}

}  // namespace

Layout Layout::ofChannels(const Channels& channels, std::span<const NodeGraphs> nodes) {
  // The second half of the channels has the rings of the first one, and the second trees of the double trees.
  const size_t half = std::clamp<size_t>(static_cast<size_t>(channels.distinct) / 2, 1, channels.rings.size());
  const std::vector<std::vector<int32_t>> rings(channels.rings.begin(), channels.rings.begin() + static_cast<std::ptrdiff_t>(half));
  using Links = std::vector<TreeLinks>;
  std::vector<std::tuple<std::vector<int32_t>, Links, Links, std::vector<NetUse>>> found;
  for (size_t c = 0; c < half; ++c) {
    // Of a single node both trees of a double tree are one chain: the next channel's serves the other half of the data.
    const size_t second = nodes.size() > 1 ? half + c : (c + 1) % half;
    found.emplace_back(rings[c], channels.trees[c], channels.trees[std::min(second, channels.trees.size() - 1)],
                       c < channels.nets.size() ? channels.nets[c] : std::vector<NetUse>());
  }
  const bool isOne = periodOf(rings) == 1 && (channels.nets.empty() || periodOf(channels.nets) == 1);
  found.resize(isOne ? 1 : periodOf(found));

  std::vector<Track> tracks;
  for (const auto& [ring, first, second, nets] : found) {
    Track& track = tracks.emplace_back(trackOf(fromFirstNode(ring, nodes.front())));
    track.trees = {treeOf(first), treeOf(second)};
    track.nets = nets;
  }
  Layout layout = ofTracks(std::move(tracks), nodes);
  const auto slowest = [&](float NodeGraphs::*speed) {
    float least = nodes.front().*speed;
    for (const NodeGraphs& node : nodes) least = std::min(least, node.*speed);
    return static_cast<double>(least) * static_cast<double>(half) / layout.tracks();  // so many searched channels share a track
  };
  layout.ringGBps_ = slowest(&NodeGraphs::ringGBpsIntra);
  layout.treeGBps_ = slowest(&NodeGraphs::treeGBpsIntra);
  return layout;
}

Layout Layout::ofTracks(std::vector<Track> tracks, std::span<const NodeGraphs> nodes) {
  std::vector<int32_t> sizes;
  for (const NodeGraphs& node : nodes) sizes.push_back(static_cast<int32_t>(node.ranks.size()));
  Layout layout(tracks.front().order, evenSize(sizes));
  layout.tracks_ = std::move(tracks);
  return layout;
}

Layout Layout::ofNets(const Channels& channels, std::span<const NodeGraphs> nodes) {
  std::vector<int32_t> nodeOf(static_cast<size_t>(channels.ranks));
  for (size_t n = 0; n < nodes.size(); ++n)
    for (const int32_t rank : nodes[n].ranks) nodeOf[static_cast<size_t>(rank)] = static_cast<int32_t>(n);
  std::set<std::vector<int32_t>> known;  // by node, the nets that a ring enters and leaves it by
  std::vector<Track> tracks;
  for (size_t c = 0; c == 0 || c < channels.nets.size(); ++c) {
    const std::vector<int32_t>& ring = channels.rings[c];
    std::vector<int32_t> doors(2 * nodes.size(), -1);
    for (size_t i = 0; i < ring.size() && c < channels.nets.size(); ++i) {
      const int32_t from = ring[i];
      const int32_t to = ring[(i + 1) % ring.size()];
      const auto node = [&](int32_t rank) { return static_cast<size_t>(nodeOf[static_cast<size_t>(rank)]); };
      if (node(from) == node(to)) continue;
      doors[2 * node(from)] = channels.nets[c][static_cast<size_t>(from)].out;
      doors[2 * node(to) + 1] = channels.nets[c][static_cast<size_t>(to)].in;
    }
    if (!known.insert(std::move(doors)).second) continue;
    Track& track = tracks.emplace_back(trackOf(fromFirstNode(ring, nodes.front())));
    if (c < channels.nets.size()) track.nets = channels.nets[c];
  }
  return ofTracks(std::move(tracks), nodes);
}

NetUse Layout::netsOf(Rank rank, ChannelId channel) const {
  const Track& track = tracks_[static_cast<size_t>(channel.value % tracks())];
  return track.nets.empty() ? NetUse() : track.nets[static_cast<size_t>(rank.value)];
}

int32_t Layout::netBetween(Rank from, Rank to, ChannelId channel, bool sends) const {
  const std::vector<int32_t>& position = tracks_[static_cast<size_t>(channel.value % tracks())].position;
  const bool isNext = position[static_cast<size_t>(to.value)] == (position[static_cast<size_t>(from.value)] + 1) % ranks();
  if (!isNext) return 0;
  return sends ? netsOf(from, channel).out : netsOf(to, channel).in;
}

bool Layout::spreadsOverNets() const {
  return tracks() > 1 && !tracks_.front().nets.empty();
}

std::vector<std::vector<int32_t>> Layout::rings() const {
  std::vector<std::vector<int32_t>> orders;
  for (const Track& track : tracks_) orders.push_back(track.order);
  return orders;
}

/// The track with the most channels ends last.
double Layout::shared(double trackGBps, int32_t channels) const {
  const int32_t most = (channels + tracks() - 1) / tracks();
  return most < 1 ? 0 : trackGBps * channels / most;
}

algo::LayoutView Layout::view(Rank rank, Rank root, ChannelId channel) const {
  const Track& track = tracks_[static_cast<size_t>(channel.value % tracks())];
  const int32_t size = ranks();
  const int32_t position = track.position[static_cast<size_t>(rank.value)];
  const auto rankAt = [&](Rank at) { return at.value < 0 ? at : Rank(track.order[static_cast<size_t>(at.value)]); };

  algo::LayoutView view;
  view.rank = rank;
  view.ranks = size;
  view.root = root;
  view.ring = {track.order.data(), size, position};
  view.grid = {track.order.data(), nodes(), localRanks_, position / localRanks_, position % localRanks_};
  for (int32_t t = 0; t < algo::kTrees; ++t) {
    if (const auto& given = track.trees[static_cast<size_t>(t)]; !given.empty()) {
      view.tree[t] = given[static_cast<size_t>(rank.value)];
      continue;
    }
    algo::Tree tree = doubleBinaryTree(t, position, size);
    tree.parent = rankAt(tree.parent);
    for (int32_t i = 0; i < tree.children.count; ++i) tree.children.rank[i] = rankAt(tree.children.at(i));
    view.tree[t] = tree;
  }
  return view;
}

}  // namespace tutti::connect
