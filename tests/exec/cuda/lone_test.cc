// Carries the rounds of all ranks out on numbers: every bundle must do what the algorithm's steps do.
#include "exec/cuda/lone.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "exec/record/catalog.h"

namespace tutti::exec::cuda::lone_test {
namespace {

using algo::Buffer;
using exec::record::Algorithm;

/// A rank's buffers: a number a chunk.
struct Memory {
  std::map<int32_t, int64_t> in;
  std::map<int32_t, int64_t> out;
  int64_t& at(algo::ChunkRef c) { return c.buffer == Buffer::In ? in[c.chunk] : out[c.chunk]; }
};

uint8_t placeOf(const Algorithm& algorithm) { return static_cast<uint8_t>(&algorithm - exec::record::algorithms().data()); }

int64_t inputOf(int32_t rank, int32_t chunk) { return int64_t{1} << (rank * 6) | static_cast<int64_t>(chunk) << 50; }

/// In the order in which a kernel does it. A cell that nobody has stored into ends the test.
class Player {
 public:
  Player(uint8_t algorithm, int32_t ranks, int32_t root) : ranks_(ranks), memory_(static_cast<size_t>(ranks)) {
    for (int32_t r = 0; r < ranks; ++r) {
      rounds_.push_back(makeRounds(algorithm, r, ranks, root));
      for (int32_t c = 0; c < ranks; ++c) memory_[static_cast<size_t>(r)].in[c] = inputOf(r, c);
    }
  }

  void play() {
    for (int32_t n = 0; n < rounds_[0].count; ++n) {
      for (int32_t r = 0; r < ranks_; ++r) send(r, n);
      for (int32_t r = 0; r < ranks_; ++r) combine(r, n);
      for (int32_t r = 0; r < ranks_; ++r) take(r, n);
    }
  }
  Memory& memory(int32_t rank) { return memory_[static_cast<size_t>(rank)]; }
  const Rounds& rounds(int32_t rank) const { return rounds_[static_cast<size_t>(rank)]; }

  /// Rule 2 of window.h: whoever is read or awaited in a round has stored, at least something empty.
  bool arrives(int32_t from, int32_t to, int32_t n) const {
    return cells_.contains({n, from, to}) || (rounds(from).round[n].empties >> to & 1) != 0;
  }

 private:
  void send(int32_t r, int32_t n) {
    const Round& round = rounds(r).round[n];
    for (int32_t peer = 0; peer < ranks_; ++peer)
      if (round.stores.has(peer)) cells_[{n, r, peer}] = memory(r).at(round.stores.of(peer));
    if (round.hasCopy) memory(r).at(round.copyTo) = memory(r).at(round.copyFrom);
  }
  void combine(int32_t r, int32_t n) {
    const Round& round = rounds(r).round[n];
    if (!round.combines) return;
    int64_t sum = memory(r).at(round.own);
    for (int32_t peer = 0; peer < ranks_; ++peer)
      if (peer != r) sum += cells_.at({n, peer, r});
    memory(r).at(round.result) = sum;
    for (int32_t peer = 0; round.forwards && peer < ranks_; ++peer)
      if ((round.nextPeers >> peer & 1) != 0) cells_[{n + 1, r, peer}] = sum;
  }
  void take(int32_t r, int32_t n) {
    const Round& round = rounds(r).round[n];
    for (int32_t peer = 0; peer < ranks_; ++peer)
      if (round.loads.has(peer)) memory(r).at(round.loads.of(peer)) = cells_.at({n, peer, r});
  }

