#include "topology/topo.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "exit_codes.h"
#include "topo/assemble.h"
#include "topo/build.h"
#include "topo/graph_xml.h"
#include "topo/settings.h"
#include "topology/host_view.h"
#include "topology/hosts_view.h"
#include "topology/show.h"
#include "topology/svg.h"

namespace tutti::tool {
namespace {

int tell(const Status& status) {
  std::fprintf(stderr, "tutti topo: %s\n", status.text().c_str());
  return status.code() == Code::SystemError ? kExitError : kExitUsage;
}

/// n2-collnet-gpus0_1: as the reference's runs are named.
std::string runName(const FactsOptions& options) {
  std::string name = format("n{}", options.nodes);
  if (options.isCollNet) name += "-collnet";
  if (options.isClique) name += "-mnnvl";
  for (size_t i = 0; i < options.gpus.size(); ++i) name += format("{}{}", i == 0 ? "-gpus" : "_", options.gpus[i]);
  return name;
}

std::string topologyName(const std::string& file) {
  std::string name = file.substr(file.rfind('/') + 1);
  if (name.ends_with(".xml")) name.resize(name.size() - 4);
  return name;
}

/// Ranks compute with host devices: that is asked for, or stated, or a machine is looked at that has no GPU. A file without GPUs is more
/// likely one that detection is to complete.
Result<bool> wantsHost(const Source& source, const FactsOptions& options) {
  const auto devs = topo::gpuDevs(source.machine);
  if (!devs) return tl::unexpected(devs.error());
  return options.hostDevices.has_value() || (devs->empty() && (source.allowed.has_value() || hasHostDevices(source.machine)));
}

Result<topo::View> viewOfSource(const Source& source, const FactsOptions& options) {
  const auto onHost = wantsHost(source, options);
  if (!onHost) return tl::unexpected(onHost.error());
  return *onHost ? hostViewOf(source.machine, options, source.allowed) : viewOf(source.machine, options);
}

/// A file of which only detection knows the GPUs.
int showIncomplete(const Source& source, const TopoOptions& options) {
  for (const std::string* path : {&options.svgPath, &options.writePath}) {
    if (!path->empty()) return tell(error(Code::InvalidUsage, "{}: there is no GPU to draw or to write", source.machine.file));
  }
  const topo::Element* cpu = source.machine.root.child("cpu");
  const auto hash =
      cpu == nullptr ? Result<std::optional<uint64_t>>(std::nullopt) : topo::findHex(source.machine, *cpu, "host_hash");
  if (!hash) return tell(hash.error());
  auto built = topo::buildSystem(source.machine, hash->value_or(0));
  if (!built) return tell(built.error());
  std::fputs(showHost(source.machine.file, *built).c_str(), stdout);
  return 0;
}

bool isHostView(const topo::View& view) { return view.system.count(topo::NodeKind::Host) > 0; }

/// The machine with its channels, where they can be found.
Status draw(const topo::View& view, const TopoOptions& options) {
  const auto graphs = isHostView(view) ? hostGraphs(view) : graphsOf(view, options.facts, options.graphs);
  if (!graphs && graphs.error().code() != Code::SystemError) return graphs.error();
  return topo::writeText(options.svgPath, drawTopology(view, graphs ? &*graphs : nullptr));
}

bool wantsAllCpus() {
  const char* value = std::getenv("NCCL_IGNORE_CPU_AFFINITY");
  return value != nullptr && std::strtol(value, nullptr, 0) != 0;
}

}  // namespace

Status readVariables(TopoOptions& options) {
  std::vector<std::string_view> known(topo::pathVariables().begin(), topo::pathVariables().end());
  known.insert(known.end(), graphVariables().begin(), graphVariables().end());
  known.insert(known.end(), topo::mergeVariables().begin(), topo::mergeVariables().end());
  const auto apply = [&](const std::string& name, const std::string& value) -> Status {
    TUTTI_TRY(topo::applyPathVariable(name, value, options.facts.settings));
    TUTTI_TRY(topo::applyMergeVariable(name, value, options.facts.merge));
    return applyGraphVariables({{name, value}}, options.graphs);
  };
  for (const std::string_view name : known) {
    const char* value = std::getenv(std::string(name).c_str());
    if (value != nullptr) TUTTI_TRY(apply(std::string(name), value));
  }
  for (const std::string& variable : options.variables) {
    const size_t cut = variable.find('=');
    const std::string name = variable.substr(0, cut);
    if (cut == std::string::npos || std::find(known.begin(), known.end(), name) == known.end()) {
      std::string names;
      for (const std::string_view one : known) names += format(" {}", one);
      return error(Code::InvalidArgument, "--set \"{}\": expected NAME=VALUE with one of{}", variable, names);
    }
    TUTTI_TRY(apply(name, variable.substr(cut + 1)));
  }
  return {};
}

int runTopo(TopoOptions options) {
  if (const Status status = readVariables(options); !status.ok()) return tell(status);
  auto source = openSource(options.source);
  if (!source) return tell(source.error());
  if (const Status status = topo::mergeNets(source->machine, options.facts.merge); !status.ok()) return tell(status);
  const auto onHost = wantsHost(*source, options.facts);
  if (!onHost) return tell(onHost.error());
  if (!*onHost && topo::gpuDevs(source->machine)->empty()) return showIncomplete(*source, options);
  auto view = viewOfSource(*source, options.facts);
  if (!view) return tell(view.error());
  view->notes.insert(view->notes.begin(), source->notes.begin(), source->notes.end());
  if (!options.writePath.empty()) {
    if (const Status status = topo::writeXmlFile(options.writePath, view->xml.root); !status.ok()) return tell(status);
  }
  if (!options.svgPath.empty()) {
    if (const Status status = draw(*view, options); !status.ok()) return tell(status);
  }
  std::fputs(showTopology(*view, options.facts.settings).c_str(), stdout);
  if (isHostView(*view)) std::fputs(showHostRing(*view).c_str(), stdout);
  if (options.facts.nodes > 1 && !options.facts.isClique)
    std::fputs(showHosts(source->machine, *view, options.facts, options.graphs).c_str(), stdout);
  if (const std::optional<topo::CpuSet>& allowed = source->allowed; allowed.has_value())
    std::fputs(showAffinity(view->system, view->paths, *allowed, wantsAllCpus(), source->caches).c_str(), stdout);
  return 0;
}

int runTopoFacts(TopoOptions options) {
  if (const Status status = readVariables(options); !status.ok()) return tell(status);
  auto source = openSource(options.source);
  if (!source) return tell(source.error());
  if (const Status status = topo::mergeNets(source->machine, options.facts.merge); !status.ok()) return tell(status);
  for (const std::string& note : source->notes) std::fprintf(stderr, "tutti topo: %s\n", note.c_str());
  const auto view = viewOfSource(*source, options.facts);
  if (!view) return tell(view.error());
  nlohmann::ordered_json run = factsOf(*view, options.facts);
  const auto graphs = isHostView(*view) ? addHostGraphFacts(run, *view)
                                        : addGraphFacts(run, source->machine, *view, options.facts, options.graphs);
  if (!graphs) {
    // The machine's facts hold all the same; a graph file or variable that makes no sense does not.
    if (graphs.error().code() != Code::SystemError || !options.graphs.graphFile.empty()) return tell(graphs.error());
    std::fprintf(stderr, "tutti topo: no channels: %s\n", graphs.error().text().c_str());
    run["graphs"] = {{"error", graphs.error().text()}};
  } else if (!graphs->note.empty()) {
    std::fprintf(stderr, "tutti topo: %s\n", graphs->note.c_str());
  }
  if (graphs && !options.dumpGraphs.empty()) {
    const Status written = topo::writeXmlFile(options.dumpGraphs, topo::writeGraphs(*graphs, view->system));
    if (!written.ok()) return tell(written);
  }
  nlohmann::ordered_json all = {{"topology", topologyName(source->machine.file)}};
  all["runs"][runName(options.facts)] = std::move(run);
  std::printf("%s\n", all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace tutti::tool
