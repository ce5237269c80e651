// The addresses that the host works out for a brief call, beside those that the geometry gives for every channel, slice and peer.
#include "exec/cuda/brief.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/types.h"
#include "exec/record/catalog.h"

namespace tutti::exec::cuda::brief_test {
namespace {

using exec::record::Algorithm;

constexpr uintptr_t kIn = 0x1000'0000, kOut = 0x2000'0000, kWindow = 0x3000'0000;
constexpr uint64_t kShareBytes = 4096;
constexpr int32_t kWindowChannels = 9, kFirstChannel = 1;

uint8_t placeOf(const Algorithm& algorithm) { return static_cast<uint8_t>(&algorithm - exec::record::algorithms().data()); }
std::byte* address(uintptr_t at) { return reinterpret_cast<std::byte*>(at); }
uintptr_t number(const void* at) { return reinterpret_cast<uintptr_t>(at); }

struct Case {
  const Algorithm& algorithm;
  int32_t rank, ranks, root;
  DataType type;
  uint64_t count;
  int32_t channels;
  uint64_t sliceBytes;
};

Launch launchOf(const Case& c) {
  Launch launch;
  launch.comm.rank = c.rank;
  launch.comm.ranks = c.ranks;
  WindowView& window = launch.comm.window;
  for (int32_t r = 0; r < c.ranks; ++r) window.base[r] = address(kWindow * static_cast<uintptr_t>(r + 1));
  window.shareBytes = kShareBytes;
  window.channels = kWindowChannels;
  window.epochs = reinterpret_cast<uint64_t*>(address(0x100));
  for (int32_t r = 0; r < c.ranks; ++r) {
    window.storedPages[r] = {{0x0000000fu << r, 0xf000a5a5u >> r}};
    window.takenPages[r] = {{0x12345678u * static_cast<uint32_t>(r + 1), 0x9abcdef1u}};
  }
  launch.works = 1;
  Work& work = launch.work[0];
  work.algorithm = placeOf(c.algorithm);
  work.type = c.type;
  work.root = static_cast<uint8_t>(c.root);
  work.firstChannel = kFirstChannel;
  work.in = address(kIn);
  work.out = address(kOut);
  work.geometry = algo::makeGeometry(c.algorithm.traits.division, c.count, c.algorithm.chunks(c.ranks), c.type, c.channels, c.sliceBytes);
  return launch;
}

/// What a block of `channel` works on in `slice` of the chunk at `base`, as brief_lane.cuh has it.
struct Part {
  uintptr_t begin;
  uint64_t bytes;
};
Part partOf(const BriefLaunch& brief, const std::byte* base, int32_t channel, int32_t slice) {
  const uint64_t begin = static_cast<uint64_t>(channel) * brief.partBytes;
  const uint64_t end = std::min<uint64_t>(begin + brief.partBytes, brief.chunkBytes);
  const uint64_t at = std::min(begin + static_cast<uint64_t>(slice) * brief.sliceBytes, end);
  return {number(base) + at, std::min<uint64_t>(brief.sliceBytes, end - at)};
}

class Checker {
 public:
  explicit Checker(const Case& c) : case_(c), launch_(launchOf(c)) {}

  /// Two rounds of more than a brief call may have.
  bool isLong() const {
    return case_.algorithm.traits.rounds > 1 && !mayForward(launch_.work[0].geometry, case_.ranks, sizeOf(case_.type));
  }
  void check() {
    const Rounds rounds = makeRounds(placeOf(case_.algorithm), case_.rank, case_.ranks, case_.root);
    ASSERT_TRUE(makeBrief(launch_, rounds, true, brief_));
    const Round& round = rounds.round[0];
    const Round& last = rounds.round[rounds.count - 1];
    EXPECT_EQ(brief_.stores, round.stores.peers);
    EXPECT_EQ(brief_.forwards, rounds.count == 1 ? 0 : round.stores.peers);
    EXPECT_EQ(brief_.loads, last.loads.peers);
    EXPECT_EQ(brief_.empties, round.empties);
    EXPECT_EQ(brief_.awaits, last.awaits);
    EXPECT_EQ(brief_.slices, launch_.work[0].geometry.slices);
    for (int32_t peer = 0; peer < case_.ranks; ++peer) {
      const auto place = static_cast<uint32_t>(peer);
      if (round.stores.has(peer)) same(brief_.sent + place * brief_.sentStride, round.stores.of(peer));
      if (last.loads.has(peer)) same(brief_.taken + place * brief_.takenStride, last.loads.of(peer));
      for (const uint64_t epoch : {2, 3}) windows(peer, epoch);
    }
    const bool copies = round.hasCopy && !(round.copyFrom.buffer == round.copyTo.buffer && round.copyFrom.chunk == round.copyTo.chunk);
    EXPECT_EQ(brief_.hasOwn, round.combines || copies);
    if (!brief_.hasOwn) return;
    same(brief_.own, round.combines ? round.own : round.copyFrom);
    same(brief_.result, round.combines ? round.result : round.copyTo);
  }

