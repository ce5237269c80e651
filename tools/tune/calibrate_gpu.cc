#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "driver/cuda/driver.h"
#include "driver/cuda/real.h"
#include "explain/modelled.h"
#include "tune/calibrate.h"
#include "tune/fit.h"

namespace tutti::tool {
namespace {

using driver::cuda::Driver;

/// A rank's memory on its GPU, in the GPU's primary context.
struct GpuMemory final : Memory {
  GpuMemory(Driver& cuda, int32_t ordinal, uint64_t bytes) : driver(cuda) {
    const auto device = driver.describe(ordinal);
    if (!device) {
      status = device.error();
      return;
    }
    const auto context = driver.retainPrimary(device->device);
    status = context ? driver.pushContext(*context) : context.error();
    if (!status.ok()) return;
    held = device->device;
    isPushed = true;
    const auto made = driver.createStream();
    const auto first = driver.allocate(Bytes(bytes));
    const auto second = driver.allocate(Bytes(bytes));
    if (made) stream = *made;
    if (first) in = reinterpret_cast<void*>(*first);
    if (second) out = reinterpret_cast<void*>(*second);
    if (!made) status = made.error();
    if (!first) status = first.error();
    if (!second) status = second.error();
  }
  ~GpuMemory() override {
    if (in != nullptr) driver.freePlain(reinterpret_cast<driver::cuda::DevicePtr>(in));
    if (out != nullptr) driver.freePlain(reinterpret_cast<driver::cuda::DevicePtr>(out));
    if (stream != nullptr) driver.destroyStream(static_cast<driver::cuda::Stream>(stream));
    if (!isPushed) return;
    driver.popContext();
    driver.releasePrimary(held);
  }
  Status finish() override { return driver.synchronize(static_cast<driver::cuda::Stream>(stream)); }

  Driver& driver;
  driver::cuda::Device held{};
  bool isPushed = false;
};

/// What the model says of probes, for one set of constants after the other: planners are made once for all calls that are forced alike.
class DeviceEstimator {
 public:
  explicit DeviceEstimator(const std::vector<Probe>& probes) {
    std::map<std::tuple<int32_t, std::string, std::string, int32_t>, ModelledGpus*> known;
    for (const Probe& probe : probes) {
      ModelledGpus*& gpus = known[{probe.ranks, probe.algorithm, probe.protocol, blocksOf(probe)}];
      if (gpus == nullptr)
        if (auto made = gpusOf(probe)) gpus = planners_.emplace_back(std::move(made)).get();
      plan::Shape shape;
      shape.collective = probe.collective;
      shape.count = countOf(probe);
      if (probe.collective == Collective::SendRecv) shape.root = Rank(1);
      calls_.push_back({gpus, shape});
    }
  }

  void use(const tune::DeviceMachine& machine) {
    for (const auto& gpus : planners_) gpus->use(machine);
  }
  double us(size_t probe) {
    const Call& call = calls_[probe];
    return call.gpus == nullptr ? NAN : call.gpus->estimateUs(call.shape).value_or(NAN);
  }
  std::vector<double> all() {
    std::vector<double> estimates;
    for (size_t i = 0; i < calls_.size(); ++i) estimates.push_back(us(i));
    return estimates;
  }

 private:
  struct Call {
    ModelledGpus* gpus;  // null: nothing runs it
    plan::Shape shape;
  };

  /// A rank that exchanges a message with another has half of its blocks for either side.
  static int32_t blocksOf(const Probe& probe) {
    return probe.collective == Collective::SendRecv ? std::max(1, probe.blocks / 2) : probe.blocks;
  }
  static std::unique_ptr<ModelledGpus> gpusOf(const Probe& probe) {
    auto algorithm = tune::Filter::parse("TUTTI_ALGO", probe.algorithm, tune::tuttiAlgorithmNames());
    auto protocol = tune::Filter::parse("NCCL_PROTO", probe.protocol, tune::ncclProtocolNames());
    if (!algorithm || !protocol) return nullptr;
    comm::Config config;
    config.minCtas = config.maxCtas = blocksOf(probe);
    auto made = ModelledGpus::make(probe.ranks, config, [&](plan::DeviceSettings& settings) {
      settings.restrictions.tutti = std::move(*algorithm);
      settings.protocols = std::move(*protocol);
    });
    return made ? *std::move(made) : nullptr;
  }

  std::vector<std::unique_ptr<ModelledGpus>> planners_;
  std::vector<Call> calls_;
};

}  // namespace

Result<std::vector<Probe>> measureGpus(int32_t gpus) {
  auto api = driver::cuda::openDriver();
  if (!api) return tl::unexpected(api.error());
  Driver cuda(*std::move(api));
  if (Status status = cuda.init(); !status.ok()) return tl::unexpected(std::move(status));
  return measureGpus(gpus, cuda);
}

Result<std::vector<Probe>> measureGpus(int32_t gpus, Driver& cuda) {
  const auto there = cuda.countDevices();
  if (!there) return tl::unexpected(there.error());
  if (*there < gpus) return fail(Code::InvalidUsage, "{} GPUs: this machine has {}", gpus, *there);
  return measureCalls(gpus, [&](int32_t rank, uint64_t bytes) { return std::make_unique<GpuMemory>(cuda, rank, bytes); });
}

double estimateUs(const Probe& probe, const tune::DeviceMachine& machine) {
  DeviceEstimator estimator({probe});
  estimator.use(machine);
  return estimator.us(0);
}

DeviceCalibration fitDevices(const std::vector<Probe>& probes, tune::DeviceMachine machine, bool inGraphs) {
  DeviceCalibration result;
  const double launchUs = machine.launchUs;
  if (inGraphs) machine.launchUs = 0;
  DeviceEstimator estimator(probes);
  estimator.use(machine);
  result.before = meanFactor(estimator.all(), probes);
  std::vector<double*> values;
  if (!inGraphs) values.push_back(&machine.launchUs);
  std::vector<tune::KernelCost*> costs = {&machine.lone, &machine.messages, &machine.lineMessages};
  for (tune::KernelCost& cost : machine.kernels) costs.push_back(&cost);
  for (tune::KernelCost* const cost : costs)
    for (double* const value :
         {&cost->startUs, &cost->messageUs, &cost->hopUs, &cost->roundUs, &cost->jobUs, &cost->blockGBs, &cost->linkGBs})
      if (*value > 0) values.push_back(value);
  std::vector<double> starts;
  for (const double* const value : values) starts.push_back(*value);
  (void)fit(values, [&] {
    estimator.use(machine);
    double loss = lossOf(estimator.all(), probes);
    for (size_t i = 0; i < values.size(); ++i) loss += kHold * squaredLogError(*values[i], starts[i]);
    return loss;
  });
  estimator.use(machine);
  result.after = meanFactor(estimator.all(), probes);
  if (inGraphs) machine.launchUs = launchUs;
  result.machine = machine;
  return result;
}

}  // namespace tutti::tool
