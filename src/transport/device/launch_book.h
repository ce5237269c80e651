// The calls of one rank's latest launches, for whoever has to tell what a kernel waits in.
//
// Lies on the page, one for each rank. One writer at a time: the thread that launches for the rank. Any thread of any process reads.
// 1. A launch is known by the signature that its kernels have; its calls follow one another.
// 2. Calls that were captured have entries of their own, since a graph may be launched long after them. Of each kind the latest kEntries
//    can be read; of older ones a reader finds nothing, never the wrong call.
// 3. Zeroed memory is an empty book.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/call.h"

namespace tutti::transport::device {

class LaunchBook {
 public:
  static constexpr uint64_t kEntries = 512;

  void write(uint64_t signature, const Call& call, bool isCaptured) {
    Part& part = parts_[isCaptured ? 1 : 0];
    const uint64_t written = part.written.load(std::memory_order_relaxed);
    Entry& entry = part.entries[written % kEntries];
    entry.signature.store(0, std::memory_order_relaxed);
    // release: a reader that sees one of these words (acquire) also sees that the entry is being changed
    entry.kind.store(packKind(call), std::memory_order_release);
    entry.count.store(call.count, std::memory_order_release);
    entry.sequence.store(call.sequence, std::memory_order_release);
    entry.signature.store(signature, std::memory_order_release);  // pairs with the first acquire in find()
    part.written.store(written + 1, std::memory_order_release);   // pairs with find()
  }

  struct Found {
    std::vector<Call> calls;  ///< in the order in which they were written; empty: not known any more
    bool isEager = false;     ///< it was launched when its calls were made; else it is of a graph, or not known any more
  };
  Found find(uint64_t signature) const {
    std::vector<Call> calls;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Part& part = parts_[p];
      const uint64_t written = part.written.load(std::memory_order_acquire);  // pairs with write()
      for (uint64_t i = written > kEntries ? written - kEntries : 0; i < written; ++i) {
        const Entry& entry = part.entries[i % kEntries];
        if (entry.signature.load(std::memory_order_acquire) != signature) continue;  // pairs with write()
        const uint64_t kind = entry.kind.load(std::memory_order_acquire);
        const uint64_t count = entry.count.load(std::memory_order_acquire);
        const uint64_t sequence = entry.sequence.load(std::memory_order_acquire);
        if (entry.signature.load(std::memory_order_relaxed) == signature) calls.push_back(unpack(kind, count, sequence));
      }
      if (!calls.empty()) return {std::move(calls), p == 0};
    }
    return {};
  }

 private:
  struct Entry {
    std::atomic<uint64_t> signature;  ///< 0: none, or it is being written
    std::atomic<uint64_t> kind;       ///< collective, type, operation, direction, and root or peer
    std::atomic<uint64_t> count;
    std::atomic<uint64_t> sequence;
  };
  struct Part {
    std::atomic<uint64_t> written;  ///< entries, ever
    std::array<Entry, kEntries> entries;
  };
  static uint64_t packKind(const Call& call) {
    return static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32 | (call.receives ? uint64_t{1} << 24 : 0) |
           static_cast<uint64_t>(call.opCode) << 16 | static_cast<uint64_t>(call.type) << 8 | static_cast<uint64_t>(call.collective);
  }
  static Call unpack(uint64_t kind, uint64_t count, uint64_t sequence) {
    Call call;
    call.collective = static_cast<Collective>(kind & 0xff);
    call.type = static_cast<DataType>(kind >> 8 & 0xff);
    call.opCode = static_cast<uint8_t>(kind >> 16 & 0xff);
    call.receives = (kind >> 24 & 1) != 0;
    call.root = static_cast<int32_t>(kind >> 32);
    call.count = count;
    call.sequence = sequence;
    return call;
  }

  std::array<Part, 2> parts_;  // of eager calls, of captured ones
};

}  // namespace tutti::transport::device