 private:
  void same(const std::byte* base, algo::ChunkRef chunk) {
    const algo::Geometry& g = launch_.work[0].geometry;
    const uint64_t elementBytes = sizeOf(case_.type);
    for (int32_t channel = 0; channel < g.channels; ++channel) {
      for (int32_t slice = 0; slice < g.slices; ++slice) {
        const algo::Range wanted = g.range(chunk.chunk, channel, slice);
        const Part found = partOf(brief_, base, channel, slice);
        EXPECT_EQ(found.bytes, wanted.elems * elementBytes) << "channel " << channel << ", slice " << slice;
        if (found.bytes == 0) continue;
        EXPECT_EQ(found.begin, (chunk.buffer == algo::Buffer::In ? kIn : kOut) + wanted.begin * elementBytes);
        if (brief_.isAligned) {
          EXPECT_EQ(found.begin % 8, 0U);
        }
      }
    }
  }
  void windows(int32_t peer, uint64_t epoch) const {
    const WindowView& window = launch_.comm.window;
    for (int32_t channel = 0; channel < case_.channels; ++channel) {
      const uint64_t inWindow = (epoch & 1) * brief_.bankBytes + static_cast<uint64_t>(channel) * brief_.shareBytes * brief_.ranks;
      EXPECT_EQ(brief_.window[peer] + inWindow + brief_.storedPages[peer].bytesBefore(epoch, channel),
                window.shareAt(peer, epoch, case_.rank, case_.ranks, kFirstChannel + channel));
      const uint64_t ofPeer = static_cast<uint64_t>(peer) * brief_.shareBytes + brief_.takenPages[peer].bytesBefore(epoch, channel);
      EXPECT_EQ(brief_.windows + inWindow + ofPeer,
                window.shareOf(peer, epoch, case_.rank, case_.ranks, kFirstChannel + channel));
    }
  }

