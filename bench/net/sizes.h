// A message of every size, there and back again: bare sockets and the library in turns.
//
// Both processes call it alike. What fails, and wrong data, end the process with the reason.
#pragma once

#include <span>
#include <vector>

#include "bench/row.h"
#include "library.h"

namespace tutti::bench {

/// What one of the two processes measures with.
struct Ends {
  bool isFirst;               ///< sends first, and reports
  int control;                ///< a socket to the other process
  std::span<const int> bare;  ///< connected sockets; who sleeps shares messages from kLeastStriped on out among them
  LibraryRank& library;

  /// Both sides begin together.
  void meet() const;
};

/// From so many bytes on several streams share a message.
inline constexpr size_t kLeastStriped = 1 << 20;

/// Prints a line for 8 B and every fourfold of it, up to 64 MiB, as it is measured. The rows' times are medians over the rounds of half a
/// round trip; empty in the process that does not report.
std::vector<Row> measureSizes(const Ends& ends, int rounds);

}  // namespace tutti::bench
