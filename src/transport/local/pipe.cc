#include "transport/local/pipe.h"

#include <algorithm>
#include <utility>

namespace tutti::transport::local {
namespace {

constexpr uint64_t kPage = 4096;

/// A small message is taken in a few dozen nanoseconds, and it takes hundreds until the sender has heard of it.
constexpr uint32_t kHeads = 16;

uint32_t headsOf(uint32_t slots) { return slots * std::max(1U, kHeads / slots); }
uint64_t deskAt(uint32_t slots) { return headsOf(slots) * sizeof(SlotHead) + sizeof(FreedCount); }
uint64_t stagingAt(uint32_t slots) { return (deskAt(slots) + sizeof(CopyDesk) + kPage - 1) / kPage * kPage; }
uint64_t strideOf(uint64_t slotBytes) { return (slotBytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

}  // namespace

uint64_t pipeBytes(uint32_t slots, uint64_t slotBytes) {
  return stagingAt(slots) + headsOf(slots) * kShortBytes + slots * strideOf(slotBytes);
}

PipeView pipeIn(std::byte* memory, uint32_t slots, uint64_t slotBytes, int32_t ranks) {
  constexpr uint64_t kOfARank = 2 << 20;
  PipeView view;
  view.heads = reinterpret_cast<SlotHead*>(memory);
  view.freed = reinterpret_cast<FreedCount*>(memory + headsOf(slots) * sizeof(SlotHead));
  view.desk = reinterpret_cast<CopyDesk*>(memory + deskAt(slots));
  view.memory = memory + stagingAt(slots);
  view.numHeads = headsOf(slots);
  view.slots = slots;
  view.slotBytes = strideOf(slotBytes);
  view.movingRoom = ranks <= 2 ? view.slotBytes : std::min(view.slotBytes, kOfARank / (static_cast<uint64_t>(ranks - 1) * slots));
  return view;
}

Result<Pipe> Pipe::create(uint32_t slots, uint64_t slotBytes) {
  auto mapping = memory::Mapping::anonymous(Bytes(pipeBytes(slots, slotBytes)));
  if (!mapping) return tl::unexpected(std::move(mapping).error().at("create pipe"));
  Pipe pipe;
  pipe.mapping_ = std::move(*mapping);
  pipe.view_ = pipeIn(pipe.mapping_.data(), slots, slotBytes);
  pipe.view_.freed->reach.store(kReachesAll, std::memory_order_relaxed);
  return pipe;
}

}  // namespace tutti::transport::local
