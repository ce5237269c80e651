// `tutti checks`: what agreement, deadlines and abort checks cost, measured on and off by turns in one process.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace tutti::bench {

struct CheckCostOptions {
  int ranks = 2;
  int bytes = 8;
  int blocks = 40;
  int calls = 5000;  ///< timed calls of a block with checks, and as many without
};

/// Nanoseconds a call takes, one value a block.
struct CheckCost {
  std::vector<double> with;
  std::vector<double> without;
};

/// The cost in the middle of the blocks, and what is allowed: the larger of 2% and 20 ns.
struct CheckCostSummary {
  double with = 0;
  double without = 0;
  double difference = 0;  ///< median of the differences of each block
  double lowQuarter = 0;
  double highQuarter = 0;
  double allowed = 0;
  bool isWithin() const { return difference <= allowed; }
};
CheckCostSummary summarize(const CheckCost& cost);

/// All-reduces of `bytes` bytes of float on ranks as threads.
Result<CheckCost> measureChecks(const CheckCostOptions& options);

/// Prints the table. 0: within what is allowed; 1: above it; 3: the library failed.
int runChecks(const CheckCostOptions& options);

}  // namespace tutti::bench
