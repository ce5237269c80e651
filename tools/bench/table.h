// The benchmark on the terminal: header, rows as they are finished, progress in between, summary.
//
// One thread. Rows go to stdout; progress is one line on stderr, rewritten in place, and only if stderr is a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/memcpy.h"
#include "bench/options.h"
#include "bench/row.h"

namespace tutti::bench {

class TableWriter {
 public:
  /// One that is not `isLead` writes complaints alone: the first process speaks for all.
  explicit TableWriter(bool isLead);

  /// What runs, on what; `simd` may be empty.
  void writeHeader(const Options& options, const std::string& simd);
  /// The forms of one size; either may be missing.
  void writeRow(const std::optional<Row>& outOfPlace, const std::optional<Row>& inPlace);
  void writeTraffic(const Call& call, const Traffic& traffic, double timeUs, const MemcpyRate& rate);
  void writeSummary(const std::vector<Row>& rows, double seconds);

  void showProgress(const std::string& text);
  void clearProgress();

  /// A line on stderr, whatever is being shown.
  void complain(const std::string& text);

 private:
  void print(const std::string& text) const;

  bool isLead_;
  bool isTerminal_;
  bool isShowing_ = false;
};

}  // namespace tutti::bench
