// What a kernel's wait that gave up leaves behind, and what it needs to be able to. Plain views, the same on host and device.
//
// Owner: whoever allocated them (host memory that every device has mapped); they outlive every launch that was given them.
// 1. The first wait that gives up claims the verdict, fills it in and then sets `state` to Complete; later ones leave it alone.
// 2. `abort` is set by the host or by any rank whose wait gave up; it is never cleared while a kernel runs.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tutti::exec::cuda {

enum class Waiting : uint32_t { None, ForData, ForSlot, ForCell };

struct Verdict {
  enum State : uint32_t { Empty, Claimed, Complete };
  uint32_t state;  // device: exchange to claim, then a store after a fence; host reads after the kernel has ended
  Waiting waiting;
  int32_t rank;  ///< who waited
  int32_t peer;  ///< for whom
  int32_t channel;
  uint64_t expected;  ///< ForData, ForSlot: the counter waited for; ForCell: the epoch
  uint64_t seen;
};

/// Keeps a waiting device off the bus: of all its threads at most one looks at the host's abort word in every kHostLookNs, and
/// tells the others. A look by every waiting warp costs some 0.6 us each, one after the other (docs/decisions/0002): with 512
/// warps longer than a whole check interval, so that two ranks which had once waited for each other never got back to speed.
struct AbortRelay {
  uint64_t lookedNs;  // device time of the last look; the thread that exchanges it (relaxed) does the next
  uint32_t stop;      // that thread sets it (relaxed); all waiting threads of the rank poll it (relaxed)
};

/// How long device waits go on, and where they look whether to stop.
struct WaitControl {
  uint32_t* abort = nullptr;    ///< in host memory; host and devices write 1 (relaxed)
  AbortRelay* relay = nullptr;  ///< in the rank's own memory
  Verdict* verdict = nullptr;
  uint64_t timeoutNs = 0;
};
static_assert(std::is_trivially_copyable_v<WaitControl> && std::is_trivially_copyable_v<Verdict>);

}  // namespace tutti::exec::cuda
