// How long a call takes on GPUs that links and networks join, as far as a topology tells: from an algorithm's recorded steps, the channels
// that were found for it, and the constants of a platform ("links").
//
// Owner: the planner, by value; one thread. Estimates depend on the fabric, the constants and the call alone.
// 1. Bytes go over the slower of two: those that the busiest rank sends over the channels inside its node, and those that a node sends
//    over its channels to the net.
// 2. The constants are NCCL's or fitted to a machine; the steps are those of this library's algorithms. Only what NCCL has a name for
//    (familyOf) has constants.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "exec/record/profile.h"
#include "tune/choose.h"
#include "tune/cost.h"
#include "tune/platform.h"
#include "tune/profiles.h"

namespace tutti::tune {

/// The channels of a kind.
struct Lines {
  int32_t channels = 0;
  double intraGBps = 0;  ///< of each, between GPUs of a node
  double interGBps = 0;  ///< of each, to and from the net
  LinkKind link = LinkKind::NvLink;
  double netUs = 0;       ///< of the net itself, added to a hop over it
  bool oneChain = false;  ///< one GPU serves the net both ways
};

struct Fabric {
  int32_t ranks = 1;
  int32_t nodes = 1;
  Generation generation = Generation::Hopper;
  Lines rings;
  Lines trees;
  std::vector<std::vector<int32_t>> ringOrders;  ///< of the tracks that channels take in turn (connect/layout.h); empty: not known
  bool keepsLines = true;  ///< lines of 128 bytes arrive whole and in order: NVLink between all GPUs of a node
};

class LinkModel {
 public:
  LinkModel(const Fabric& fabric, const LinkConstants& constants)
      : fabric_(fabric), constants_(constants), profiles_(fabric.ranks, fabric.ranks / fabric.nodes, false) {}

  /// Of a call whose larger buffer has `bytes`, with so many channels, which the fabric has; none where there are no constants.
  std::optional<Cost> estimate(const exec::record::Algorithm& algorithm, NcclProtocol protocol, int32_t channels, uint64_t bytes);
  /// The channels that an algorithm runs on.
  const Lines& linesOf(NcclAlgorithm family) const { return family == NcclAlgorithm::Tree ? fabric_.trees : fabric_.rings; }
  /// Goes on with other constants.
  void use(const LinkConstants& constants) { constants_ = constants; }
  const Fabric& fabric() const { return fabric_; }

 private:
  double channelsGBps(NcclAlgorithm family, NcclProtocol protocol, int32_t channels, double eachGBps) const;

  Fabric fabric_;
  LinkConstants constants_;
  Profiles profiles_;
};

}  // namespace tutti::tune
