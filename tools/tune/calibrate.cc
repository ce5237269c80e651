#include "tune/calibrate.h"

#include <algorithm>
#include <cmath>

#include "connect/connections.h"
#include "plan/planner.h"
#include "tune/fit.h"

namespace tutti::tool {
namespace {

/// How strongly a constant is held to what it was.
constexpr double kHold = 0.002;

/// How far off the estimates are in the mean.
double meanFactor(const std::vector<Probe>& probes, const tune::Machine& machine, int32_t cores) {
  double sum = 0;
  for (const Probe& probe : probes) sum += std::abs(std::log(estimateUs(probe, machine, cores) / probe.us));
  return std::exp(sum / static_cast<double>(std::max<size_t>(1, probes.size())));
}

}  // namespace

Result<std::vector<Probe>> measureHost(int32_t ranks) {
  struct HostMemory : Memory {
    std::vector<std::byte> room;
  };
  return measureCalls(ranks, [](int32_t /*rank*/, uint64_t bytes) -> std::unique_ptr<Memory> {
    auto memory = std::make_unique<HostMemory>();
    const uint64_t each = (bytes + 63) / 64 * 64;
    memory->room.resize(2 * each);
    memory->in = memory->room.data();
    memory->out = memory->room.data() + each;
    return memory;
  });
}

double estimateUs(const Probe& probe, const tune::Machine& machine, int32_t cores) {
  const auto hub = transport::local::Hub::make(probe.ranks);
  if (!hub) return NAN;
  const connect::Layout layout = connect::Layout::natural(probe.ranks);
  connect::Connections connections(**hub, Rank(0));
  plan::Settings settings;
  settings.machine = machine;
  settings.machine.cores = cores;
  auto only = tune::Filter::parse("TUTTI_ALGO", probe.algorithm, tune::tuttiAlgorithmNames());
  if (!only) return NAN;
  settings.restrictions.tutti = std::move(*only);
  plan::Planner planner(layout, connections, Rank(0), settings);
  plan::Shape shape;
  shape.collective = probe.collective;
  shape.count = countOf(probe);
  const auto summary = planner.summarize(shape);
  return summary ? summary->estimatedUs : NAN;
}

Calibration fitHost(const std::vector<Probe>& probes, tune::Machine machine, int32_t cores) {
  Calibration result;
  result.before = meanFactor(probes, machine, cores);
  const tune::Machine original = machine;
  double* const values[] = {&machine.hopNs, &machine.switchNs, &machine.messageNs, &machine.pipeNs, &machine.bytesPerNs};
  const double starts[] = {original.hopNs, original.switchNs, original.messageNs, original.pipeNs, original.bytesPerNs};
  (void)fit(values, [&] {
    double loss = 0;
    for (size_t i = 0; i < std::size(values); ++i) loss += kHold * squaredLogError(*values[i], starts[i]);
    for (const Probe& probe : probes) loss += boundedLogError(estimateUs(probe, machine, cores), probe.us);
    return loss;
  });
  result.after = meanFactor(probes, machine, cores);
  result.machine = machine;
  return result;
}

}  // namespace tutti::tool
