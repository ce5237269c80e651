// Writes the inputs of a call, poisons its outputs, and finds every element that came out wrong, for one rank.
//
// Stateless; each rank's own thread on its own memory. Readers of another rank's memory meet at a barrier before and after.
// A right result means: every element of the receive buffer is what the pattern says, a receive buffer that the call must not use
// is untouched, a separate send buffer still holds the input, and no byte around the buffers has changed.
#pragma once

#include <cstdint>
#include <string>

#include "bench/call.h"
#include "bench/pattern.h"

namespace tutti::bench {

/// One repetition: `phase` moves all values along their tables, so that no two repetitions hold the same.
struct Round {
  const Pattern* pattern = nullptr;
  uint64_t phase = 0;
};

/// Wrong elements of one rank (a changed byte around a buffer counts as one) and what the first of them looks like.
struct Verdict {
  uint64_t wrong = 0;
  std::string first;

  void add(uint64_t count, const std::string& text);
};

/// Inputs written, outputs filled with what they must not contain afterwards, guards set.
void prepare(const Call& call, int rank, const Placement& placement, Memory& memory, const Round& round);

/// The same without poison and guards, for calls that are timed only.
void writeInputs(const Call& call, int rank, const Placement& placement, const Round& round);

/// Judges what the call left behind since prepare() with the same arguments.
Verdict judge(const Call& call, int rank, const Placement& placement, const Memory& memory, const Round& round);

/// A number for the bits of a result: another one, all but certainly, where any bit differs.
uint64_t hashResult(const Call& call, const Placement& placement);

/// Elements in which this rank's result is not bit for bit that of another rank. For results that all ranks share.
Verdict compareRanks(const Call& call, const Placement& mine, const Placement& theirs, int theirRank);

}  // namespace tutti::bench
