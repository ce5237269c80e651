// The exchange under `tutti run`: messages over a socket (SOCK_SEQPACKET) that each rank inherits from it.
//
// Rank 0 sends "P" and the 128 bytes of an id. Any other rank sends "G" and receives 128 bytes. So simple, because programs that are
// not ours may speak it too (docs/launching.md).
// 1. The latest id counts, and each rank gets it once: a rank that asks again waits for the next one. So programs that a rank runs one
//    after another exchange an id each.
// 2. Once rank 0 has ended, who waits for an id that was not given, or asks for another one, is hung up on.
// 3. Post belongs to the thread that supervises the ranks and never blocks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "launch/descriptor.h"
#include "launch/exchange.h"

namespace tutti::launch {

/// The side of a rank.
Result<ncclUniqueId> exchangeByParent(const Standing& standing, const MakeId& makeId, Deadline deadline);

/// The side of `tutti run`: one socket for each rank.
class Post {
 public:
  explicit Post(size_t ranks) : sockets_(ranks), taken_(ranks, 0), asks_(ranks, 0), left_(ranks, 0) {}

  /// The rank's end of a new socket; it is closed on exec.
  Result<Descriptor> open(size_t rank);
  /// The rank has ended. An id that rank 0 had sent before still counts.
  void close(size_t rank);
  /// To be polled for reading; -1 when closed.
  int descriptor(size_t rank) const { return sockets_[rank].get(); }
  /// Which of those that have left it was, by their sockets, from 1 on: a process closes its own before it is seen to have ended, and who
  /// gives up because of that may be seen first. 0: it has not.
  size_t orderOf(size_t rank) const { return left_[rank]; }
  /// Reads what the rank sent, and answers all who can be answered.
  void serve(size_t rank);

 private:
  /// One message; false: there is none, and `isOver` says whether there will be.
  bool read(size_t rank, bool& isOver);
  void answer(size_t rank);

  std::vector<Descriptor> sockets_;
  std::vector<uint64_t> taken_;  ///< the number of the latest id that the rank got
  std::vector<char> asks_;       ///< whether the rank waits for one
  std::vector<size_t> left_;     ///< orderOf()
  size_t numLeft_ = 0;
  ncclUniqueId id_{};
  uint64_t ids_ = 0;  ///< how many rank 0 has given
  bool isLast_ = false;  ///< rank 0 has ended: no other id will come
};

}  // namespace tutti::launch
