#include "plan/host_sizes.h"

#include <algorithm>

#include "plan/planner.h"

namespace tutti::plan {

bool copiesFaster(Collective collective, uint64_t bytes) {
  switch (collective) {
    case Collective::AllGather: return bytes >= 1 << 20 && bytes < kPastAnyCache;
    case Collective::AllToAll:
    case Collective::Broadcast: return bytes >= 512 << 10 && bytes < kPastAnyCache;
    default: return bytes >= 1 << 20;
  }
}

connect::PipeSize fine(const connect::PipeSize& pipe) { return {pipe.slots * 16, std::max<uint64_t>(64, pipe.slotBytes / 8)}; }

connect::PipeSize shorter(const connect::PipeSize& pipe, int32_t ranks) {
  constexpr uint64_t kOfARank = 4 << 20;
  const uint64_t slotBytes = std::max<uint64_t>(64, pipe.slotBytes / 4);
  const uint64_t most = std::min(4 * pipe.slots, kMostSlotsOfLate);
  const uint64_t room = kOfARank / (static_cast<uint64_t>(std::max(1, ranks - 1)) * slotBytes);
  return {std::max(pipe.slots, static_cast<uint32_t>(std::min(most, room))), slotBytes};
}

bool isWorthFanning(uint64_t bytes, int32_t ranks, int32_t cores) {
  constexpr uint64_t kLeastBytes = 8192;
  return ranks > 2 && (ranks == 3 || ranks > cores || bytes >= kLeastBytes);
}

uint64_t footprint(Collective collective, uint64_t bytes, uint64_t ranks) {
  switch (collective) {
    case Collective::AllReduce:
    case Collective::AllToAll: return 2 * bytes;
    case Collective::AllGather:
    case Collective::Reduce:
    case Collective::ReduceScatter: return bytes + bytes / ranks;
    case Collective::Gather:
    case Collective::Scatter: return 2 * bytes / ranks;
    default: return bytes;
  }
}

}  // namespace tutti::plan
