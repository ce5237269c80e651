// Whether the programs of an algorithm fit into a kernel, on every rank of a communicator: so that all ranks choose alike.
//
// Owner: the planner; one thread. Each answer is found once.
// 1. What is said of pipes holds for every track of the layout: a channel has the ends of its own one.
// 2. Whatever is called, and in whichever order, the ends of all pipes fit (up to kMostDeviceRanks): those of messages between all ranks
//    are set aside, and an algorithm that finds no room beside them and the algorithms before it in algo/list.h fits nowhere. Up to 10
//    ranks all of them have room.
#pragma once

#include <array>
#include <bitset>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "algo/sendrecv.h"
#include "connect/layout.h"
#include "exec/cuda/launch.h"
#include "exec/record/catalog.h"

namespace tutti::plan {

/// The most ranks of a communicator of GPUs. Ends of pipes stay for good, and of a protocol on a channel a rank has at most
/// exec::cuda::kMostEnds, which is 64. For each of its n - 1 peers it sends and receives the caller's messages (port 3) and those of
/// all-to-all, gather and scatter (port 2); a ring takes two more. 16: 60 + 2; 17: 64 + 2. Where gather and scatter have a port of their
/// own (kMostStarRanks), each of six ports has two ends a peer at most.
inline constexpr int32_t kMostDeviceRanks = 16;
/// The most ranks whose gather and scatter may have a port of their own (DeviceSettings::plainStarChannels).
inline constexpr int32_t kMostStarRanks = 4;

/// Whether the pipes of so many ranks fit, whatever they call later; InvalidUsage, with the numbers, if not. Any thread.
Status fitRanks(int32_t ranks);

struct DeviceFit {
  Status status;       ///< what does not fit; of the first rank
  uint64_t ports = 0;  ///< bits: ports of all ranks' pipes; ports of 63 and more share a bit
};

class DeviceFits {
 public:
  /// `layout` outlives it.
  explicit DeviceFits(const connect::Layout& layout) : layout_(layout) {}

  /// Of kernels that have what the algorithm needs, pipes or windows.
  const DeviceFit& of(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, Rank root);
  /// On the channels of which tracks `rank` may ever use such an end, whatever is called: its peer comes to the same.
  exec::cuda::Tracks tracksOf(Rank rank, uint8_t port, bool sends, Rank peer);

 private:
  /// A program's ends of pipes, of up to kMostDeviceRanks ranks: port, whether it sends, peer.
  static constexpr size_t kEnds = size_t{algo::kPorts} * 2 * kMostDeviceRanks;
  using Ends = std::bitset<kEnds>;
  static constexpr size_t placeOf(uint8_t port, bool sends, int32_t peer) {
    return (port * size_t{2} + (sends ? 1 : 0)) * kMostDeviceRanks + static_cast<size_t>(peer);
  }
  static Status check(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, const exec::record::Program& program,
                      Rank rank, uint64_t& ports);
  void setAside();
  DeviceFit find(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, Rank root) const;

  const connect::Layout& layout_;
  bool isSetAside_ = false;
  std::vector<std::array<uint64_t, kEnds>> tracks_;  // by rank and end: tracks as bits; empty: one track, or too many ranks
  std::set<const exec::record::Algorithm*> withoutRoom_;
  std::map<std::tuple<const exec::record::Algorithm*, bool, int32_t>, DeviceFit> known_;  // algorithm, Window's or not, root
};

}  // namespace tutti::plan
