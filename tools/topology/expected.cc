#include "topology/expected.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "topo/settings.h"

namespace tutti::tool {
namespace {

using Json = nlohmann::ordered_json;

Result<ExpectedRun> readRun(std::string name, const Json& run) {
  ExpectedRun read;
  read.name = std::move(name);
  read.facts.nodes = run.at("nodes").get<int>();
  if (read.facts.nodes < 1) return fail(Code::InvalidUsage, "run {} has {} nodes: expected 1 or more", read.name, read.facts.nodes);
  read.facts.isCollNet = run.at("collnet").get<bool>();
  read.facts.isClique = run.at("mnnvl").get<bool>();
  read.facts.settings.driverP2p = run.at("nvmlP2pOk").get<bool>();
  const auto devs = run.value("gpuSubset", std::string());
  for (const char* at = devs.c_str(); *at != '\0';) {
    char* end = nullptr;
    read.facts.gpus.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    if (end == at || (*end != ',' && *end != '\0'))
      return fail(Code::InvalidUsage, "run {} has gpuSubset \"{}\": expected numbers with commas between them", read.name, devs);
    at = *end == ',' ? end + 1 : end;
  }
  const Json environment = run.value("environment", Json::object());
  for (const auto& [variable, value] : environment.items()) {
    if (variable == "NCCL_GRAPH_FILE") {  // where it comes from is said, not where it is
      read.hasGraphFile = true;
      continue;
    }
    const auto text = value.get<std::string>();
    Status status = topo::applyPathVariable(variable, text, read.facts.settings);
    if (status.ok()) status = applyGraphVariables({{variable, text}}, read.graphs);
    if (!status.ok()) return tl::unexpected(std::move(status));
  }
  const auto took = run.find("timing_ms");
  if (took != run.end()) read.ms = took->at("topo").get<double>() + took->at("graphs").get<double>();
  return read;
}

}  // namespace

Result<ExpectedRun> expectedRun(std::string name, const Json& run) {
  try {
    return readRun(std::move(name), run);
  } catch (const Json::exception& wrong) {
    return fail(Code::InvalidUsage, "{}", wrong.what());
  }
}

Result<std::vector<ExpectedRun>> readExpected(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) return fail(Code::SystemError, "{}: cannot be read", file);
  const Json all = Json::parse(stream, nullptr, false);
  const Json runs = all.is_object() ? all.value("runs", Json::object()) : Json();  // the reference may have refused the topology
  if (!runs.is_object()) return fail(Code::InvalidUsage, "{}: expected a JSON object with \"runs\", as tutti topo facts prints", file);
  std::vector<ExpectedRun> read;
  for (const auto& [name, run] : runs.items()) {
    auto one = expectedRun(name, run);
    if (!one) return tl::unexpected(std::move(one).error().at(file));
    read.push_back(*std::move(one));
  }
  return read;
}

}  // namespace tutti::tool
