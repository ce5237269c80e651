#include "exec/cuda/lone.h"

#include <cassert>

#include "algo/lane.h"

namespace tutti::exec::cuda {
namespace {

bool isEqual(algo::ChunkRef a, algo::ChunkRef b) { return a.buffer == b.buffer && a.chunk == b.chunk; }

/// A lane that puts the steps of a template together, for algorithms whose steps of a round fit into one bundle: a test sees to it.
class Bundler : public algo::LocalVerbs<Bundler>, public algo::PeerMemoryVerbs<Bundler> {
 public:
  explicit Bundler(int32_t rank) : self_(rank) {}

  void run(const algo::Step& s) {
    Round& round = rounds_.round[s.round];
    if (s.round + 1 > rounds_.count) rounds_.count = s.round + 1;
    switch (s.kind) {
      case algo::Kind::Pipe:
        round.hasCopy = true;
        round.copyFrom = s.src;
        round.copyTo = s.dst;
        break;
      case algo::Kind::Store: storeFor(round, s); break;
      case algo::Kind::Arrive:
        if (!round.stores.has(s.to.rank[0].value) && !isForwarded(s.round, s.to.rank[0])) round.empties |= bitOf(s.to.rank[0]);
        break;
      case algo::Kind::Await: round.awaits |= bitOf(s.from.rank[0]); break;
      case algo::Kind::Load:
        round.awaits &= ~bitOf(s.from.rank[0]);
        add(round.loads, s.dst, s.from.rank[0], false);
        break;
      case algo::Kind::LoadReduce:
        round.awaits = 0;
        round.combines = true;
        round.result = s.dst;
        break;
      default: break;
    }
  }
  const Rounds& rounds() const { return rounds_; }

 private:
  static uint32_t bitOf(Rank rank) { return uint32_t{1} << rank.value; }
  bool isForwarded(int32_t round, Rank peer) const { return round > 0 && (rounds_.round[round - 1].nextPeers & bitOf(peer)) != 0; }

  void storeFor(Round& round, const algo::Step& s) {
    const Rank peer = s.to.rank[0];
    if (peer.value == self_) {  // what a rank stores for itself stays where it is
      round.own = s.src;
      return;
    }
    // What has just been combined is on its way at once.
    Round* const before = &round == rounds_.round ? nullptr : &round - 1;
    if (before != nullptr && before->combines && isEqual(before->result, s.src)) {
      before->forwards = true;
      before->nextPeers |= bitOf(peer);
      return;
    }
    // What is copied and then put for others is read where it comes from.
    const bool isCopied = round.hasCopy && isEqual(round.copyTo, s.src);
    add(round.stores, isCopied ? round.copyFrom : s.src, peer, s.reduce);
  }

  static void add(Bundle& bundle, algo::ChunkRef chunk, Rank peer, bool scales) {
    if (bundle.peers == 0) {
      bundle.chunk = chunk;
      bundle.scales = scales;
    } else if (chunk.chunk != bundle.chunk.chunk) {
      bundle.isSame = false;
    }
    assert(bundle.scales == scales && bundle.chunk.buffer == chunk.buffer && (bundle.isSame || chunk.chunk == peer.value));
    bundle.peers |= bitOf(peer);
  }

  const int32_t self_;
  Rounds rounds_;
};

template <class Algorithm>
bool bundle(uint8_t algorithm, const algo::LayoutView& view, Rounds& rounds) {
  if (algorithm != placeAmong<Algorithm>(algo::AllAlgorithms{})) return false;
  static_assert(Algorithm::kTraits.rounds <= kMostRounds);
  Bundler lane(view.rank.value);
  Algorithm::run(lane, view, 0);
  rounds = lane.rounds();
  return true;
}

template <class... Algorithms>
void bundleOneOf(algo::TypeList<Algorithms...>, uint8_t algorithm, const algo::LayoutView& view, Rounds& rounds) {
  (void)(bundle<Algorithms>(algorithm, view, rounds) || ...);
}

}  // namespace

Rounds makeRounds(uint8_t algorithm, int32_t rank, int32_t ranks, int32_t root) {
  algo::LayoutView view;
  view.rank = Rank(rank);
  view.ranks = ranks;
  view.root = Rank(root);
  Rounds rounds;
  bundleOneOf(LoneReductions{}, algorithm, view, rounds);
  bundleOneOf(LoneMoves{}, algorithm, view, rounds);
  return rounds;
}

}  // namespace tutti::exec::cuda
