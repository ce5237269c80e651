#include <algorithm>
#include <cmath>

#include "driver/cuda/driver.h"
#include "driver/cuda/real.h"
#include "explain/modelled.h"
#include "tune/calibrate.h"
#include "tune/fit.h"

namespace tutti::tool {
namespace {

using driver::cuda::Driver;

constexpr double kHold = 0.002;

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
    if (isPushed) driver.popContext();
  }
  Status finish() override { return driver.synchronize(static_cast<driver::cuda::Stream>(stream)); }

  Driver& driver;
  bool isPushed = false;
};

double meanFactor(const std::vector<Probe>& probes, const tune::DeviceMachine& machine) {
  double sum = 0;
  for (const Probe& probe : probes) sum += std::abs(std::log(estimateUs(probe, machine) / probe.us));
  return std::exp(sum / static_cast<double>(std::max<size_t>(1, probes.size())));
}

}  // namespace

Result<std::vector<Probe>> measureGpus(int32_t gpus) {
  auto api = driver::cuda::openDriver();
  if (!api) return tl::unexpected(api.error());
  Driver cuda(*std::move(api));
  if (Status status = cuda.init(); !status.ok()) return tl::unexpected(std::move(status));
  const auto there = cuda.countDevices();
  if (!there) return tl::unexpected(there.error());
  if (*there < gpus) return fail(Code::InvalidUsage, "{} GPUs: this machine has {}", gpus, *there);
  return measureCalls(gpus, [&](int32_t rank, uint64_t bytes) { return std::make_unique<GpuMemory>(cuda, rank, bytes); });
}

double estimateUs(const Probe& probe, const tune::DeviceMachine& machine) {
  auto algorithm = tune::Filter::parse("TUTTI_ALGO", probe.algorithm, tune::tuttiAlgorithmNames());
  auto protocol = tune::Filter::parse("NCCL_PROTO", probe.protocol, tune::ncclProtocolNames());
  if (!algorithm || !protocol) return NAN;
  comm::Config config;
  // A rank that exchanges a message with another has half of its blocks for either side.
  config.minCtas = config.maxCtas = probe.collective == Collective::SendRecv ? std::max(1, probe.blocks / 2) : probe.blocks;
  plan::Shape shape;
  shape.collective = probe.collective;
  shape.count = countOf(probe);
  if (probe.collective == Collective::SendRecv) shape.root = Rank(1);
  const auto modelled = planModelled(probe.ranks, config, shape, [&](plan::DeviceSettings& settings) {
    settings.machine = machine;
    settings.restrictions.tutti = std::move(*algorithm);
    settings.protocols = std::move(*protocol);
  });
  return modelled ? modelled->summary.estimatedUs : NAN;
}

DeviceCalibration fitDevices(const std::vector<Probe>& probes, tune::DeviceMachine machine, bool inGraphs) {
  DeviceCalibration result;
  const double launchUs = machine.launchUs;
  if (inGraphs) machine.launchUs = 0;
  result.before = meanFactor(probes, machine);
  std::vector<double*> values;
  if (!inGraphs) values.push_back(&machine.launchUs);
  std::vector<tune::KernelCost*> costs = {&machine.lone, &machine.messages};
  for (tune::KernelCost& cost : machine.kernels) costs.push_back(&cost);
  for (tune::KernelCost* const cost : costs)
    for (double* const value :
         {&cost->startUs, &cost->messageUs, &cost->hopUs, &cost->roundUs, &cost->jobUs, &cost->blockGBs, &cost->linkGBs})
      if (*value > 0) values.push_back(value);
  std::vector<double> starts;
  for (const double* const value : values) starts.push_back(*value);
  (void)fit(values, [&] {
    double loss = 0;
    for (size_t i = 0; i < values.size(); ++i) loss += kHold * squaredLogError(*values[i], starts[i]);
    for (const Probe& probe : probes) loss += boundedLogError(estimateUs(probe, machine), probe.us);
    return loss;
  });
  result.after = meanFactor(probes, machine);
  if (inGraphs) machine.launchUs = launchUs;
  result.machine = machine;
  return result;
}

}  // namespace tutti::tool
