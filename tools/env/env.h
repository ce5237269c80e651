// `tutti env`: every environment variable, what it means, and what it holds now.
#pragma once

#include <string>
#include <vector>

namespace tutti::tool {

struct EnvOptions {
  std::vector<std::string> names;  ///< empty: all
  bool writesMarkdown = false;
  bool onlySet = false;
};

/// Prints to stdout. 0, or 2 when a name is not known. Loads the configuration files into this process's environment.
int runEnv(const EnvOptions& options);

}  // namespace tutti::tool
