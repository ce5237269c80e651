// The latest collectives of one rank, for its peers to compare with their own.
//
// Owner: the Hub, one for each rank. One writer at a time: whoever drives the rank. Any thread reads.
// 1. Calls that follow one another and are alike are one run, and a run is one entry, however long it gets: who makes the same call again
//    writes one word. The latest kRuns runs can be read; of older ones a reader finds nothing, never the wrong call.
// 2. A call is kept exactly: nothing of its count or root is cut off.
// 3. Numbers ascend: a post takes back what was posted from its number on, as by a launch that failed. So of two runs the later one ends
//    the older one's calls, and a reader that comes to a run that has ended before its number looks no further.
// 4. Zeroed memory is an empty board.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "core/call.h"

namespace tutti::transport::local {

class Board {
 public:
  /// Says that the rank has come to this call, number `call.sequence`.
  void post(const Call& call) {
    const uint64_t runs = runs_.load(std::memory_order_relaxed);
    const uint64_t kind = packKind(call);
    if (runs != 0) {
      Run& latest = at(runs - 1);
      if (latest.until.load(std::memory_order_relaxed) == call.sequence && latest.kind.load(std::memory_order_relaxed) == kind &&
          latest.count.load(std::memory_order_relaxed) == call.count)
        return latest.until.store(call.sequence + 1, std::memory_order_release);  // pairs with the acquires of readers
    }
    Run& run = at(runs);
    run.number.store(0, std::memory_order_relaxed);
    // release: a reader that sees one of these words (acquire) also sees that the entry is being changed
    run.kind.store(kind, std::memory_order_release);
    run.count.store(call.count, std::memory_order_release);
    run.until.store(call.sequence + 1, std::memory_order_release);
    run.number.store(call.sequence + 1, std::memory_order_release);  // pairs with the first acquire in read()
    runs_.store(runs + 1, std::memory_order_release);
  }

  /// The end of the latest run, one past its last call, for a writer that goes on with it: to store one more there (release) is to post
  /// another call like it, as long as nothing else was posted, which is to say that it still ends where that call begins. Null: no run.
  std::atomic<uint64_t>* endOfLatest() {
    const uint64_t runs = runs_.load(std::memory_order_relaxed);
    return runs == 0 ? nullptr : &at(runs - 1).until;
  }

  /// The rank's call number `sequence`, if the rank has come to it and not far beyond.
  std::optional<Call> find(uint64_t sequence) const {
    const uint64_t runs = runs_.load(std::memory_order_acquire);  // pairs with post()
    for (uint64_t back = 1; back <= std::min(runs, kRuns); ++back) {
      const auto run = read(at(runs - back));
      if (!run || run->call.sequence > sequence) continue;
      if (sequence >= run->until) break;  // rule 3
      Call call = run->call;
      call.sequence = sequence;
      return call;
    }
    return std::nullopt;
  }

  /// Whether find() would give exactly this call, or nothing, for its own number and for all from `first` on before it: what nearly every
  /// look finds, for less. False may be wrong.
  bool hasNothingBut(const Call& call, uint64_t first) const {
    const uint64_t runs = runs_.load(std::memory_order_acquire);  // pairs with post()
    if (runs == 0) return true;
    const Run& run = at(runs - 1);
    const uint64_t number = run.number.load(std::memory_order_acquire);  // pairs with post()
    if (number == 0 || number - 1 > first) return false;
    const bool isSame =
        run.kind.load(std::memory_order_acquire) == packKind(call) && run.count.load(std::memory_order_acquire) == call.count;
    const bool isBefore = run.until.load(std::memory_order_acquire) <= first;
    return (isSame || isBefore) && run.number.load(std::memory_order_relaxed) == number;
  }
  bool hasNothingBut(const Call& call) const { return hasNothingBut(call, call.sequence); }

  /// How many calls the rank has come to; may miss the one that is being posted.
  uint64_t begun() const {
    uint64_t most = 0;
    for (const Run& run : entries_) most = std::max(most, run.until.load(std::memory_order_acquire));  // pairs with post()
    return most;
  }

 private:
  static constexpr uint64_t kRuns = 64;
  struct alignas(32) Run {
    std::atomic<uint64_t> number{0};  ///< 1 + the first call's; 0 while it is being written
    std::atomic<uint64_t> kind{0};    ///< collective, type, operation and root
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> until{0};   ///< 1 + the last call's: grows
  };
  struct Read {
    Call call;  ///< the first
    uint64_t until;
  };
  Run& at(uint64_t run) { return entries_[run % kRuns]; }
  const Run& at(uint64_t run) const { return entries_[run % kRuns]; }
  /// Nothing while it is written, or if it was meanwhile.
  static std::optional<Read> read(const Run& run) {
    const uint64_t number = run.number.load(std::memory_order_acquire);
    if (number == 0) return std::nullopt;
    const uint64_t kind = run.kind.load(std::memory_order_acquire);
    const uint64_t count = run.count.load(std::memory_order_acquire);
    const uint64_t until = run.until.load(std::memory_order_acquire);
    if (run.number.load(std::memory_order_relaxed) != number) return std::nullopt;
    return Read{unpack(kind, count, number - 1), until};
  }
  static uint64_t packKind(const Call& call) {
    return static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32 | static_cast<uint64_t>(call.opCode) << 16 |
           static_cast<uint64_t>(call.type) << 8 | static_cast<uint64_t>(call.collective);
  }
  static Call unpack(uint64_t kind, uint64_t count, uint64_t sequence) {
    Call call;
    call.collective = static_cast<Collective>(kind & 0xff);
    call.type = static_cast<DataType>(kind >> 8 & 0xff);
    call.opCode = static_cast<uint8_t>(kind >> 16 & 0xff);
    call.root = static_cast<int32_t>(kind >> 32);
    call.count = count;
    call.sequence = sequence;
    return call;
  }
  std::array<Run, kRuns> entries_;
  /// Ever begun. In a line that is written when a run begins, and not for every call: readers keep it in their caches.
  alignas(64) std::atomic<uint64_t> runs_{0};
};

}  // namespace tutti::transport::local
