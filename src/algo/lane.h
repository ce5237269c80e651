// The capabilities that algorithms are written against, and the verbs that spell them.
//
// A lane is one sequential program of one rank. An executor derives its lane from the verb sets that it can carry out and
// implements `run(const Step&)`; inlining folds a verb and its step away. An algorithm includes this and layout.h, nothing else.
// 1. A lane runs its whole program once for every slice; slices are outermost, so that no chunk can be longer than a pipe.
//    An executor may carry a slice in several pieces, a slot each, as long as a pipe has room for as many slices as the prover counts.
// 2. No verb says who executes it, and no algorithm asks.
#pragma once

#include <concepts>

#include "algo/step.h"

namespace tutti::algo {

/// What a rank does alone. Every lane can.
template <class Derived>
struct LocalVerbs {
  /// Where both are one place, in place, nothing is written: peers may be reading it.
  TUTTI_HD void copy(ChunkRef src, ChunkRef dst) { step(false, src, dst); }
  /// The sum of one: the own contribution, scaled as it is.
  TUTTI_HD void reduceCopy(ChunkRef src, ChunkRef dst) { step(true, src, dst); }

 private:
  TUTTI_HD void step(bool reduce, ChunkRef src, ChunkRef dst) {
    Step s;
    s.kind = Kind::Pipe;
    s.reduce = reduce;
    s.src = src;
    s.dst = dst;
    static_cast<Derived*>(this)->run(s);
  }
};

/// Typed chunks through bounded first-in-first-out pipes between two ranks, or from one lane of a rank to another. "Send" blocks
/// while all slots are full.
template <class Derived>
struct PipeVerbs {
  TUTTI_HD void send(ChunkRef src, Peers to) { step(false, {}, src, {}, to); }
  TUTTI_HD void copySend(ChunkRef src, ChunkRef dst, Peers to) { step(false, {}, src, dst, to); }
  TUTTI_HD void recvCopy(Peers from, ChunkRef dst) { step(false, from, {}, dst, {}); }
  TUTTI_HD void recvCopySend(Peers from, ChunkRef dst, Peers to) { step(false, from, {}, dst, to); }

  /// The verbs that reduce. A contribution taken from the input is scaled first, also when it is merely sent.
  TUTTI_HD void contribute(ChunkRef src, Peers to) { step(true, {}, src, {}, to); }
  TUTTI_HD void recvReduceSend(Peers from, ChunkRef src, Peers to) { step(true, from, src, {}, to); }
  TUTTI_HD void recvReduceCopy(Peers from, ChunkRef src, ChunkRef dst) { step(true, from, src, dst, {}); }
  TUTTI_HD void recvReduceCopySend(Peers from, ChunkRef src, ChunkRef dst, Peers to) { step(true, from, src, dst, to); }

  /// The same for partial sums that are all received, the first as the own one; `size` names a chunk of their size.
  TUTTI_HD void recvCombineSend(Peers from, int32_t size, Peers to) { step(true, from, {size, Buffer::None}, {}, to); }
  TUTTI_HD void recvCombineCopy(Peers from, ChunkRef dst) { step(true, from, {}, dst, {}); }
  TUTTI_HD void recvCombineCopySend(Peers from, ChunkRef dst, Peers to) { step(true, from, {}, dst, to); }

  /// Selects which of the parallel pipes between two ranks the following verbs use.
  TUTTI_HD void usePort(uint8_t port) { port_ = port; }

 private:
  TUTTI_HD void step(bool reduce, Peers from, ChunkRef src, ChunkRef dst, Peers to) {
    Step s;
    s.kind = Kind::Pipe;
    s.reduce = reduce;
    s.port = port_;
    s.from = from;
    s.src = src;
    s.dst = dst;
    s.to = to;
    static_cast<Derived*>(this)->run(s);
  }
  uint8_t port_ = 0;
};

/// Hand-over of a slice between two lanes of the same rank. Never blocks the giver.
template <class Derived>
struct HandOverVerbs {
  TUTTI_HD void give(int8_t toLane) { step(Kind::Give, toLane); }
  TUTTI_HD void take(int8_t fromLane) { step(Kind::Take, fromLane); }

