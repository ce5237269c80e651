// The calls of one rank's latest launches, for whoever has to tell what a kernel waits in.
//
// Lies on the page, one for each rank. One writer at a time: the thread that launches for the rank. Any thread of any process reads.
// 1. A launch is known by the signature that its kernels have; its calls follow one another.
// 2. Calls that were captured have a ring of their own, since a graph may be launched long after them.
// 3. Zeroed memory is an empty book.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/device/call_ring.h"

namespace tutti::transport::device {

class LaunchBook {
 public:
  void write(uint64_t signature, const Call& call, bool isCaptured) { parts_[isCaptured ? 1 : 0].write(signature, call); }

  struct Found {
    std::vector<Call> calls;  ///< in the order in which they were written; empty: not known any more
    bool isEager = false;     ///< it was launched when its calls were made; else it is of a graph, or not known any more
  };
  Found find(uint64_t signature) const {
    std::vector<Call> calls;
    for (size_t p = 0; p < parts_.size(); ++p) {
      parts_[p].visit([&](uint64_t key) { return key == signature; }, [&](uint64_t, const Call& call) { calls.push_back(call); });
      if (!calls.empty()) return {std::move(calls), p == 0};
    }
    return {};
  }

 private:
  std::array<CallRing, 2> parts_;  // of eager calls, of captured ones
};

}  // namespace tutti::transport::device
