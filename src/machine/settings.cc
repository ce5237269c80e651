#include "machine/settings.h"

#include <utility>

#include "config/params.h"
#include "core/format.h"
#include "core/hash.h"
#include "machine/survey.h"
#include "topo/settings.h"

namespace tutti::machine {

using config::Param;

Result<Settings> readSettings() {
  Settings settings;
  settings.hash = hashText("");
  for (const std::string_view name : topo::pathVariables()) {
    const config::Entry* const entry = config::findEntry(name);
    const auto text = entry == nullptr ? std::nullopt : config::findText(entry->param);
    if (!text || text->empty()) continue;
    if (Status status = topo::applyPathVariable(name, *text, settings.paths); !status.ok()) return tl::unexpected(std::move(status));
    settings.hash = hashText(*text, hashText(name, settings.hash));
  }
  const int64_t crossNic = config::get<Param::CrossNic>();
  if (crossNic < 0 || crossNic > 2) return fail(Code::InvalidUsage, "NCCL_CROSS_NIC={}; expected 0, 1 or 2", crossNic);
  settings.search.crossNic = static_cast<int>(crossNic);
  settings.hash = hashText(format("{}", crossNic), settings.hash);
  settings.hostHash = hashText(format("{} {}", crossNic, settings.paths.netsPerGpu));
  if (const std::string path = config::get<Param::GraphFile>(); !path.empty()) {
    auto file = topo::readXml(path);
    if (!file) return tl::unexpected(std::move(file).error());
    const std::string text = topo::writeXml(file->root);
    settings.hash = hashText(text, settings.hash);
    settings.hostHash = hashText(text, settings.hostHash);
    settings.graphs = *std::move(file);
  }
  return settings;
}

Dump topologyDump() { return {config::get<Param::TopoDumpFile>(), config::get<Param::TopoDumpFileRank>()}; }

Dump graphDump() { return {config::get<Param::GraphDumpFile>(), config::get<Param::GraphDumpFileRank>()}; }

}  // namespace tutti::machine
