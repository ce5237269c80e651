// Where the value of each variable comes from: the process's environment or one of the configuration files.
//
// Made once, before anything else reads the configuration; reads the files into the environment, as the library does.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace tutti::tool {

struct Held {
  std::string value;
  std::string source;  ///< "environment" or the path of a file
};

class Origins {
 public:
  /// No other thread may use the environment meanwhile.
  static Origins load();

  /// What `name` holds; null when it is not set.
  const Held* find(const std::string& name) const;

  /// Every NCCL_ and TUTTI_ variable that is set.
  const std::map<std::string, Held>& all() const { return held_; }

 private:
  void note(const std::string& source);
  std::map<std::string, Held> held_;
};

}  // namespace tutti::tool