 private:
  TUTTI_HD void step(Kind kind, int8_t lane) {
    Step s;
    s.kind = kind;
    s.lane = lane;
    static_cast<Derived*>(this)->run(s);
  }
};

/// A window that every rank of the group has mapped: one cell for each rank, in two banks that take turns from round to round. A slice
/// is one round, or as many as the algorithm's traits say.
/// There is no trailing barrier: a bank is written again two rounds later, and a rank gets there only after every peer has
/// arrived in the round in between, which that peer does after it has finished reading. So every round, also an empty one, carries an
/// arrival between every two ranks, and all threads of a lane meet between two rounds.
/// Where the flag travels inside the data, `arrive` and `await` have nothing left to do.
template <class Derived>
struct PeerMemoryVerbs {
  /// Puts the scaled contribution into this rank's cell of `peer`'s window.
  TUTTI_HD void store(ChunkRef src, Rank peer) { step(Kind::Store, true, src, {}, {}, peer); }
  /// The same, bit for bit.
  TUTTI_HD void put(ChunkRef src, Rank peer) { step(Kind::Store, false, src, {}, {}, peer); }
  TUTTI_HD void arrive(Rank peer) { step(Kind::Arrive, false, {}, {}, {}, peer); }
  TUTTI_HD void await(Rank peer) { step(Kind::Await, false, {}, {}, peer, {}); }
  /// Combines the cells of all ranks, in rank order, into `dst`.
  TUTTI_HD void loadReduce(ChunkRef dst) { step(Kind::LoadReduce, true, {}, dst, {}, {}); }
  /// Moves what `peer` has put into its cell.
  TUTTI_HD void load(Rank peer, ChunkRef dst) { step(Kind::Load, false, {}, dst, peer, {}); }

  /// Selects the round of the slice that the following verbs belong to; rounds follow each other.
  TUTTI_HD void useRound(uint8_t round) { round_ = round; }

 private:
  TUTTI_HD void step(Kind kind, bool reduce, ChunkRef src, ChunkRef dst, Peers from, Peers to) {
    Step s;
    s.kind = kind;
    s.reduce = reduce;
    s.round = round_;
    s.src = src;
    s.dst = dst;
    s.from = from;
    s.to = to;
    static_cast<Derived*>(this)->run(s);
  }
  uint8_t round_ = 0;
};

/// What a lane type must offer to run an algorithm that needs pipes, hand-over, or peer memory.
template <class L>
concept Local = requires(L& lane, ChunkRef c) {
  lane.copy(c, c);
  lane.reduceCopy(c, c);
};
template <class L>
concept Pipe = Local<L> && requires(L& lane, ChunkRef c, Peers p) {
  lane.send(c, p);
  lane.copySend(c, c, p);
  lane.recvCopy(p, c);
  lane.recvCopySend(p, c, p);
  lane.contribute(c, p);
  lane.recvReduceSend(p, c, p);
  lane.recvReduceCopy(p, c, c);
  lane.recvReduceCopySend(p, c, c, p);
  lane.recvCombineSend(p, int32_t{}, p);
  lane.recvCombineCopy(p, c);
  lane.recvCombineCopySend(p, c, p);
};
template <class L>
concept HandOver = requires(L& lane) {
  lane.give(int8_t{});
  lane.take(int8_t{});
};
template <class L>
concept PeerMemory = Local<L> && requires(L& lane, ChunkRef c, Rank r) {
  lane.store(c, r);
  lane.put(c, r);
  lane.arrive(r);
  lane.await(r);
  lane.loadReduce(c);
  lane.load(r, c);
  lane.useRound(uint8_t{});
};

}  // namespace tutti::algo
