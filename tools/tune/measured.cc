#include "tune/measured.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "plan/link_planner.h"
#include "tune/fit.h"

namespace tutti::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<std::string_view, Collective> kCollectives[] = {
    {"all_reduce", Collective::AllReduce}, {"all_gather", Collective::AllGather}, {"reduce_scatter", Collective::ReduceScatter},
    {"broadcast", Collective::Broadcast},  {"reduce", Collective::Reduce},
};
constexpr std::pair<std::string_view, tune::Generation> kGenerations[] = {{"volta", tune::Generation::Volta},
                                                                          {"ampere", tune::Generation::Ampere},
                                                                          {"hopper", tune::Generation::Hopper},
                                                                          {"blackwell", tune::Generation::Blackwell}};

tune::Fabric fabricOf(const Json& json) {
  tune::Fabric fabric;
  fabric.ranks = json.at("ranks").get<int32_t>();
  fabric.nodes = json.at("nodes").get<int32_t>();
  for (const auto& [name, generation] : kGenerations)
    if (json.at("generation") == name) fabric.generation = generation;
  fabric.rings.channels = json.at("channels").get<int32_t>();
  fabric.rings.intraGBps = json.at("channelGBps").get<double>();
  fabric.rings.link = json.at("link") == "pci" ? tune::LinkKind::Pci : tune::LinkKind::NvLink;
  fabric.trees = fabric.rings;
  fabric.keepsLines = fabric.rings.link == tune::LinkKind::NvLink;
  return fabric;
}

Status check(const Measured& measured) {
  const tune::Fabric& fabric = measured.fabric;
  if (fabric.ranks < 2 || fabric.ranks > 1024 || fabric.nodes != 1)
    return error(Code::InvalidUsage, "fabric has {} ranks on {} nodes: expected 2 to 1024 on 1", fabric.ranks, fabric.nodes);
  if (fabric.rings.channels < 1 || fabric.rings.channels > 64 || !(fabric.rings.intraGBps > 0))
    return error(Code::InvalidUsage, "fabric has {} channels of {} GB/s: expected 1 to 64 of more than 0", fabric.rings.channels,
                 fabric.rings.intraGBps);
  for (const Sample& sample : measured.samples)
    if (!(sample.us > 0) || sample.bytes == 0)
      return error(Code::InvalidUsage, "{} of {} bytes in {} us: expected more than 0", name(sample.collective), sample.bytes, sample.us);
  if (measured.samples.empty()) return error(Code::InvalidUsage, "us has no collective that the model knows");
  return {};
}

double estimateUs(plan::LinkPlanner& planner, const Sample& sample, int32_t ranks) {
  plan::Shape shape;
  shape.collective = sample.collective;
  shape.type = DataType::F32;
  const bool isBlocks = sample.collective == Collective::AllGather || sample.collective == Collective::ReduceScatter;
  shape.count = std::max<uint64_t>(1, sample.bytes / sizeof(float) / (isBlocks ? static_cast<uint64_t>(ranks) : 1));
  const auto explanation = planner.explain(shape);
  return explanation ? explanation->chosen.estimatedUs : NAN;
}

/// Latencies of a protocol go together, and so do speeds.
struct Scales {
  double latency[tune::kNcclProtocols] = {1, 1, 1};
  double speed[tune::kNcclProtocols] = {1, 1, 1};

  tune::LinkConstants applied(tune::LinkConstants constants) const {
    for (size_t a = 0; a < tune::kNcclAlgorithms; ++a) {
      for (size_t p = 0; p < tune::kNcclProtocols; ++p) {
        constants.baseUs[a][p] *= latency[p];
        for (auto& link : constants.hopUs) link[a][p] *= latency[p];
      }
    }
    for (auto& generation : constants.llGBs)
      for (double& gbps : generation) gbps *= speed[0];
    constants.ringLl *= speed[0];
    constants.treeLl *= speed[0];
    constants.ringLl128 *= speed[1];
    constants.treeLl128 *= speed[1];
    constants.treeLl128Nodes *= speed[1];
    constants.ringSimple *= speed[2];
    constants.tree *= speed[2];
    constants.pat *= speed[2];
    return constants;
  }
};

}  // namespace

Result<Measured> parseMeasured(std::string_view where, const std::string& text) {
  Measured measured;
  try {
    const Json json = Json::parse(text);
    measured.name = json.at("name").get<std::string>();
    measured.source = json.at("source").get<std::string>();
    measured.fabric = fabricOf(json.at("fabric"));
    for (const auto& [name, collective] : kCollectives) {
      if (!json.at("us").contains(name)) continue;
      for (const Json& row : json.at("us").at(std::string(name)))
        measured.samples.push_back({collective, row.at(0).get<uint64_t>(), row.at(1).get<double>()});
    }
  } catch (const Json::exception& e) {
    return fail(Code::InvalidUsage, "{}: {}", where, e.what());
  }
  if (const Status status = check(measured); !status.ok()) return fail(status.code(), "{}: {}", where, status.text());
  return measured;
}

std::vector<FitError> errorsOnOtherRows(const Measured& measured, size_t first, tune::LinkConstants& constants) {
  std::vector<Sample> known;
  std::vector<Sample> others;
  size_t row = 0;
  for (size_t i = 0; i < measured.samples.size(); ++i, ++row) {
    if (i > 0 && measured.samples[i].collective != measured.samples[i - 1].collective) row = 0;
    (row % 2 == first ? known : others).push_back(measured.samples[i]);
  }
  plan::LinkPlanner planner(measured.fabric, constants, {});
  const tune::LinkConstants original = constants;
  Scales scales;
  std::vector<double*> values;
  for (double& value : scales.latency) values.push_back(&value);
  for (double& value : scales.speed) values.push_back(&value);
  (void)fit(values, [&] {
    planner.use(scales.applied(original));
    double loss = 0;
    for (const double* value : values) loss += kHold * squaredLogError(*value, 1);
    for (const Sample& sample : known) loss += squaredLogError(estimateUs(planner, sample, measured.fabric.ranks), sample.us);
    return loss;
  });
  constants = scales.applied(original);
  planner.use(constants);
  std::vector<FitError> errors;
  for (const Sample& sample : others) errors.push_back({sample, estimateUs(planner, sample, measured.fabric.ranks)});
  return errors;
}

}  // namespace tutti::tool
