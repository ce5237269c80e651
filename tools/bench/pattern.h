// The inputs of all ranks and the result they must give, for one type and reduction, as tables that repeat with a prime period.
//
// Immutable once made: any thread. Filling and comparing run at memory speed because a table fits a core's cache.
// 1. The period is a prime, so data that arrives in the wrong place differs unless it is off by whole periods; two patterns with
//    different periods are used in turn, and no buffer is long enough to be off by whole periods of both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/reference.h"
#include "core/types.h"

namespace tutti::bench {

inline constexpr std::array<uint64_t, 2> kPeriods = {8191, 8209};

/// Elements that repeat: element i of an endless sequence is entry i modulo the number of entries.
class Table {
 public:
  Table(DataType type, uint64_t period);

  void set(uint64_t index, const Expected& expected);

  /// Writes elements first, first+1, … to data[0 … count).
  void fill(void* data, uint64_t count, uint64_t first) const;

  struct Mismatch {
    uint64_t wrong = 0;   ///< elements that differ
    uint64_t index = 0;   ///< of the first one, counted from data[0]
    std::string text;     ///< what it is and what it should be; empty when none differs
  };
  /// Compares data[0 … count) with elements first, first+1, …
  Mismatch compare(const void* data, uint64_t count, uint64_t first) const;

 private:
  bool isRight(uint64_t code, uint64_t entry) const;
  std::string describe(uint64_t code, uint64_t entry) const;

  DataType type_;
  uint64_t period_;
  std::vector<std::byte> bytes_;
  std::vector<double> values_;      ///< empty until an entry has a tolerance
  std::vector<double> tolerances_;
};

class Pattern {
 public:
  /// `op` is empty for moves. `number` chooses period and values.
  Pattern(DataType type, std::optional<RedOp> op, int ranks, uint64_t number);

  const Table& input(int rank) const { return inputs_[static_cast<size_t>(rank)]; }
  /// Only where there is a reduction.
  const Table& reduced() const { return reduced_; }

 private:
  std::vector<Table> inputs_;
  Table reduced_;
};

}  // namespace tutti::bench
