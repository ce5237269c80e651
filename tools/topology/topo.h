// `tutti topo`: shows this machine or one from a file, and states its facts as JSON.
#pragma once

#include <string>
#include <vector>

#include "topology/facts.h"
#include "topology/graph_facts.h"
#include "topology/source.h"

namespace tutti::tool {

struct TopoOptions {
  SourceOptions source;
  std::string svgPath;                 ///< Where to draw it; empty for nowhere.
  std::string writePath;               ///< Where to write the XML of what is used; empty for nowhere.
  std::vector<std::string> variables;  ///< NAME=VALUE, over those of the environment.
  FactsOptions facts;
  GraphFactsOptions graphs;
  std::string dumpGraphs;  ///< Where `facts` also writes the channels to, as graph XML; empty: nowhere.
};

/// The environment's variables, then those of the command line, into `facts` and `graphs`. Error: one that makes no sense.
Status readVariables(TopoOptions& options);

/// Both print to stdout; what is wrong goes to stderr. 0: done; 2: a file or setting that makes no sense; 3: the file cannot be read.
int runTopo(TopoOptions options);
int runTopoFacts(TopoOptions options);

}  // namespace tutti::tool
