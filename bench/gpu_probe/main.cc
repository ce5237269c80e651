// gpu_probe: the algorithm templates as CUDA kernels, checked bit for bit against exec/host's arithmetic and timed, on the GPUs of one
// machine.
//
//   gpu_probe verify   [--algorithm ring] [--kernel simple] [--samples N] [--every N] [--most ELEMS] [--slot BYTES] [--share BYTES]
//                      [--seconds S]   the matrix
//   gpu_probe time     --algorithm ring --collective AllReduce --kernel simple [--bytes B,…] [--channels C,…] [--slot BYTES] [--pieces P]
//   gpu_probe absent   [--algorithm …] [--collective …] [--kernel …] [--timeout MS] [--limit MS]   the last rank never comes: who says so
//   gpu_probe kernels  registers, local and shared memory of every kernel, and how many blocks and clusters are on the device at once
//
// Kernels that run pipes are launched in clusters: of 4 blocks (time), or of 1, 2 and 4 at random (verify); or as --cluster BLOCKS says.
// All: --ranks N (2) --devices D --nodes RANKS_OF_A_NODE --seed S --start COUNT; time: --type float --op sum --eager 1 --overlap 1
// --lone 0 --ops N --replays N --rounds N. Ranks beyond the devices share them. Exit status: 0 all right, 1 a wrong result, 2 a CUDA error
// or bad argument, 3 a wait gave up. A hanging kernel ends by the device's own limit, the host's, or at last the watchdog of the
// whole program.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>

#include "cases.h"
#include "check.h"
#include "core/format.h"

namespace {

using namespace tutti;
using namespace tutti::probe;

struct Options {
  std::string command;
  std::map<std::string, std::string> text = {
      {"algorithm", ""}, {"collective", "AllReduce"}, {"kernel", ""}, {"type", "float"}, {"op", "sum"}, {"bytes", ""}, {"channels", ""}};
  std::map<std::string, uint64_t> number = {{"ranks", 2},      {"devices", 0}, {"nodes", 0},   {"seed", 0},    {"start", 0},
                                            {"samples", 1},    {"every", 1},   {"most", 0},    {"seconds", 60}, {"slot", 0},
                                            {"share", 0},      {"pieces", 2},  {"eager", 0},   {"overlap", 0}, {"lone", 1},
                                            {"cluster", 0},    {"ops", 0},     {"replays", 0}, {"rounds", 5},  {"timeout", 2000},
                                            {"limit", 20000},  {"watchdog", 300}};
};

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "gpu_probe: %s (see the head of bench/gpu_probe/main.cc)\n", why.c_str());
  std::exit(2);
}

std::vector<uint64_t> parseList(const std::string& text) {
  std::vector<uint64_t> values;
  for (const char* rest = text.c_str(); *rest != 0;) {
    char* end = nullptr;
    values.push_back(std::strtoull(rest, &end, 10));
    if (end == rest) refuse("not a list of numbers: " + text);
    rest = *end == ',' ? end + 1 : end;
  }
  return values;
}

Options parse(int argc, char** argv) {
  Options o;
  if (argc < 2) refuse("no command");
  o.command = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string flag = std::strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
    if (i + 1 == argc) refuse(std::string("no value for ") + argv[i]);
    if (o.text.count(flag) != 0) {
      o.text[flag] = argv[i + 1];
    } else if (o.number.count(flag) != 0) {
      o.number[flag] = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      refuse(std::string("unknown flag ") + argv[i]);
    }
  }
  return o;
}

KernelId kernelNamed(const std::string& wanted) {
  for (int k = 0; k < exec::cuda::kNumKernels; ++k)
    if (exec::cuda::kernelInfo(static_cast<KernelId>(k)).name == wanted) return static_cast<KernelId>(k);
  refuse("no kernel " + wanted);
}
template <class Enum>
Enum valueNamed(const std::string& wanted, int count) {
  for (int v = 0; v < count; ++v)
    if (name(static_cast<Enum>(v)) == wanted) return static_cast<Enum>(v);
  refuse("no such type or operation: " + wanted);
}

FabricConfig configOf(const Options& o, int present) {
  FabricConfig c;
  c.ranks = static_cast<int32_t>(o.number.at("ranks"));
  const uint64_t devices = o.number.at("devices");
  c.devices = static_cast<int>(devices != 0 ? devices : std::min<uint64_t>(o.number.at("ranks"), static_cast<uint64_t>(present)));
  c.nodeRanks = static_cast<int32_t>(o.number.at("nodes"));
  c.startCount = o.number.at("start");
  c.timeoutNs = o.number.at("timeout") * 1'000'000;
  c.hostMs = o.number.at("limit");
  if (o.number.at("slot") != 0) c.slotBytes = o.number.at("slot");
  if (o.number.at("share") != 0) c.shareBytes = o.number.at("share");
  if (c.ranks < 1 || c.ranks > exec::cuda::kMaxLocalRanks || c.devices < 1 || c.devices > present) refuse("ranks or devices out of range");
  return c;
}

