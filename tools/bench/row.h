// One measured line of the benchmark, as the table, the JSON file and the plot take it.
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/call.h"
#include "bench/measure.h"

namespace tutti::bench {

struct Row {
  std::string op;
  std::string type;
  std::string redOp;  ///< "none" for moves
  int root = -1;
  int ranks = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;
  bool isInPlace = false;
  double timeUs = 0;  ///< median of the samples
  double p99Us = 0;
  double algbwGBps = 0;  ///< decimal gigabytes
  double busbwGBps = 0;
  std::optional<uint64_t> wrong;  ///< empty when nothing was checked
  std::string library;  ///< whose collective it is, where several are compared
};

Row makeRow(const Call& call, const Measurement& measurement, bool isChecked);

}  // namespace tutti::bench
