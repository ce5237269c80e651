#include "exec/cuda/brief.h"

#include <algorithm>
#include <limits>

namespace tutti::exec::cuda {
namespace {

/// The chunks of one call, as bytes: areEqual() until two of those that were asked for differ in length.
class Chunks {
 public:
  explicit Chunks(const Work& work) : work_(work), whole_(work.geometry), elementBytes_(sizeOf(work.type)) {
    whole_.partElems = whole_.sliceElems = whole_.chunkElems;  // one channel, one slice
  }

  const std::byte* at(algo::ChunkRef chunk) {
    const algo::Range range = whole_.range(chunk.chunk, 0, 0);
    const uint64_t bytes = range.elems * elementBytes_;
    areEqual_ = areEqual_ && (!isAny_ || bytes == bytes_);
    bytes_ = bytes;
    isAny_ = true;
    return (chunk.buffer == algo::Buffer::In ? work_.in : work_.out) + range.begin * elementBytes_;
  }
  /// Where peer 0's would be, and the distance between those of two peers.
  const std::byte* at(const Bundle& bundle, uint64_t& stride) {
    if (bundle.peers == 0) return nullptr;
    stride = bundle.isSame ? 0 : work_.geometry.chunkElems * elementBytes_;
    if (bundle.isSame) return at(bundle.chunk);
    for (int32_t peer = 0; peer < kMaxLocalRanks; ++peer)
      if (bundle.has(peer)) at(bundle.of(peer));
    return at({0, bundle.chunk.buffer});
  }
  bool areEqual() const { return areEqual_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const Work& work_;
  algo::Geometry whole_;
  const uint64_t elementBytes_;
  uint64_t bytes_ = 0;
  bool isAny_ = false;
  bool areEqual_ = true;
};

}  // namespace

namespace {

/// Two rounds, of which the second one does nothing but take.
bool canForward(const Rounds& rounds) {
  const Round& first = rounds.round[0];
  const Round& second = rounds.round[1];
  return rounds.count == 2 && first.forwards && first.combines && first.loads.peers == 0 && first.awaits == 0 && !first.hasCopy &&
         second.stores.peers == 0 && second.empties == 0 && !second.hasCopy && !second.combines && second.awaits == 0;
}

/// With `channel` as channel 0.
SharePages from(int32_t channel, const SharePages& pages) {
  if (channel >= kPlacedChannels) return {};
  return {{pages.laterIn[0] >> channel, pages.laterIn[1] >> channel}};
}

}  // namespace

bool makeBrief(const Launch& launch, const Rounds& rounds, bool areLines, BriefLaunch& brief) {
  const Work& work = launch.work[0];
  const Round& round = rounds.round[0];
  const Round& last = rounds.round[std::max(rounds.count - 1, 0)];
  const algo::Geometry& g = work.geometry;
  const bool forwards = areLines && canForward(rounds) && mayForward(g, launch.comm.ranks, sizeOf(work.type));
  if (rounds.count != 1 && !forwards) return false;
  if (g.slices < 1 || work.firstBlock != 0 || work.lanes != 1) return false;
  if (work.scaling.hasFactor && (work.factorSource != nullptr || (round.stores.peers != 0 && !round.stores.scales))) return false;

  Chunks chunks(work);
  brief.sent = chunks.at(round.stores, brief.sentStride);
  brief.taken = const_cast<std::byte*>(chunks.at(last.loads, brief.takenStride));
  brief.hasOwn = round.combines || round.hasCopy;
  if (brief.hasOwn) {
    brief.own = chunks.at(round.combines ? round.own : round.copyFrom);
    brief.result = const_cast<std::byte*>(chunks.at(round.combines ? round.result : round.copyTo));
    if (!round.combines && brief.own == brief.result) brief.hasOwn = false;
  }
  const uint64_t partBytes = g.partElems * sizeOf(work.type);
  const uint64_t sliceBytes = std::min(g.sliceElems * sizeOf(work.type), partBytes);
  const uint64_t bankBytes = windowBytes(launch.comm.ranks, launch.comm.window.channels, launch.comm.window.shareBytes) / 2;
  if (bankBytes > std::numeric_limits<int32_t>::max()) return false;
  if (!chunks.areEqual() || std::max(chunks.bytes(), partBytes * static_cast<uint64_t>(g.channels)) > std::numeric_limits<int32_t>::max())
    return false;

  const CommView& comm = launch.comm;
  const WindowView& window = comm.window;
  brief.chunkBytes = static_cast<uint32_t>(chunks.bytes());
  brief.partBytes = static_cast<uint32_t>(partBytes);
  brief.sliceBytes = static_cast<uint32_t>(sliceBytes);
  brief.slices = g.slices;
  brief.epochs = window.epochs + work.firstChannel;
  brief.rank = static_cast<uint8_t>(comm.rank);
  brief.ranks = static_cast<uint8_t>(comm.ranks);
  for (int32_t peer = 0; peer < comm.ranks; ++peer) {
    brief.window[peer] = window.share(peer, 0, comm.rank, comm.ranks, work.firstChannel);
    brief.storedPages[peer] = from(work.firstChannel, window.storedPages[peer]);
    brief.takenPages[peer] = from(work.firstChannel, window.takenPages[peer]);
  }
  brief.windows = window.share(comm.rank, 0, 0, comm.ranks, work.firstChannel);
  brief.bankBytes = bankBytes;
  brief.shareBytes = static_cast<uint32_t>(window.shareBytes);
  brief.stores = round.stores.peers;
  brief.empties = round.empties;
  brief.loads = last.loads.peers;
  brief.awaits = last.awaits;
  brief.forwards = round.nextPeers;
  brief.firstChannel = work.firstChannel;
  const auto place = [](const std::byte* p) { return reinterpret_cast<uintptr_t>(p); };
  const uint64_t all = place(brief.own) | place(brief.result) | place(brief.sent) | place(brief.taken) | brief.sentStride |
                       brief.takenStride | partBytes | (g.slices > 1 ? sliceBytes : 0);
  const uint64_t withChunks = all | brief.chunkBytes;
  brief.isAligned = all % kCellDataBytes == 0;
  brief.isInHalves = withChunks % (kCellDataBytes / 2) == 0 && withChunks % kCellDataBytes != 0;
  brief.numbers = numbersOf(work.type, work.op, work.scaling);
  brief.wait = comm.wait;
  return true;
}

}  // namespace tutti::exec::cuda
