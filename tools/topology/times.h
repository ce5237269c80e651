// `tutti topo times`: how long it takes from topology XML to channels, and how long the reference took.
#pragma once

#include <string>
#include <vector>

#include "topology/graph_facts.h"

namespace tutti::tool {

struct TimesOptions {
  std::vector<std::string> files;
  std::vector<int> nodes = {1, 2};
  bool isClique = false;  ///< The nodes are one multi-node NVLink clique.
  int runs = 20;          ///< Of each; at least 1.
  std::string expected;   ///< Folder with the reference's facts of the files: their runs are timed instead. Empty: none.
};

/// Milliseconds of one run, of CPU time of the calling thread: what else runs on its core does not count.
struct TimesOfRun {
  double readMs = 0;    ///< The XML.
  double viewMs = 0;    ///< System and paths.
  double searchMs = 0;  ///< All channel sets.
  double sumMs() const { return readMs + viewMs + searchMs; }
  double foundMs() const { return viewMs + searchMs; }  ///< What the reference's facts time.
};

/// Error: a file that cannot be read or makes no sense. One without GPUs, or whose GPUs nothing joins, has no channels to look for.
Result<std::vector<TimesOfRun>> timeRuns(const std::string& file, const FactsOptions& facts, int runs,
                                         const GraphFactsOptions& graphs = {});

/// One run of the reference's facts.
struct Compared {
  std::string name;  ///< nvidia-dgx1v-v100x8 n2
  double ms = 0;     ///< Median of system, paths and channels.
  double referenceMs = 0;
};
/// All searches of a topology file that the reference took some time for. Error: as timeRuns, or facts that cannot be read.
Result<std::vector<Compared>> compareTimes(const std::string& file, const std::string& expected, int runs);

/// Prints a table and what the slowest takes. 0: done; 2: a file that makes no sense; 3: one that cannot be read.
int runTopoTimes(const TimesOptions& options);

}  // namespace tutti::tool
