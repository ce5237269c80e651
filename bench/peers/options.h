// The command line of a comparison.
// Plain values.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"

namespace tutti::bench {

struct PeerOptions {
  std::vector<const Operation*> operations;
  /// Of these, used here: sizes, buffers, and the paths of plot and rows.
  Options common;
  int rounds = 31;
  bool isHosts = false;  ///< each rank counts as one
};

/// Ends the process where there is nothing to run: --help, or a mistake.
PeerOptions parsePeerOptions(int argc, char** argv);

}  // namespace tutti::bench
