#include "topology/topo.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "topo/build.h"
#include "topo/graph_xml.h"
#include "topo/settings.h"
#include "topology/show.h"

namespace tutti::tool {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitError = 3;

int tell(const Status& status) {
  std::fprintf(stderr, "tutti topo: %s\n", status.text().c_str());
  return status.code() == Code::SystemError ? kExitError : kExitUsage;
}

/// The environment's variables, then those of the command line.
Status readVariables(TopoOptions& options) {
  std::vector<std::string_view> known(topo::pathVariables().begin(), topo::pathVariables().end());
  known.insert(known.end(), graphVariables().begin(), graphVariables().end());
  const auto apply = [&](const std::string& name, const std::string& value) -> Status {
    TUTTI_TRY(topo::applyPathVariable(name, value, options.facts.settings));
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

Result<topo::View> load(TopoOptions& options) {
  if (Status status = readVariables(options); !status.ok()) return tl::unexpected(std::move(status));
  const auto machine = topo::readXml(options.file);
  if (!machine) return tl::unexpected(machine.error());
  return viewOf(*machine, options.facts);
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

/// What a file without usable GPUs still says: its notes.
int showPart(const std::string& file) {
  const auto machine = topo::readXml(file);
  if (!machine) return tell(machine.error());
  const auto hash = machine->root.child("cpu") == nullptr ? Result<std::optional<uint64_t>>(std::nullopt)
                                                          : topo::findHex(*machine, *machine->root.child("cpu"), "host_hash");
  if (!hash) return tell(hash.error());
  const auto built = topo::buildSystem(*machine, hash->value_or(0));
  if (!built) return tell(built.error());
  std::printf("%s: no GPU that can be used; %d CPUs, %d PCI switches, %d nets. What is missing:\n", file.c_str(),
              built->system.count(topo::NodeKind::Cpu), built->system.count(topo::NodeKind::Pci), built->system.count(topo::NodeKind::Net));
  for (const std::string& note : built->notes) std::printf("  %s\n", note.c_str());
  return 0;
}

}  // namespace

int runTopo(TopoOptions options) {
  const auto machine = topo::readXml(options.file);
  if (!machine) return tell(machine.error());
  const auto devs = topo::gpuDevs(*machine);
  if (!devs) return tell(devs.error());
  if (devs->empty()) return showPart(options.file);
  const auto view = load(options);
  if (!view) return tell(view.error());
  if (!options.writePath.empty()) {
    if (const Status status = topo::writeXmlFile(options.writePath, view->xml.root); !status.ok()) return tell(status);
  }
  std::fputs(showTopology(*view, options.facts.settings).c_str(), stdout);
  return 0;
}

int runTopoFacts(TopoOptions options) {
  const auto machine = topo::readXml(options.file);
  if (!machine) return tell(machine.error());
  const auto view = load(options);
  if (!view) return tell(view.error());
  nlohmann::ordered_json run = factsOf(*view, options.facts);
  if (const Status status = addGraphFacts(run, *machine, *view, options.facts, options.graphs); !status.ok()) {
    // The machine's facts hold all the same; a graph file or variable that makes no sense does not.
    if (status.code() != Code::SystemError) return tell(status);
    std::fprintf(stderr, "tutti topo: no channels: %s\n", status.text().c_str());
    run["graphs"] = {{"error", status.text()}};
  } else if (!options.dumpGraphs.empty()) {
    const auto graphs = graphsOf(*view, options.facts, options.graphs);
    if (!graphs) return tell(graphs.error());
    const Status written = topo::writeXmlFile(options.dumpGraphs, topo::writeGraphs(*graphs, view->system));
    if (!written.ok()) return tell(written);
  }
  nlohmann::ordered_json all = {{"topology", topologyName(options.file)}};
  all["runs"][runName(options.facts)] = std::move(run);
  std::printf("%s\n", all.dump(1).c_str());
  return 0;
}

}  // namespace tutti::tool
