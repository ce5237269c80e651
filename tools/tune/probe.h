// Times calls of ranks that are threads of this process, each with memory and a stream of its own kind.
//
// One thread calls it; it starts its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/types.h"

namespace tutti::tool {

/// A call that was timed.
struct Probe {
  Collective collective = Collective::AllReduce;
  uint64_t bytes = 0;  ///< of the larger buffer
  int32_t ranks = 0;
  std::string algorithm;  ///< that it ran with
  std::string protocol;   ///< as NCCL_PROTO calls it; empty on host devices
  int32_t blocks = 1;     ///< GPUs: that a rank took
  double us = 0;          ///< of the fastest of some batches
};

/// Calls that somebody else has timed: a JSON list of objects with call, bytes, ranks, algorithm, protocol, blocks and us. Fails with
/// InvalidUsage, naming the entry, where one makes no sense. `where` names the text in errors.
Result<std::vector<Probe>> parseProbes(std::string_view where, const std::string& text);

/// Elements, as the call itself takes them, of floats.
uint64_t countOf(const Probe& probe);

/// How far off estimates of probes are in the mean, as a factor.
double meanFactor(const std::vector<double>& estimatesUs, const std::vector<Probe>& probes);
/// What a fit of them makes less (fit.h).
double lossOf(const std::vector<double>& estimatesUs, const std::vector<Probe>& probes);

/// What a rank's calls use; made and used by its thread.
struct Memory {
  virtual ~Memory() = default;
  /// Waits for the rank's calls.
  virtual Status finish() { return {}; }
  Status status;  ///< of making it
  void* in = nullptr;
  void* out = nullptr;
  void* stream = nullptr;
};
using MemoryOf = std::function<std::unique_ptr<Memory>(int32_t rank, uint64_t bytes)>;

/// Every collective that has several algorithms, small, middle and large, through the library.
Result<std::vector<Probe>> measureCalls(int32_t ranks, MemoryOf memory);

}  // namespace tutti::tool
