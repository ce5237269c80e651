// Which shares of a window of cells are to begin on their second page (window.h): what a kernel finds out once, when the window is made.
// Plain values, the same on host and device.
//
// A GPU of two halves has a part of its cache in each. A line is at home in one of them, by a parity of address bits, so of two pages that
// follow each other from an even one on one is near a block, and what others store there is seen earlier: by 0.11 to 0.18 us on H100
// (`gpu_limits --only pages`).
// 1. An atomic is carried out where its line is at home, so it tells how far that is. Block c times the shares of channel c, for blocks of
//    the same number run in the same place in grids of any size while the GPU does nothing else. Where it does, or has no halves, a share
//    begins where it is no worse than any.
// 2. The window is zero and no peer knows of it yet. The kernel leaves it as it is; owner and writers go by the same answer ever after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "exec/cuda/window.h"

namespace tutti::exec::cuda {

struct NearLaunch {
  std::byte* window = nullptr;  ///< of this rank
  uint64_t shareBytes = 0;      ///< a multiple of two pages, and so is the window's address
  int32_t rank = 0;
  int32_t ranks = 1;
  int32_t channels = 0;        ///< of the window
  SharePages* pages = nullptr;  ///< by writer, in the memory of the GPU; zero before
};
static_assert(std::is_trivially_copyable_v<NearLaunch>);

/// Blocks of the launch.
constexpr int32_t nearBlocks(const NearLaunch& launch) {
  return launch.channels < kPlacedChannels ? launch.channels : kPlacedChannels;
}
/// Whether a window of such shares has pages to choose from.
constexpr bool hasNearPages(Protocol protocol, uint64_t shareBytes) {
  return shareRoom(protocol, shareBytes) < shareBytes && shareBytes % (2 * kPageBytes) == 0;
}

}  // namespace tutti::exec::cuda
