// Grids in clusters of thread blocks. Plain values, pure functions; where the limits come from: launch.h and comm/settings.cc.
//
// The blocks of a cluster are put on the device together, in one of its parts (a GPC). A grid of single blocks fills one part after the
// other, and the links of a GPU are not reached equally fast from all of them: in clusters of 4 half the blocks keep a link as busy
// (docs/decisions/0039-clusters.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::exec::cuda {

/// Blocks of a cluster, the largest first.
inline constexpr std::array<int32_t, 3> kClusterSizes = {8, 4, 2};

/// By kClusterSizes: the most blocks of a grid in such clusters; 0: none may be.
using ClusterLimits = std::array<int32_t, kClusterSizes.size()>;

/// Fewer blocks keep no link busy: they would only wait for as many multiprocessors of one part.
inline constexpr int32_t kLeastClustered = 8;

struct Grid {
  int32_t blocks = 0;
  int32_t clusterBlocks = 1;
};

/// For `blocks` blocks that have work to do, in the largest clusters that the limits allow; the last of them may have blocks that have
/// none, but not beyond `most`.
constexpr Grid makeGrid(int32_t blocks, int32_t most, const ClusterLimits& limits) {
  if (blocks < kLeastClustered) return {blocks, 1};
  for (std::size_t i = 0; i < kClusterSizes.size(); ++i) {
    const int32_t size = kClusterSizes[i];
    const int32_t padded = (blocks + size - 1) / size * size;
    if (padded <= limits[i] && (padded == blocks || padded <= most)) return {padded, size};
  }
  return {blocks, 1};
}

}  // namespace tutti::exec::cuda
