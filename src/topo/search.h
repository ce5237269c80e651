// The channels that a collective runs on inside one node (or one NVLink clique): which GPUs in which order, at which speed.
//
// Pure functions of plain values; any thread. The same input gives the same channels on every machine.
// 1. A hop is charged once, in its listed direction, to every link of its path (charges.h); no link carries more than its bandwidth.
// 2. All channels of a set run at the same two speeds: one between GPUs, one to and from the nets.
// 3. `boundGBps` is a proven upper bound of channels × min(intraGBps, interGBps) over all sets that the request and its settings allow; a
//    set that reaches it is optimal.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "topo/graph.h"
#include "topo/paths.h"

namespace tutti::topo {

/// How the GPUs of a channel are joined. Values are those of graph XML.
enum class Pattern : uint8_t {
  BalancedTree = 1,   ///< A chain; the net is shared half and half by its first two GPUs.
  SplitTree = 2,      ///< A chain; data comes in at the first GPU and leaves at the second.
  Tree = 3,           ///< A chain; the first GPU serves the net both ways.
  Ring = 4,           ///< Every GPU sends to the next one; with nets: in at the first GPU, out at the last.
  Nvls = 5,           ///< One GPU pulls from the NVSwitch, which reduces; only that head is listed.
  CollnetDirect = 6,  ///< A head that talks to the net and to every other GPU.
};
std::string_view patternName(Pattern pattern);  ///< "BALANCED_TREE", "RING", …
constexpr bool isTree(Pattern pattern) {
  return pattern == Pattern::BalancedTree || pattern == Pattern::SplitTree || pattern == Pattern::Tree;
}

/// Which collective the channels are for. Values are the ids of graph XML.
enum class GraphKind : uint8_t { Ring = 0, Tree = 1, CollnetChain = 2, Nvls = 3, CollnetDirect = 4 };
inline constexpr int kGraphKinds = 5;

/// Whether channels may leave by another rail (NIC and port) than they came in by.
enum class CrossNic : uint8_t {
  Never = 0,
  Always = 1,
  InPairs = 2,  ///< Channels 2i and 2i+1 use the same two nets the other way round; hosts with odd numbers swap them.
};

struct SearchSettings {
  int crossNic = 2;        ///< NCCL_CROSS_NIC: 0 never, 1 always, 2 where it brings more.
  int64_t effort = 40000;  ///< How many steps one search may take; its time is bounded by it.
  /// No channel runs slower than this part of the speed that one channel alone could have: a block of threads costs the same whatever it
  /// carries. The reference stops at about a half.
  float slowest = 1.0F / 6;
};

struct SearchRequest {
  Pattern pattern = Pattern::Ring;
  int minChannels = 1;
  int maxChannels = 32;
  bool collnet = false;   ///< Only nets that reduce.
  float atLeastGBps = 0;  ///< Sets below it are not looked for: none is found rather than a lesser one.
  SearchSettings settings = {};
};

struct Channel {
  std::vector<NodeId> gpus;  ///< In channel order: all GPUs of the system; of Nvls the head alone.
  NodeId netIn = kNoNode;    ///< kNoNode when the system is not `inter`.
  NodeId netOut = kNoNode;
  bool operator==(const Channel&) const = default;
};

struct ChannelSet {
  Pattern pattern = Pattern::Ring;
  std::vector<Channel> channels;
  float intraGBps = 0;                 ///< Of every channel, between GPUs.
  float interGBps = 0;                 ///< Of every channel, to and from its nets.
  PathType typeIntra = PathType::Loc;  ///< The farthest path that a hop between GPUs takes.
  PathType typeInter = PathType::Pix;  ///< The farthest path to or from a net.
  bool sameChannels = false;           ///< All channels have the same order of GPUs.
  CrossNic crossNic = CrossNic::Never;
  float latencyInterUs = 0;
  float boundGBps = 0;  ///< Invariant 3; 0 in a set that was read from a file.

  int count() const { return static_cast<int>(channels.size()); }
  float sumGBps() const { return static_cast<float>(count()) * (intraGBps < interGBps ? intraGBps : interGBps); }
};

/// Finds channels for one pattern; none (an empty set) where the pattern cannot be: no NVSwitch, no net that reduces.
/// Ring and trees of a system with GPUs always have channels. Error: the system has no GPU, or GPUs that no path joins.
Result<ChannelSet> searchChannels(const System& system, const Paths& paths, const SearchRequest& request);

/// All five sets of a system, in the order of GraphKind; trees have as many channels as rings.
struct Graphs {
  ChannelSet sets[kGraphKinds];
  bool computed[kGraphKinds] = {};  ///< Nvls and CollNet only where they are asked for.
  std::string note;                 ///< Where sets of a file promise more than the machine has: what, and where it shows; empty otherwise.
  ChannelSet& operator[](GraphKind kind) { return sets[static_cast<size_t>(kind)]; }
  const ChannelSet& operator[](GraphKind kind) const { return sets[static_cast<size_t>(kind)]; }
};
struct GraphsRequest {
  bool collnet = false;
  bool nvls = false;
  SearchSettings settings = {};
};
Result<Graphs> searchGraphs(const System& system, const Paths& paths, const GraphsRequest& request);

/// What one channel can carry at most: a block of threads moves no more. By the oldest GPU (sm) of the system.
float channelCeilingGBps(int sm, bool inter);
int oldestSm(const System& system);

/// The reference's rule: channels fast enough are laid twice, each at half the speed, so that more blocks share the work. But not a lone
/// one that changes rails in pairs: the second one would have to take its nets the other way round, where there may be no room.
void duplicateChannels(ChannelSet& set, int sm, int maxChannels);

}  // namespace tutti::topo
