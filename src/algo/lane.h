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

/// Typed chunks through bounded first-in-first-out pipes between two ranks. "Send" blocks while all slots are full.
template <class Derived>
struct PipeVerbs {
  TUTTI_HD void send(ChunkRef src, Peers to) { step(false, {}, src, {}, to); }
  TUTTI_HD void copySend(ChunkRef src, ChunkRef dst, Peers to) { step(false, {}, src, dst, to); }
  TUTTI_HD void copy(ChunkRef src, ChunkRef dst) { step(false, {}, src, dst, {}); }
  TUTTI_HD void recvCopy(Peers from, ChunkRef dst) { step(false, from, {}, dst, {}); }
  TUTTI_HD void recvCopySend(Peers from, ChunkRef dst, Peers to) { step(false, from, {}, dst, to); }

  /// The verbs that reduce. A contribution taken from the input is scaled first, also when it is merely sent.
  TUTTI_HD void contribute(ChunkRef src, Peers to) { step(true, {}, src, {}, to); }
  TUTTI_HD void reduceCopy(ChunkRef src, ChunkRef dst) { step(true, {}, src, dst, {}); }
  TUTTI_HD void recvReduceSend(Peers from, ChunkRef src, Peers to) { step(true, from, src, {}, to); }
  TUTTI_HD void recvReduceCopy(Peers from, ChunkRef src, ChunkRef dst) { step(true, from, src, dst, {}); }
  TUTTI_HD void recvReduceCopySend(Peers from, ChunkRef src, ChunkRef dst, Peers to) { step(true, from, src, dst, to); }

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

/// A window that every rank of the group has mapped: one cell for each rank, in banks that take turns from slice to slice.
/// There is no trailing barrier: a bank is written again two slices later, and a rank gets there only after every peer has
/// sent the slice in between, which that peer does after it has finished reading. So every slice, also an empty one, carries an
/// arrival between every two ranks, and all threads of a lane meet between two slices.
/// Where the flag travels inside the data, `arrive` and `await` have nothing left to do.
template <class Derived>
struct PeerMemoryVerbs {
  /// Puts the scaled contribution into this rank's cell of `peer`'s window.
  TUTTI_HD void store(ChunkRef src, Rank peer) { step(Kind::Store, src, {}, {}, peer); }
  TUTTI_HD void arrive(Rank peer) { step(Kind::Arrive, {}, {}, {}, peer); }
  TUTTI_HD void await(Rank peer) { step(Kind::Await, {}, {}, peer, {}); }
  /// Combines the cells of all ranks, in rank order, into `dst`.
  TUTTI_HD void loadReduce(ChunkRef dst) { step(Kind::LoadReduce, {}, dst, {}, {}); }

 private:
  TUTTI_HD void step(Kind kind, ChunkRef src, ChunkRef dst, Peers from, Peers to) {
    Step s;
    s.kind = kind;
    s.reduce = true;
    s.src = src;
    s.dst = dst;
    s.from = from;
    s.to = to;
    static_cast<Derived*>(this)->run(s);
  }
};

/// What a lane type must offer to run an algorithm that needs pipes, hand-over, or peer memory.
template <class L>
concept Pipe = requires(L& lane, ChunkRef c, Peers p) {
  lane.send(c, p);
  lane.copySend(c, c, p);
  lane.copy(c, c);
  lane.recvCopy(p, c);
  lane.recvCopySend(p, c, p);
  lane.contribute(c, p);
  lane.reduceCopy(c, c);
  lane.recvReduceSend(p, c, p);
  lane.recvReduceCopy(p, c, c);
  lane.recvReduceCopySend(p, c, c, p);
};
template <class L>
concept HandOver = requires(L& lane) {
  lane.give(int8_t{});
  lane.take(int8_t{});
};
template <class L>
concept PeerMemory = requires(L& lane, ChunkRef c, Rank r) {
  lane.store(c, r);
  lane.arrive(r);
  lane.await(r);
  lane.loadReduce(c);
};

}  // namespace tutti::algo
