#include "gpu/buffers.h"

#include <algorithm>

namespace tutti::bench::gpu {
namespace {

constexpr uint64_t kSlotAlignment = 4096;

uint64_t strideOf(const CallKind& kind, int ranks) {
  return (std::max<uint64_t>(kind.bytes(ranks), 1) + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

}  // namespace

std::byte* allocate(Device& device, const Library& owner, Buffers kind, uint64_t bytes) {
  return kind == Buffers::Plain ? device.allocate(bytes) : owner.allocate(bytes);
}

BlockBuffers::BlockBuffers(Device& device, const BenchOptions& options, const Library& owner, int rank, int ranks)
    : device_(device),
      options_(options),
      owner_(owner),
      rank_(rank),
      ranks_(ranks),
      capacity_((std::max(options.maxBytes, options.rotateBytes) / kAllocationUnit + 1) * kAllocationUnit) {
  for (std::byte** memory : {&send_, &receive_}) {
    *memory = allocate(device, owner, options.buffers, capacity_);
    device.spoil(*memory, capacity_);
  }
}

BlockBuffers::~BlockBuffers() {
  for (std::byte* memory : {send_, receive_}) {
    if (options_.buffers == Buffers::Plain)
      device_.release(memory);
    else
      owner_.release(memory);
  }
}

int BlockBuffers::slots(const CallKind& kind, int calls) const {
  const uint64_t fit = std::max<uint64_t>(1, options_.rotateBytes / strideOf(kind, ranks_));
  return static_cast<int>(std::min<uint64_t>(fit, static_cast<uint64_t>(calls)));
}

Place placeIn(const CallKind& kind, std::byte* send, std::byte* receive, int rank) {
  Place place{send, receive};
  if (!kind.isInPlace) return place;
  const uint64_t own = kind.count * sizeOf(kind.type) * static_cast<uint64_t>(rank);
  const Operation& operation = *kind.operation;
  if (operation.receivesBlocks) {
    if (operation.receives(rank, kind.root)) place.send = place.receive + own;
  } else if (operation.sendsBlocks) {
    if (operation.sends(rank, kind.root)) place.receive = place.send + own;
  } else {
    place.receive = place.send;
  }
  return place;
}

Place BlockBuffers::place(const CallKind& kind, int slot) const {
  const uint64_t offset = strideOf(kind, ranks_) * static_cast<uint64_t>(slot);
  return placeIn(kind, send_ + offset, receive_ + offset, rank_);
}

void BlockBuffers::write(const CallKind& kind, int slots, uint64_t seed) {
  for (int slot = 0; slot < slots; ++slot) {
    const Place at = place(kind, slot);
    device_.spoil(at.receive, kind.receiveBytes(ranks_));  // first: in place, the input lies there
    device_.fill(at.send, kind.operation->sendCount(kind.count, ranks_), seed + static_cast<uint64_t>(slot), rank_);
  }
}

uint64_t BlockBuffers::countWrong(const CallKind& kind, int slots, uint64_t seed, std::string_view who) {
  if (!kind.operation->receives(rank_, kind.root)) return 0;
  const Expectation expectation = expectationOf(*kind.operation, kind.count, rank_, ranks_, kind.root);
  uint64_t wrong = 0;
  for (int slot = 0; slot < slots; ++slot) {
    const uint64_t count = kind.operation->receiveCount(kind.count, ranks_);
    const Difference difference = device_.compare(place(kind, slot).receive, count, seed + static_cast<uint64_t>(slot), expectation);
    if (difference.wrong != 0 && wrong == 0)
      std::fprintf(stderr, "wrong: %.*s, %s, rank %d, slot %d: %llu of %llu elements, the first is %llu\n", static_cast<int>(who.size()),
                   who.data(), describe(kind, ranks_).c_str(), rank_, slot, static_cast<unsigned long long>(difference.wrong),
                   static_cast<unsigned long long>(count), static_cast<unsigned long long>(difference.first));
    wrong += difference.wrong;
  }
  return wrong;
}

}  // namespace tutti::bench::gpu
