// Where the topologies that tests read are: this repository's own, and the data set, which lies outside and may be absent.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::topo::test {

/// The names in a folder that end so, sorted, without the ending.
inline std::vector<std::string> namesIn(const std::string& folder, const std::string& ending) {
  std::vector<std::string> names;
  DIR* opened = opendir(folder.c_str());
  if (opened == nullptr) return names;
  while (const dirent* entry = readdir(opened)) {
    std::string name = entry->d_name;
    if (!name.ends_with(ending)) continue;
    name.resize(name.size() - ending.size());
    names.push_back(std::move(name));
  }
  closedir(opened);
  std::sort(names.begin(), names.end());
  return names;
}

/// Committed here: hand-written machines.
inline std::string ownFolder() { return TUTTI_SOURCE_DIR "/tests/data/topologies"; }

/// One of them, by name.
inline std::string ownFile(std::string_view name) {
  std::string path = ownFolder();
  path.append("/").append(name).append(".xml");
  return path;
}

/// The data set: TUTTI_TOPOLOGIES, or ../shared/data/topologies beside the sources.
inline std::string dataFolder() {
  const char* folder = std::getenv("TUTTI_TOPOLOGIES");
  return folder != nullptr ? folder : TUTTI_SOURCE_DIR "/../shared/data/topologies";
}

/// Paths without ending of all files below `folder` of either place; those that both have count once, as the own one.
inline std::vector<std::string> filesOf(const std::string& folder, const std::string& ending) {
  std::vector<std::string> files;
  const std::vector<std::string> own = namesIn(ownFolder() + folder, ending);
  for (const std::string& name : own) files.push_back(ownFolder() + folder + "/" + name);
  for (const std::string& name : namesIn(dataFolder() + folder, ending)) {
    if (!std::binary_search(own.begin(), own.end(), name)) files.push_back(dataFolder() + folder + "/" + name);
  }
  return files;
}

inline bool hasDataSet() { return !namesIn(dataFolder(), ".xml").empty(); }

/// The last part of a path, as a test may be named.
inline std::string testName(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

}  // namespace tutti::topo::test
