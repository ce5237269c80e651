// Where the machine that `tutti topo` shows comes from: an XML, this machine, or a recording of one.
//
// Owner: the command. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "topo/affinity.h"
#include "topo/xml.h"

namespace tutti::tool {

struct SourceOptions {
  std::string file;        ///< Topology XML; empty: see `replayPath`.
  std::string replayPath;  ///< A recording; empty, as `file`: this machine.
  std::string recordPath;  ///< Where to record what is asked of this machine; empty: nowhere.
};

struct Source {
  topo::Document machine;
  std::optional<topo::CpuSet> allowed;  ///< CPUs that the process may use; nothing for an XML, which does not know.
  std::vector<topo::CpuSet> caches;     ///< The CPUs below each last-level cache.
  std::vector<std::string> notes;       ///< What could not be asked, and why.
};

/// Error: what reading, detection or recording says. That there is no GPU, no NVML or no network is a note.
Result<Source> openSource(const SourceOptions& options);

}  // namespace tutti::tool
