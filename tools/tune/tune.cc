#include "tune/tune.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <tuple>

#include "bench/units.h"
#include "comm/settings.h"
#include "core/thread.h"
#include "exit_codes.h"
#include "tune/calibrate.h"
#include "tune/measured.h"
#include "tune/store.h"

namespace tutti::tool {
namespace {

constexpr double kMostError = 0.25;
constexpr uint64_t kFromBytes = 16384;
constexpr int32_t kMostRanks = 8;
/// What is kept must be right within this in the mean.
constexpr double kMostFactor = 2;

int tell(const Status& status, int code) {
  std::fprintf(stderr, "tutti tune: %s\n", status.text().c_str());
  return code;
}

int showErrors(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return tell(error(Code::SystemError, "{}: cannot be read", path), kExitError);
  const auto measured = parseMeasured(path, text.str());
  if (!measured) return tell(measured.error(), kExitUsage);
  std::printf("%s\n%s\n", measured->name.c_str(), measured->source.c_str());
  double worst = 0;
  for (const size_t first : {size_t{0}, size_t{1}}) {
    tune::LinkConstants constants = tune::linkConstants();
    const auto errors = errorsOnOtherRows(*measured, first, constants);
    std::printf("\nfitted to the %s rows, tried on the others\n", first == 0 ? "odd" : "even");
    std::printf("%-14s %10s %12s %12s %8s\n", "", "size", "measured us", "estimate us", "error");
    for (const FitError& one : errors) {
      std::printf("%-14s %10s %12s %12s %7.1f%%\n", std::string(name(one.sample.collective)).c_str(),
                  bench::formatBytes(one.sample.bytes).c_str(), bench::formatNumber(one.sample.us).c_str(),
                  bench::formatNumber(one.estimateUs).c_str(), 100 * one.relative());
      if (one.sample.collective == Collective::AllReduce && one.sample.bytes >= kFromBytes)
        worst = std::max(worst, std::abs(one.relative()));
    }
  }
  std::printf("\nall-reduce from %s on: at most %.1f%%, allowed are %.0f%%\n", bench::formatBytes(kFromBytes).c_str(), 100 * worst,
              100 * kMostError);
  return worst <= kMostError ? 0 : kExitWrong;
}

/// As many ranks as have cores, and twice as many, which take turns.
Result<std::vector<Probe>> measure(int32_t cores) {
  std::vector<Probe> all;
  for (const int32_t ranks : {std::clamp(cores, 2, kMostRanks), 2 * std::clamp(cores, 1, kMostRanks)}) {
    auto probes = measureHost(ranks);
    if (!probes) return probes;
    all.insert(all.end(), probes->begin(), probes->end());
  }
  return all;
}

template <class Estimate>
void show(const std::vector<Probe>& probes, Estimate&& estimate) {
  std::printf("%-14s %6s %10s %-12s %-8s %6s %12s %12s\n", "", "ranks", "size", "algorithm", "protocol", "blocks", "measured us",
              "estimate us");
  for (const Probe& probe : probes)
    std::printf("%-14s %6d %10s %-12s %-8s %6d %12s %12s\n", std::string(name(probe.collective)).c_str(), probe.ranks,
                bench::formatBytes(probe.bytes).c_str(), probe.algorithm.c_str(), probe.protocol.c_str(), probe.blocks,
                bench::formatNumber(probe.us).c_str(), bench::formatNumber(estimate(probe)).c_str());
}

/// Fits the constants of host devices into `platform`; how far off they are.
Result<double> tuneHost(const TuneOptions& options, tune::Platform& platform) {
  const int32_t cores = availableCores();
  const auto probes = measure(cores);
  if (!probes) return tl::unexpected(probes.error());
  const Calibration found = fitHost(*probes, tune::hostMachine(), cores);
  if (options.showsAll) show(*probes, [&](const Probe& probe) { return estimateUs(probe, found.machine, cores); });
  const tune::Machine& old = tune::hostMachine();
  std::printf("%d cores, %zu calls measured\n", cores, probes->size());
  for (const auto& [what, before, now] : {std::tuple{"hop, ns", old.hopNs, found.machine.hopNs},
                                          {"turn on a shared core, ns", old.switchNs, found.machine.switchNs},
                                          {"message, ns", old.messageNs, found.machine.messageNs},
                                          {"small message of a pipe, ns", old.pipeNs, found.machine.pipeNs},
                                          {"memory of a core, GB/s", old.bytesPerNs, found.machine.bytesPerNs}})
    std::printf("  %-28s %10s (built in: %s)\n", what, bench::formatNumber(now).c_str(), bench::formatNumber(before).c_str());
  std::printf("estimates are off by a factor of %.2f in the mean; with the built-in constants %.2f\n", found.after, found.before);
  platform.host = found.machine;
  platform.source = format("tutti tune on {} cores", cores);
  return found.after;
}

Result<std::vector<Probe>> readProbes(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(Code::SystemError, "{}: cannot be read", path);
  return parseProbes(path, text.str());
}

/// The same of GPUs.
Result<double> tuneGpus(const TuneOptions& options, tune::Platform& platform) {
  const auto probes = options.probesOf.empty() ? measureGpus(options.gpus) : readProbes(options.probesOf);
  if (!probes) return tl::unexpected(probes.error());
  const bool inGraphs = !options.probesOf.empty();
  for (size_t i = 0; inGraphs && i < probes->size(); ++i) {
    const Probe& probe = (*probes)[i];
    if (probe.ranks != options.gpus)
      return fail(Code::InvalidUsage, "{}: entry {} has {} ranks: expected --gpus {}", options.probesOf, i, probe.ranks, options.gpus);
    if (!std::isfinite(estimateUs(probe, tune::deviceMachine())))
      return fail(Code::InvalidUsage, "{}: entry {}: nothing runs {} by {} on {} with {} blocks", options.probesOf, i,
                  name(probe.collective), probe.algorithm, probe.protocol, probe.blocks);
  }
  const DeviceCalibration found = fitDevices(*probes, tune::deviceMachine(), inGraphs);
  const double launchUs = inGraphs ? found.machine.launchUs : 0;
  if (options.showsAll) show(*probes, [&](const Probe& probe) { return estimateUs(probe, found.machine) - launchUs; });
  std::printf("%d GPUs, %zu calls measured\n", options.gpus, probes->size());
  std::printf("%-10s %9s %9s %9s %9s %9s %9s %9s   (us; GB/s)\n", "", "start", "message", "hop", "round", "job", "block", "link");
  const auto row = [](const char* what, const tune::KernelCost& cost) {
    std::printf("%-10s %9.2f %9.2f %9.2f %9.2f %9.2f %9.1f %9.1f\n", what, cost.startUs, cost.messageUs, cost.hopUs, cost.roundUs,
                cost.jobUs, cost.blockGBs, cost.linkGBs);
  };
  for (int k = 0; k < exec::cuda::kNumKernels; ++k)
    row(exec::cuda::kernelInfo(static_cast<exec::cuda::KernelId>(k)).name, found.machine.kernels[static_cast<size_t>(k)]);
  row("lone", found.machine.lone);
  row("messages", found.machine.messages);
  row("linemsgs", found.machine.lineMessages);
  std::printf("launch %.2f us\n", found.machine.launchUs);
  std::printf("estimates are off by a factor of %.2f in the mean; with the built-in constants %.2f\n", found.after, found.before);
  platform.devices = found.machine;
  platform.source = format("tutti tune on {} GPUs", options.gpus);
  return found.after;
}

int calibrate(const TuneOptions& options) {
  const char* const given = std::getenv("TUTTI_CACHE_DIR");
  const std::string folder = tune::cacheFolder(given == nullptr ? "" : given);
  if (!options.isDry && (folder.empty() || folder == "none"))
    return tell(error(Code::InvalidUsage, "TUTTI_CACHE_DIR, XDG_CACHE_HOME and HOME name no folder to keep the constants in"), kExitUsage);
  // Measured with what everybody has, and not with what was measured before.
  const bool isGpu = options.gpus > 0;
  // Without kernels the library would compute on the host with what lies on GPUs: it has to refuse.
  if (setenv("TUTTI_DEVICE", isGpu ? "cuda" : "host", 1) != 0 || setenv("TUTTI_CACHE_DIR", "none", 1) != 0)
    return tell(error(Code::SystemError, "setenv failed"), kExitError);
  tune::Platform platform;
  platform.key = tune::machineKey();
  platform.name = "measured " + platform.key;
  // What was measured of the other kind of devices stays.
  if (const auto kept = tune::readStored(folder, platform.key); kept && *kept) platform = **kept;
  const auto factor = isGpu ? tuneGpus(options, platform) : tuneHost(options, platform);
  if (!factor) return tell(factor.error(), factor.error().code() == Code::InvalidUsage ? kExitUsage : kExitError);
  std::printf("machine %s\n", platform.key.c_str());
  if (options.isDry) return 0;
  if (!(*factor <= kMostFactor))
    return tell(
        error(Code::SystemError, "the model does not follow what was measured, which happens where other programs run: nothing is kept"),
        kExitWrong);
  if (const Status status = tune::writeStored(folder, platform); !status.ok()) return tell(status, kExitError);
  std::printf("kept in %s\n", tune::storedPath(folder, platform.key).c_str());
  return 0;
}

}  // namespace

int runTune(const TuneOptions& options) { return options.errorsOf.empty() ? calibrate(options) : showErrors(options.errorsOf); }

}  // namespace tutti::tool
