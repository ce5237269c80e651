// Measures calls with two libraries, in turns, on the same buffers.
//
// Owner: a rank's process, one thread; all ranks do the same.
// 1. What a block is, and what its time, options.cc says to the user.
// 2. Both libraries of a row make the same number of calls a block, found from the slower one.
// 3. The time of a block counts on the slowest rank; a block begins at a barrier.
#pragma once

#include <chrono>

#include "gpu/buffers.h"
#include "gpu/rows.h"

namespace tutti::bench::gpu {

/// All counts of a type that the options ask for.
std::vector<uint64_t> countsOf(const BenchOptions& options, const Operation* operation, DataType type);

/// Both libraries of the options.
std::array<Library, 2> openBoth(const BenchOptions& options);

/// One library with its communicator, as long as the row set lasts.
struct Side {
  const Library* library = nullptr;
  ncclComm_t comm = nullptr;
  std::vector<void*> handles{};          ///< of buffers that are registered
  std::vector<ncclWindow_t> windows{};  ///< that they are
  std::unique_ptr<Graph> graph;
  std::vector<double> blocksUs;
  std::vector<double> cpuUs;
  Figures figures;
};

/// Makes the buffers known to a side's library as the options say, and takes that back. Collective.
void enrol(Side& side, const BenchOptions& options, const BlockBuffers& buffers, bool isA);
void withdraw(Side& side);

class Comparison {
 public:
  Comparison(World& world, Device& device, const BenchOptions& options);

  /// The program's exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  bool isTimeUp();
  void connect(int ctas);
  void disconnect();
  Taken warmUp(Side& side, int ctas);
  void runKinds(int ctas, const Operation* operation);
  void runCell(const CallKind& kind, Mode mode, int ctas);
  /// As many calls as take about a block.
  int countCalls(const CallKind& kind);
  void makeCalls(Side& side, const CallKind& kind, int calls);
  void runBlock(Side& side, const CallKind& kind, Mode mode, int calls);
  void checkOnce(Side& side, const CallKind& kind, Mode mode, int calls);
  void finishFigures(Side& side);
  void show(const CompareRow& row) const;

  World& world_;
  Device& device_;
  const BenchOptions& options_;
  std::array<Library, 2> libraries_;
  std::array<Side, 2> sides_;
  BlockBuffers buffers_;
  RowWriter writer_;
  Clock::time_point begin_ = Clock::now();
  uint64_t seed_ = 0;
  double wrong_ = 0;
  bool wasCut_ = false;  ///< by the time
};

int runCompare(World& world, const BenchOptions& options);

}  // namespace tutti::bench::gpu
