#include "tune/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "connect/connections.h"
#include "plan/planner.h"
#include "tune/fit.h"

namespace tutti::tool {
namespace {

/// What the model says of probes, for one set of constants after the other: planners are made once for all calls that are forced alike.
class Estimator {
 public:
  Estimator(const std::vector<Probe>& probes, int32_t cores) : cores_(cores) {
    std::map<std::pair<int32_t, std::string>, Ranks*> known;
    for (const Probe& probe : probes) {
      Ranks*& ranks = known[{probe.ranks, probe.algorithm}];
      if (ranks == nullptr) ranks = makeRanks(probe);
      plan::Shape shape;
      shape.collective = probe.collective;
      shape.count = countOf(probe);
      calls_.push_back({ranks, shape});
    }
  }

  void use(tune::Machine machine) {
    machine.cores = cores_;
    for (const auto& ranks : ranks_) ranks->planner.use(machine);
  }
  double us(size_t probe) {
    const Call& call = calls_[probe];
    if (call.ranks == nullptr) return NAN;
    const auto summary = call.ranks->planner.summarize(call.shape);
    return summary ? summary->estimatedUs : NAN;
  }
  std::vector<double> all() {
    std::vector<double> estimates;
    for (size_t i = 0; i < calls_.size(); ++i) estimates.push_back(us(i));
    return estimates;
  }

 private:
  struct Ranks {
    Ranks(std::shared_ptr<transport::local::Hub> made, int32_t ranks, const plan::Settings& settings)
        : hub(std::move(made)),
          layout(connect::Layout::natural(ranks)),
          connections(*hub, Rank(0)),
          planner(layout, connections, Rank(0), settings) {}
    std::shared_ptr<transport::local::Hub> hub;
    connect::Layout layout;
    connect::Connections connections;
    plan::Planner planner;
  };
  struct Call {
    Ranks* ranks;  // null: nothing runs it
    plan::Shape shape;
  };

  Ranks* makeRanks(const Probe& probe) {
    auto hub = transport::local::Hub::make(probe.ranks);
    auto only = tune::Filter::parse("TUTTI_ALGO", probe.algorithm, tune::tuttiAlgorithmNames());
    if (!hub || !only) return nullptr;
    plan::Settings settings;
    settings.restrictions.tutti = std::move(*only);
    return ranks_.emplace_back(std::make_unique<Ranks>(*std::move(hub), probe.ranks, settings)).get();
  }

  int32_t cores_;
  std::vector<std::unique_ptr<Ranks>> ranks_;
  std::vector<Call> calls_;
};

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
  Estimator estimator({probe}, cores);
  estimator.use(machine);
  return estimator.us(0);
}

Calibration fitHost(const std::vector<Probe>& probes, tune::Machine machine, int32_t cores) {
  Calibration result;
  Estimator estimator(probes, cores);
  estimator.use(machine);
  result.before = meanFactor(estimator.all(), probes);
  const tune::Machine original = machine;
  double* const values[] = {&machine.hopNs, &machine.switchNs, &machine.messageNs, &machine.pipeNs, &machine.bytesPerNs};
  const double starts[] = {original.hopNs, original.switchNs, original.messageNs, original.pipeNs, original.bytesPerNs};
  (void)fit(values, [&] {
    estimator.use(machine);
    double loss = lossOf(estimator.all(), probes);
    for (size_t i = 0; i < std::size(values); ++i) loss += kHold * squaredLogError(*values[i], starts[i]);
    return loss;
  });
  estimator.use(machine);
  result.after = meanFactor(estimator.all(), probes);
  result.machine = machine;
  return result;
}

}  // namespace tutti::tool
