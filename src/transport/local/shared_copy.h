// A copy out of another process's memory that both processes make: the reader takes parts out of the lender's memory, and the lender,
// which waits for it, puts others into the reader's.
//
// Owner: the desk lies in the memory of a pipe, and is its reader's and its lender's. Zeroed memory is a desk without a copy.
// 1. What the lender writes to is described by `parts`, which the reader alone writes and the kernel reads when a call of the lender's
//    begins. So the reader can take parts back: with a length of 0, a call that begins later writes nothing.
// 2. A call that has begun goes on to its end, whatever signal comes; it may have to wait for a page. Who has been stopped, is gone, or
//    sleeps in another call is in none. So the reader knows, after stop() or once advance() is not Pending, that nobody else writes to its
//    memory: not when the lender is stopped anywhere and goes on much later, either. It waits for that as long as it takes, so the
//    lender has the pages that it is to read there before it goes to the desk.
// 3. Between taking a part and being through with it, the lender is at the desk (`helper`). A desk with somebody at it gets no new copy:
//    who was stopped there may still know the parts of the old one.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace tutti::transport::local {

class Neighbour;

inline constexpr uint32_t kMostParts = 32;

struct CopyDesk {
  /// The number of the message, << 8, and the first of its parts that nobody has taken; 0: closed. The reader opens (release) and closes;
  /// both take a part by an exchange (acquire).
  alignas(64) std::atomic<uint64_t> next;
  std::atomic<uint64_t> partBytes;  ///< reader, before it opens: of all parts but the last
  std::atomic<uint32_t> numParts;   ///< the same
  alignas(64) std::atomic<int32_t> helper;  ///< lender: its thread that is at the desk; 0: none
  std::atomic<uint64_t> written;            ///< lender: set of the parts it has written (release); pairs with the acquire in advance()
  std::atomic<uint64_t> refused;            ///< the same: that it could not write
  alignas(64) iovec parts[kMostParts];      ///< reader: where they lie in its memory
};

/// A value that a rank has lent: message `number` (from 1) of a pipe, as the lender sees it.
struct LentValue {
  uint64_t number = 0;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};

/// The reader's side. Used by the thread that uses the pipe's RecvEnd; stop() by any, once no other thread can be in advance().
class SharedCopy {
 public:
  /// Below, there is one part.
  static constexpr uint64_t kLeastBytes = (128 << 10) + 1;

  explicit SharedCopy(CopyDesk* desk = nullptr) : desk_(desk) {}

  /// Copies what `lender` has lent from its address `theirs` to `to`. `here`: where this process sees it; null: nowhere. To be called with
  /// the same arguments until it is not Pending; Failed: `status` says why, and the lender is out of this process's memory.
  Poll advance(const Neighbour& lender, uint64_t number, std::byte* to, uint64_t theirs, const std::byte* here, uint64_t bytes,
               Status& status);
  /// Ends a copy that is under way, if there is one: afterwards nobody writes to its memory any more. A lender in the call is waited for;
  /// it is through in microseconds, unless it gets no core, or a page of this process's memory does not come. (With TUTTI_CHECKS=off, which
  /// lets advance() run meanwhile, nothing is promised.)
  void stop() noexcept;

 private:
  void open(uint64_t number, std::byte* to, uint64_t bytes);
  Status copyPart(const Neighbour& lender, uint32_t part, std::byte* to, uint64_t theirs, const std::byte* here, uint64_t bytes);
  Poll finish(Poll poll) noexcept;
  bool takeBack(const Neighbour& lender) noexcept;

  CopyDesk* desk_;
  std::atomic<const Neighbour*> lender_ = nullptr;  // of the copy that is under way; null: none is
  uint64_t partBytes_ = 0;
  uint32_t numParts_ = 0;
  uint64_t done_ = 0;     // set of the parts that this side has copied
  int64_t askedNs_ = 0;   // when it last asked where the lender stands; 0: it has not
};

/// The lender's side: the number of the message that parts can be had of; 0: none. A look at one line.
uint64_t wantsHelp(const CopyDesk& desk);
/// Takes a part of `value` and writes it to the memory of its reader. False: there was none left.
bool helpWith(CopyDesk& desk, const Neighbour& reader, const LentValue& value);

}  // namespace tutti::transport::local
