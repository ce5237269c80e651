// `tutti explain`: what a call would get, and why.
#pragma once

#include <string>

#include "bench/operation.h"
#include "core/types.h"
#include "plan/explanation.h"
#include "topology/topo.h"

namespace tutti::tool {

struct ExplainOptions {
  const bench::Operation* operation = nullptr;
  uint64_t bytes = 0;  ///< of the larger buffer
  DataType type = DataType::F32;
  int root = 0;
  int ranks = 4;      ///< host devices of this machine
  int gpus = 0;       ///< so many GPUs of one host with NVSwitches; 0: host devices, or `topo`
  TopoOptions topo;   ///< a machine from a file, where topo.source.file names one
  bool writesJson = false;
};

/// Elements, as the call itself takes them; at least one.
uint64_t countOf(const ExplainOptions& options, int ranks);

/// The three ways to an explanation, as JSON (tutti.h, tuttiExplain).
Result<std::string> explainHost(const ExplainOptions& options);
/// `listed`: as many GPUs the machine has; of more than these, what `tutti tune` kept of it says nothing.
Result<std::string> explainGpus(const ExplainOptions& options, int listed);
Result<std::string> explainTopology(const ExplainOptions& options);

/// The JSON as a table to read. Error: it is not what tutti.h promises.
Result<std::string> showExplanation(const std::string& json);

/// Prints it. 0: done; 2: arguments, settings or a file that make no sense; 3: the library failed, or the file cannot be read.
int runExplain(const ExplainOptions& options);

}  // namespace tutti::tool
