// `tutti prove`: proves the algorithms, or those asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti::tool {

struct ProveOptions {
  std::string algorithm;             ///< "ring" or "AllReduce:ring"; empty: all
  std::vector<int> ranks;            ///< empty: the standard ones
  std::vector<int> slots;            ///< likewise
  bool isFull = false;
  bool listsOnly = false;
  std::string markdownPath;
};

/// Prints as it goes. 0: everything proved; 1: something is not, or a file could not be written; 2: nothing matches the options.
int runProve(const ProveOptions& options);

}  // namespace tutti::tool