  int32_t ranks_;
  std::vector<Rounds> rounds_;
  std::vector<Memory> memory_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, int64_t> cells_;  // round, from, to
};

int64_t sumOf(int32_t ranks, int32_t chunk) {
  int64_t sum = 0;
  for (int32_t r = 0; r < ranks; ++r) sum += inputOf(r, chunk);
  return sum;
}

void expectResults(Player& player, Collective collective, int32_t ranks, int32_t chunks, int32_t root) {
  for (int32_t r = 0; r < ranks; ++r) {
    std::map<int32_t, int64_t>& out = player.memory(r).out;
    switch (collective) {
      case Collective::AllReduce:
        for (int32_t c = 0; c < chunks; ++c) EXPECT_EQ(out[c], sumOf(ranks, c)) << "chunk " << c << " of rank " << r;
        break;
      case Collective::ReduceScatter: EXPECT_EQ(out[0], sumOf(ranks, r)); break;
      case Collective::Reduce:
        EXPECT_EQ(out, r == root ? (std::map<int32_t, int64_t>{{0, sumOf(ranks, 0)}}) : (std::map<int32_t, int64_t>{}));
        break;
      case Collective::AllGather:
        for (int32_t c = 0; c < ranks; ++c) EXPECT_EQ(out[c], inputOf(c, 0));
        break;
      case Collective::AllToAll:
        for (int32_t c = 0; c < ranks; ++c) EXPECT_EQ(out[c], inputOf(c, r));
        break;
      case Collective::Broadcast: EXPECT_EQ(out, (std::map<int32_t, int64_t>{{0, inputOf(root, 0)}})); break;
      case Collective::Scatter: EXPECT_EQ(out, (std::map<int32_t, int64_t>{{0, inputOf(root, r)}})); break;
      case Collective::Gather:
        EXPECT_EQ(out.size(), r == root ? static_cast<size_t>(ranks) : 0U);
        for (const auto& [chunk, value] : out) EXPECT_EQ(value, inputOf(chunk, 0));
        break;
      default: FAIL() << "no expectation for " << name(collective);
    }
  }
}

TEST(Lone, RoundsDoWhatTheStepsDo) {
  int algorithms = 0;
  for (const Algorithm& algorithm : exec::record::algorithms()) {
    const uint8_t place = placeOf(algorithm);
    if (!mayBeLone(place)) continue;
    ++algorithms;
    for (int32_t ranks = 1; ranks <= kMaxLocalRanks; ++ranks) {
      for (int32_t root = 0; root < (hasRoot(algorithm.traits.collective) ? ranks : 1); ++root) {
        SCOPED_TRACE(std::string(algorithm.traits.name) + " " + std::string(name(algorithm.traits.collective)) + ", ranks " +
                     std::to_string(ranks) + ", root " + std::to_string(root));
        Player player(place, ranks, root);
        player.play();
        expectResults(player, algorithm.traits.collective, ranks, algorithm.chunks(ranks), root);
        for (int32_t n = 0; n < algorithm.traits.rounds; ++n)
          for (int32_t from = 0; from < ranks; ++from)
            for (int32_t to = 0; to < ranks; ++to)
              EXPECT_TRUE(from == to || player.arrives(from, to, n)) << from << " never arrives at " << to << " in round " << n;
      }
    }
  }
  EXPECT_EQ(algorithms, 9);
}

// Whoever has to arrive is waited for, or the banks could not be used again.
TEST(Lone, EveryPeerIsTakenFromOrAwaited) {
  for (const Algorithm& algorithm : exec::record::algorithms()) {
    if (!mayBeLone(placeOf(algorithm))) continue;
    constexpr int32_t kRanks = 5;
    for (int32_t r = 0; r < kRanks; ++r) {
      const Rounds rounds = makeRounds(placeOf(algorithm), r, kRanks, 2);
      EXPECT_EQ(rounds.count, algorithm.traits.rounds);
      for (int32_t n = 0; n < rounds.count; ++n) {
        const Round& round = rounds.round[n];
        const uint32_t heard = round.combines ? ~0U : round.loads.peers | round.awaits;
        for (int32_t peer = 0; peer < kRanks; ++peer)
          EXPECT_TRUE(peer == r || (heard >> peer & 1) != 0) << algorithm.traits.name << ": rank " << r << " does not hear of " << peer;
      }
    }
  }
}

TEST(Lone, OtherAlgorithmsHaveNoRounds) {
  for (const Algorithm& algorithm : exec::record::algorithms())
    EXPECT_EQ(makeRounds(placeOf(algorithm), 0, 2, 0).count > 0, mayBeLone(placeOf(algorithm))) << algorithm.traits.name;
}

TEST(Lone, ThreadsFollowTheSlice) {
  const auto threads = [](uint64_t bytes, Protocol protocol) {
    return loneThreads(algo::makeGeometry(algo::Division::Shares, bytes, 1, DataType::U8, 1, 1 << 20), DataType::U8, protocol);
  };
  EXPECT_EQ(threads(1, Protocol::Cells), kLeastLoneThreads);
  EXPECT_EQ(threads(100 * kCellDataBytes, Protocol::Cells), 128);
  EXPECT_EQ(threads(1 << 20, Protocol::Cells), mostLoneThreads(Protocol::Cells));
  EXPECT_EQ(threads(20 * kLineDataBytes, Protocol::Lines), 160);
  EXPECT_EQ(threads(1 << 20, Protocol::Lines), mostLoneThreads(Protocol::Lines));
}

}  // namespace
}  // namespace tutti::exec::cuda::lone_test
