// What a program moves: a fold over its recorded steps, used by the benchmark's yardstick and by the choice of algorithm.
// Pure functions.
#pragma once

#include "algo/geometry.h"
#include "exec/record/program.h"

namespace tutti::exec::record {

/// What becomes of values that are stored in windows: written there and read again; read where the storing rank has them (Traits::lends);
/// or those that a rank has combined written to all outputs at once, the others read (Traits::places).
enum class Loans : uint8_t { None, Read, Placed };

/// Bytes of memory that one rank reads and writes, and messages that it sends, for a whole call on one channel.
/// Values passed between ranks count where they are written and where they are read; `passByReference` tells that a chunk sent
/// straight from a caller's buffer is not written again on the way (the host executor inside a process).
struct Traffic {
  uint64_t bytesRead = 0;
  uint64_t bytesWritten = 0;
  uint64_t bytesSent = 0;
  uint64_t messages = 0;
  uint64_t steps = 0;

  Traffic& operator+=(const Traffic& other);
};

Traffic countTraffic(const Program& program, const algo::Geometry& geometry, uint32_t elementBytes, int32_t channel, int32_t ranks,
                     bool passByReference, Loans loans = Loans::None);

}  // namespace tutti::exec::record
