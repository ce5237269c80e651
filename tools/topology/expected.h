// The reference's facts of a topology, one file of runs: how each used the machine, and how long it took.
//
// Reads files; any thread. What the channels of a run have to be is compared elsewhere (tests/tools/topology/graph_facts_test.cc).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "topology/graph_facts.h"

namespace tutti::tool {

struct ExpectedRun {
  std::string name;  ///< n2-collnet
  FactsOptions facts;
  GraphFactsOptions graphs;
  bool hasGraphFile = false;  ///< Its channels were read, not searched.
  double ms = 0;              ///< System, paths and channels took the reference so long; 0: it does not say.
};

/// Error: a field or an environment variable that makes no sense.
Result<ExpectedRun> expectedRun(std::string name, const nlohmann::ordered_json& run);

/// The runs of a file, in its order. Error: a file that cannot be read, or holds something else.
Result<std::vector<ExpectedRun>> readExpected(const std::string& file);

}  // namespace tutti::tool