  const Case case_;
  Launch launch_;
  BriefLaunch brief_;
};

TEST(Brief, AddressesAreThoseOfTheGeometry) {
  int algorithms = 0;
  int forwarded = 0;
  for (const Algorithm& algorithm : exec::record::algorithms()) {
    if (!mayBeLone(placeOf(algorithm))) continue;
    ++algorithms;
    for (int32_t ranks = 2; ranks <= kMaxLocalRanks; ++ranks) {
      for (int32_t rank = 0; rank < ranks; ++rank) {
        for (const int32_t root : {0, ranks - 1}) {
          for (const DataType type : {DataType::U8, DataType::F32, DataType::F64}) {
            for (const uint64_t count : {1, 7, 64, 1000, 4099}) {
              for (const int32_t channels : {1, 3, 8}) {
                for (const uint64_t sliceBytes : {240, 1 << 20}) {
                  SCOPED_TRACE(std::string(algorithm.traits.name) + " " + std::string(name(algorithm.traits.collective)) + ", rank " +
                               std::to_string(rank) + " of " + std::to_string(ranks) + ", root " + std::to_string(root) + ", " +
                               std::to_string(count) + " x " + std::to_string(sizeOf(type)) + ", channels " + std::to_string(channels));
                  // Chunks of one length: those of two-shot are shares of the count.
                  const uint64_t all = algorithm.traits.rounds == 1 ? count : count * static_cast<uint64_t>(ranks) * algo::kShareAlignBytes;
                  Checker checker({algorithm, rank, ranks, root, type, all, channels, sliceBytes});
                  forwarded += algorithm.traits.rounds > 1 && !checker.isLong() ? 1 : 0;
                  if (!checker.isLong()) checker.check();
                  if (HasFailure()) return;
                }
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(algorithms, 9);
  EXPECT_GT(forwarded, 1000);
}

TEST(Brief, LeavesOutWhatItCannotCarryOut) {
  BriefLaunch brief;
  for (const Algorithm& algorithm : exec::record::algorithms()) {
    if (!mayBeLone(placeOf(algorithm))) continue;
    const Launch nothing = launchOf({algorithm, 0, 2, 0, DataType::F32, 0, 2, 1 << 20});
    EXPECT_FALSE(makeBrief(nothing, makeRounds(placeOf(algorithm), 0, 2, 0), false, brief)) << "no slice";
    Launch later = launchOf({algorithm, 0, 2, 0, DataType::F32, 1000, 2, 1 << 20});
    later.work[0].firstBlock = 1;
    EXPECT_FALSE(makeBrief(later, makeRounds(placeOf(algorithm), 0, 2, 0), false, brief)) << "not the first block";
    Launch huge = launchOf({algorithm, 0, 2, 0, DataType::F64, uint64_t{1} << 29, 2, 1 << 20});
    EXPECT_FALSE(makeBrief(huge, makeRounds(placeOf(algorithm), 0, 2, 0), false, brief)) << "offsets of 32 bits";
    const Rounds rounds = makeRounds(placeOf(algorithm), 0, 2, 0);
    Launch launch = launchOf({algorithm, 0, 2, 0, DataType::F32, 1024, 2, 1 << 20});
    EXPECT_EQ(makeBrief(launch, rounds, false, brief), rounds.count == 1) << algorithm.traits.name;
    EXPECT_TRUE(makeBrief(launch, rounds, true, brief)) << algorithm.traits.name;
    const Launch large = launchOf({algorithm, 0, 4, 0, DataType::U8, 8 * kMostForwardedBytes + 512, 2, 1 << 20});
    EXPECT_EQ(makeBrief(large, makeRounds(placeOf(algorithm), 0, 4, 0), true, brief), rounds.count == 1) << algorithm.traits.name;
    const Launch uneven = launchOf({algorithm, 0, 3, 0, DataType::F32, 1000, 2, 1 << 20});
    EXPECT_EQ(makeBrief(uneven, makeRounds(placeOf(algorithm), 0, 3, 0), true, brief), rounds.count == 1) << algorithm.traits.name;
    if (rounds.count != 1 || !reduces(algorithm.traits.collective)) continue;
    launch.work[0].scaling.hasFactor = true;
    EXPECT_TRUE(makeBrief(launch, rounds, false, brief));
    launch.work[0].factorSource = address(0x10);
    EXPECT_FALSE(makeBrief(launch, rounds, false, brief)) << "a factor in memory that grids before this one may still be writing";
  }
}

TEST(Brief, AlignmentIsThatOfAllBuffers) {
  const Algorithm* const gather = exec::record::findAlgorithm(Collective::AllGather, "direct");
  ASSERT_NE(gather, nullptr);
  const auto briefOf = [&](DataType type, uint64_t count, uintptr_t shift) {
    Launch launch = launchOf({*gather, 0, 3, 0, type, count, 1, 1 << 20});
    launch.work[0].out += shift;
    BriefLaunch brief;
    EXPECT_TRUE(makeBrief(launch, makeRounds(placeOf(*gather), 0, 3, 0), false, brief));
    return brief;
  };
  const auto isAligned = [&](uint64_t count, uintptr_t shift) { return briefOf(DataType::F32, count, shift).isAligned; };
  EXPECT_TRUE(isAligned(64, 0));
  EXPECT_FALSE(isAligned(64, 4)) << "output";
  EXPECT_FALSE(isAligned(63, 0)) << "stride";
  const auto isInHalves = [&](DataType type, uint64_t count, uintptr_t shift) { return briefOf(type, count, shift).isInHalves; };
  EXPECT_FALSE(isInHalves(DataType::F32, 64, 0)) << "whole words";
  EXPECT_TRUE(isInHalves(DataType::F32, 64, 4));
  EXPECT_TRUE(isInHalves(DataType::F32, 63, 0));
  EXPECT_TRUE(isInHalves(DataType::F32, 1, 0));
  EXPECT_TRUE(isInHalves(DataType::F16, 2, 0));
  EXPECT_FALSE(isInHalves(DataType::F16, 3, 0)) << "a quarter of a word";
  EXPECT_FALSE(isInHalves(DataType::F16, 64, 2)) << "output";
}

}  // namespace
}  // namespace tutti::exec::cuda::brief_test
