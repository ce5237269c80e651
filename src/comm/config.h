// What ncclConfig_t and its environment variables come to. Plain value.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::comm {

struct Config {
  int32_t minCtas = 1;
  int32_t maxCtas = 64;
  std::string name;
  std::string network;  ///< the one to use between hosts, by name; empty: any
  int32_t trafficClass = -1;  ///< for that network, as it is; -1: not said
  int32_t clusterBlocks = -1;  ///< of a cluster of thread blocks, at most; -1: as the library likes, 0 and 1: none
  int32_t ctaPolicy = 0;  ///< NCCL_CTA_POLICY_…
  bool blocking = true;
  bool splitShare = false;   ///< children of a split share this communicator's resources
  bool shrinkShare = false;  ///< the same for children of a shrink
};

}  // namespace tutti::comm