int verifyAll(const Options& o, const FabricConfig& config) {
  Fabric fabric(config);
  Runner runner(fabric);
  const uint64_t seed = o.number.at("seed") != 0 ? o.number.at("seed") : std::random_device{}();
  std::mt19937_64 random(seed);
  Selection selection{o.text.at("algorithm"), o.text.at("kernel"), o.number.at("most"), static_cast<int>(o.number.at("samples")),
                      static_cast<int>(std::max<uint64_t>(1, o.number.at("every"))),
                      static_cast<int>(std::min<uint64_t>(o.number.at("cluster"), 8))};
  const std::vector<Job> jobs = makeJobs(fabric, selection, random);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(o.number.at("seconds"));
  size_t done = 0;
  int failed = 0;
  for (const Job& job : jobs) {
    if (std::chrono::steady_clock::now() > end) break;
    const Outcome outcome = runner.run(job, random());
    ++done;
    if (outcome.ran && outcome.wrongRanks == 0 && outcome.overwritten == 0) continue;
    if (++failed <= 12)
      std::printf("FAILED %s: %s, %llu ranks wrong from byte %llu, %llu bytes overwritten\n", describe(job).c_str(),
                  outcome.ran ? "ran" : "gave up", static_cast<unsigned long long>(outcome.wrongRanks),
                  static_cast<unsigned long long>(outcome.firstWrong), static_cast<unsigned long long>(outcome.overwritten));
    std::fflush(stdout);
    if (!outcome.ran) std::_Exit(3);
  }
  std::printf("verify: ranks %d on %d devices, seed %llu, start %llu: %zu of %zu cases, %d failed\n", config.ranks, config.devices,
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(config.startCount), done, jobs.size(), failed);
  return failed == 0 ? 0 : 1;
}

double busFactor(Collective collective, double n) {
  if (collective == Collective::AllReduce) return 2 * (n - 1) / n;
  return collective == Collective::AllGather || collective == Collective::ReduceScatter || collective == Collective::AllToAll ? (n - 1) / n
                                                                                                                              : 1;
}

int timeAll(const Options& o, FabricConfig config) {
  Job job;
  job.kernel = kernelNamed(o.text.at("kernel"));
  Question& q = job.question;
  q.algorithm = findAlgorithm(o.text.at("algorithm"), o.text.at("collective"));
  if (q.algorithm < 0) refuse("no such algorithm");
  q.reduction.type = valueNamed<DataType>(o.text.at("type"), kNumDataTypes);
  q.reduction.op = valueNamed<ReduceOp>(o.text.at("op"), kNumReduceOps);
  job.mayOverlap = o.number.at("overlap") != 0;
  job.mayBeLone = o.number.at("lone") != 0;
  if (const uint64_t blocks = o.number.at("cluster"); blocks > 0) job.clusterBlocks = static_cast<int32_t>(std::min<uint64_t>(blocks, 8));
  const exec::record::Algorithm& algorithm = exec::record::algorithms()[static_cast<size_t>(q.algorithm)];
  const std::vector<uint64_t> sizes = parseList(o.text.at("bytes").empty() ? "8" : o.text.at("bytes"));
  const std::vector<uint64_t> channels = parseList(o.text.at("channels").empty() ? "0" : o.text.at("channels"));
  const uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const uint64_t pieces = o.number.at("pieces");
  config.channels = 128;
  config.slots = static_cast<int32_t>(pieces * static_cast<uint64_t>(std::max(2, algorithm.traits.minSlots)));
  config.slotBytes = o.number.at("slot") != 0 ? o.number.at("slot") : 64 << 10;
  config.shareBytes = o.number.at("slot") != 0 ? o.number.at("slot") : 64 << 10;
  config.bufferBytes = std::max<uint64_t>(largest + 4096, 1 << 20);
  config.arenaBytes = uint64_t{1} << 30;
  Fabric fabric(config);
  Runner runner(fabric);
  int status = 0;
  for (const uint64_t bytes : sizes) {
    for (const uint64_t wanted : channels) {
      const auto ranks = static_cast<uint64_t>(config.ranks);
      q.count = bytes / sizeOf(q.reduction.type) / (algorithm.traits.division == algo::Division::Blocks ? ranks : 1);
      q.count = std::max<uint64_t>(q.count, 1);
      job.channels = static_cast<int32_t>(wanted != 0 ? wanted : std::clamp<uint64_t>((bytes + 4095) / 4096, 1, 64));
      job.sliceBytes = runner.sliceBytes(job, pieces);
      const bool isLarge = bytes > (1 << 20);
      Repeat repeat{o.number.at("eager") == 0, isLarge ? 5 : 100, isLarge ? 4 : 20, static_cast<int>(o.number.at("rounds"))};
      if (o.number.at("ops") != 0) repeat.ops = static_cast<int>(o.number.at("ops"));
      if (o.number.at("replays") != 0) repeat.replays = static_cast<int>(o.number.at("replays"));
      const Outcome before = runner.run(job, 1);
      if (!before.ran) std::_Exit(3);
      const Timing t = runner.time(job, repeat);
      if (!t.ok) std::_Exit(3);
      const Outcome after = runner.run(job, 2);
      const bool isRight = before.wrongRanks + before.overwritten + after.wrongRanks + after.overwritten == 0 && after.ran;
      const double gbps = static_cast<double>(bytes) / t.usPerOp * 1e-3 * busFactor(algorithm.traits.collective, config.ranks);
      std::printf("%s %s %s %s %llu B, %d channels%s: %.3f us (%.3f - %.3f)  bus %.1f GB/s  %s\n", o.text.at("algorithm").c_str(),
                  o.text.at("collective").c_str(), o.text.at("kernel").c_str(), o.text.at("type").c_str(),
                  static_cast<unsigned long long>(bytes), job.channels, job.mayOverlap ? ", overlapping" : "", t.usPerOp, t.best, t.worst,
                  gbps, isRight ? "right" : "WRONG");
      std::fflush(stdout);
      status |= isRight ? 0 : 1;
    }
  }
  return status;
}

