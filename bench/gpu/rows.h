// What was measured, as lines of JSON: one header, then one object a row. The one place of this program that includes the JSON library.
// Owner: rank 0; the others' rows are never written.
#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/options.h"

namespace tutti::bench::gpu {

/// One library's part of a row. Times are microseconds of a call.
struct Figures {
  double medianUs = 0;
  double p99Us = 0;
  double firstQuarterUs = 0;   ///< a quarter of the blocks took less
  double thirdQuarterUs = 0;
  double cpuUs = 0;            ///< the caller's own time; eager calls only
  double wrong = 0;            ///< elements, of all ranks, before and after the rounds
  Nodes nodes;                 ///< the most of all ranks; all zero where there are no graphs
};

struct CompareRow {
  CallKind kind;
  Mode mode = Mode::Eager;
  int ctas = 0;
  int rounds = 0;
  int calls = 0;
  int slots = 0;
  std::array<Figures, 2> figures;
};

/// What a library takes of a GPU's memory, in bytes, the most of all ranks; by cudaMemGetInfo.
struct Taken {
  double connected = 0;  ///< by a communicator
  double warm = 0;       ///< by that and a first call of each kind, of the smallest and of the largest size
};

class RowWriter {
 public:
  /// Empty path: nowhere.
  RowWriter(const BenchOptions& options, bool isLead);

  void header(const Device& device, const std::array<std::string, 2>& versions, const std::array<std::string, 2>& paths);
  void memory(int ctas, const std::array<Taken, 2>& taken);
  void row(const CompareRow& row, int multiprocessors);
  /// One object of numbers and texts, as a command other than compare has them.
  void object(const std::vector<std::pair<std::string, std::string>>& texts, const std::vector<std::pair<std::string, double>>& numbers);

 private:
  void write(const std::string& line);

  const BenchOptions& options_;
  std::unique_ptr<FILE, int (*)(FILE*)> file_{nullptr, &std::fclose};
};

/// Draws the rows of a file of such lines, for each operation OP into a file of its own: OUT-OP.svg for OUT.svg. The program's exit code.
int plotRows(const std::string& from, const std::string& to);

}  // namespace tutti::bench::gpu
