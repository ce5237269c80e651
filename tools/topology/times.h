// `tutti topo times`: how long it takes from topology XML to channels.
#pragma once

#include <string>
#include <vector>

#include "topology/facts.h"

namespace tutti::tool {

struct TimesOptions {
  std::vector<std::string> files;
  std::vector<int> nodes = {1, 2};
  bool isClique = false;  ///< The nodes are one multi-node NVLink clique.
  int runs = 20;          ///< Of each; at least 1.
};

/// Milliseconds of one run, of CPU time of the calling thread: what else runs on its core does not count.
struct TimesOfRun {
  double readMs = 0;    ///< The XML.
  double viewMs = 0;    ///< System and paths.
  double searchMs = 0;  ///< All channel sets.
  double sumMs() const { return readMs + viewMs + searchMs; }
};

/// Error: a file that cannot be read or makes no sense. One without GPUs, or whose GPUs nothing joins, has no channels to look for.
Result<std::vector<TimesOfRun>> timeRuns(const std::string& file, const FactsOptions& facts, int runs);

/// Prints a table and what the slowest takes. 0: done; 2: a file that makes no sense; 3: one that cannot be read.
int runTopoTimes(const TimesOptions& options);

}  // namespace tutti::tool