/// Every rank but the last launches. Right when the launch ends by itself, by the device's own limit or by the host's abort word.
int waitForAbsent(const Options& o, FabricConfig config) {
  Fabric fabric(config);
  Runner runner(fabric);
  Job job;
  job.kernel = kernelNamed(o.text.at("kernel"));
  job.question.algorithm = findAlgorithm(o.text.at("algorithm"), o.text.at("collective"));
  if (job.question.algorithm < 0) refuse("no such algorithm");
  job.question.count = 4096;
  job.channels = 4;
  job.sliceBytes = runner.sliceBytes(job, 1);
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = runner.run(job, 1, config.ranks - 1);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s %s without rank %d: %s after %.0f ms\n", o.text.at("algorithm").c_str(), o.text.at("kernel").c_str(), config.ranks - 1,
              outcome.ran ? "completed, which is WRONG" : "ended", ms);
  return outcome.ran ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o = parse(argc, argv);
  alarm(static_cast<unsigned>(o.number.at("watchdog")));
  int present = 0;
  PROBE_CHECK(cudaGetDeviceCount(&present));
  const FabricConfig config = configOf(o, present);
  for (int d = config.devices - 1; d >= 0; --d) {
    PROBE_CHECK(cudaSetDevice(d));
    exec::cuda::KernelUses uses;
    PROBE_CHECK(exec::cuda::loadKernels(&uses));
    // Older GPUs have none, and ranks that share one must fit onto it together.
    if (uses.of[static_cast<int>(KernelId::Simple)].clusters.back() == 0 || config.ranks > config.devices) o.number["cluster"] = 1;
    if (o.command != "kernels") continue;
    const auto print = [d](const char* kernel, const exec::cuda::KernelUse& use) {
      std::printf("device %d %-7s %3d registers, %d local, %d shared bytes, %d blocks a multiprocessor; at once", d, kernel,
                  use.registers, use.localBytes, use.sharedBytes, use.blocksPerMultiprocessor);
      for (size_t i = 0; i < use.clusters.size(); ++i)
        std::printf("%s %d clusters of %d", i == 0 ? "" : ",", use.clusters[i], exec::cuda::kClusterSizes[i]);
      std::printf("\n");
    };
    for (int k = 0; k < exec::cuda::kNumKernels; ++k) print(exec::cuda::kernelInfo(static_cast<KernelId>(k)).name, uses.of[k]);
    print("lone", uses.lone);
  }
  if (o.command == "kernels") return 0;
  if (o.command == "verify") return verifyAll(o, config);
  if (o.command == "time") return timeAll(o, config);
  if (o.command == "absent") return waitForAbsent(o, config);
  refuse("unknown command " + o.command);
}
