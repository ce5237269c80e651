#include "env/origin.h"

#include <unistd.h>

#include <string_view>

#include "config/files.h"
#include "config/params.h"

namespace tutti::tool {

Origins Origins::load() {
  Origins origins;
  origins.note("environment");
  // The same order as config::load(), one file at a time: what appears after a file came from it.
  if (const std::string file = config::findUserFile(); !file.empty() && config::loadFile(file.c_str())) origins.note(file);
  if (config::loadFile(config::kSystemFile)) origins.note(config::kSystemFile);
  config::load();
  return origins;
}

void Origins::note(const std::string& source) {
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view line = *entry;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, equals);
    if (!name.starts_with("NCCL_") && !name.starts_with("TUTTI_")) continue;
    held_.try_emplace(std::string(name), Held{std::string(line.substr(equals + 1)), source});
  }
}

const Held* Origins::find(const std::string& name) const {
  const auto found = held_.find(name);
  return found == held_.end() ? nullptr : &found->second;
}

}  // namespace tutti::tool
