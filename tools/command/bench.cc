// The command line of `tutti bench`.
#include "bench/bench.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "bench/team.h"
#include "bench/units.h"
#include "command/command.h"
#include "exit_codes.h"
#include "launch/exchange.h"
#include "launch/nodes.h"
#include "launch/rank.h"
#include "launch/run.h"

namespace tutti::tool {
namespace {

constexpr uint64_t kMemcpyFrom = uint64_t{1} << 20;  // smaller calls run in the caches

constexpr const char* kBenchFooter = R"(
Examples:
  tutti bench all_reduce                                  8 B to 64 MiB, 4 ranks, float sum, every result checked
  tutti bench all_reduce --ranks 2 -b 8 -e 8              latency of the smallest call
  tutti bench reduce_scatter -d all -o all -e 1M          all datatypes and reductions
  tutti bench broadcast -r all --ranks 8 -b 1M -e 1M      every root
  tutti bench alltoall -e 256M --plot a2a.svg --json a2a.json
  tutti run -n 4 -- tutti bench all_reduce                a process for each rank; so does mpirun, srun or torchrun
  tutti bench all_reduce --nodes 2 --devices host         two hosts, played by network namespaces; needs root

Under a launcher each process is one rank (or --threads), the first one prints, and all end with the same exit code.

Units: sizes take K, M, G (powers of 1024); GB/s are decimal. "size" is the larger of a rank's two buffers. Bus bandwidth is
size / time times 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter, alltoall, gather and scatter, 1 for the others.

Exit codes: 0 fine, 1 wrong results or an output file not written, 2 bad arguments, 3 the library failed or hung.)";

struct BenchText {
  std::string operation = "all_reduce";
  std::string minBytes = "8";
  std::string maxBytes = "64M";
  std::string stepBytes;
  std::string types = "float";
  std::string redOps = "sum";
  std::string roots = "0";
  std::string inPlace = "both";
  int iterations = 0;
  int warmups = 0;
  std::string launcher = "auto";
  std::string buffers = "malloc";
  std::string devices = "host";
  int ranks = 4;
  int threads = 1;
  int nodes = 0;
  int check = 1;
  int memcpy = 1;
};

/// What the command line and the environment say together.
struct BenchRun {
  BenchText text;
  bench::Options options;
  launch::Standing standing;
  launch::Environment environment;
};

void readSizes(const BenchText& text, bench::Options& options) {
  options.minBytes = require(bench::parseBytes(text.minBytes), "--minbytes");
  options.maxBytes = require(bench::parseBytes(text.maxBytes), "--maxbytes");
  if (options.maxBytes < options.minBytes) {
    throw CLI::ValidationError("--maxbytes", format("{} is less than --minbytes, {}", text.maxBytes, text.minBytes));
  }
  if (text.stepBytes.empty()) return;
  options.stepBytes = require(bench::parseBytes(text.stepBytes), "--stepbytes");
  if (options.stepBytes == 0) throw CLI::ValidationError("--stepbytes", "must be at least 1");
}

void readForms(const BenchText& text, bench::Options& options) {
  options.isOutOfPlace = text.inPlace != "1";
  options.isInPlace = text.inPlace != "0" && options.operation->hasInPlace;
  if (!options.isOutOfPlace && !options.isInPlace) {
    throw CLI::ValidationError("--inplace", format("{} has no in-place form", options.operation->name));
  }
}

bool startsItself(const BenchRun& run) { return run.text.nodes > 0 && !run.standing.isLaunched(); }

/// How many ranks there are, and which of them this process has.
void readRanks(const CLI::App& command, BenchRun& run) {
  const BenchText& text = run.text;
  bench::Options& options = run.options;
  if (text.launcher == "auto") run.standing = require(launch::findStanding(run.environment), "launcher");
  const launch::Standing& standing = run.standing;
  if (text.nodes > 0 && standing.isLaunched() && standing.nodes != text.nodes) {
    throw CLI::ValidationError("--nodes", format("starts its ranks itself; this is one of {} ranks started by {}", standing.ranks,
                                                 launch::name(standing.launcher)));
  }
  options.ranks = text.ranks;
  options.threads = text.ranks;
  if (startsItself(run)) {
    if (text.ranks % text.threads != 0 || text.ranks / text.threads < text.nodes) {
      throw CLI::ValidationError(
          "--nodes", format("{} ranks in processes of {} cannot be spread over {} nodes", text.ranks, text.threads, text.nodes));
    }
  } else if (standing.isLaunched()) {
    options.threads = text.threads;
    options.ranks = standing.ranks * text.threads;
    options.process = {standing.rank, standing.ranks, std::max(standing.localRanks, 1), std::string(launch::name(standing.launcher))};
    if (command.count("--ranks") > 0 && text.ranks != options.ranks) {
      throw CLI::ValidationError("--ranks", format("{} started {} processes; --threads says how many ranks each of them has",
                                                   options.process.launcher, standing.ranks));
    }
  } else if (command.count("--threads") > 0 && text.threads != text.ranks) {
    throw CLI::ValidationError("--threads", "is for several processes, as those of tutti run; --ranks says how many ranks this one has");
  }
}

void readBench(const CLI::App& command, BenchRun& run) {
  const BenchText& text = run.text;
  bench::Options& options = run.options;
  readRanks(command, run);
  options.buffers = text.buffers == "ncclmem" ? bench::BufferKind::NcclMem : bench::BufferKind::Malloc;
  options.operation = require(bench::findOperation(text.operation), "OP");
  readSizes(text, options);
  readForms(text, options);
  options.types = require(bench::parseTypes(text.types), "--datatype");
  options.redOps = require(bench::parseRedOps(text.redOps), "--op");
  options.roots = require(bench::parseRoots(text.roots, options.ranks), "--root");
  if (!options.operation->isReduction) options.redOps.clear();
  if (!options.operation->isRooted) options.roots = {-1};
  if (command.count("--iters") > 0) options.iterations = text.iterations;
  if (command.count("--warmup_iters") > 0) options.warmups = text.warmups;
  options.isChecked = text.check != 0;
  options.measuresMemcpy = text.memcpy != 0 && (command.count("--memcpy") > 0 || options.maxBytes >= kMemcpyFrom) &&
                           options.process.onHost == options.process.count;  // one host's memcpy says nothing about several
  const auto endsIn = [&](const char* suffix) { return options.plotPath.ends_with(suffix); };
  if (!options.plotPath.empty() && !endsIn(".svg")) {
    throw CLI::ValidationError("--plot", format("'{}': the plot is written as SVG; choose a name that ends in .svg", options.plotPath));
  }
  if (options.process.isLead() && !startsItself(run)) return;
  options.plotPath.clear();
  options.jsonPath.clear();
}

void addBenchSizes(CLI::App& command, BenchText& text, bench::Options& options) {
  command.add_option("-b,--minbytes", text.minBytes, "smallest size")->capture_default_str()->group("Sizes");
  command.add_option("-e,--maxbytes", text.maxBytes, "largest size")->capture_default_str()->group("Sizes");
  CLI::Option* factor = command.add_option("-f,--stepfactor", options.stepFactor, "multiply the size by this from row to row")
                            ->capture_default_str()->check(within(1.01, 1e6))->group("Sizes");
  command.add_option("-i,--stepbytes", text.stepBytes, "add this to the size instead")->excludes(factor)->group("Sizes");
}

void addBenchWork(CLI::App& command, BenchText& text) {
  command.add_option("-d,--datatype", text.types, format("{}, or all", bench::typeNames()))->capture_default_str()->group("Work");
  command.add_option("-o,--op", text.redOps, format("reduction: {}, or all", bench::redOpNames()))->capture_default_str()->group("Work");
  command.add_option("-r,--root", text.roots, "root: a rank, a list, or all")->capture_default_str()->group("Work");
  command.add_option("--ranks", text.ranks, "ranks: threads of this process in one communicator, unless a launcher started several")
      ->capture_default_str()->check(within(1, kMostRanks))->group("Work");
  command.add_option("--inplace", text.inPlace, "0: out of place only, 1: in place only, both")
      ->capture_default_str()->check(CLI::IsMember({"0", "1", "both"}))->group("Work");
}

void addBenchMeasuring(CLI::App& command, BenchText& text, bench::Options& options) {
  command
      .add_option("-n,--iters", text.iterations,
                  "timed samples of each row [as many as fit 0.1 s]; a sample is one call, or as many as take 20 us")
      ->check(within(1, 10000000))
      ->group("Measuring");
  command
      .add_option("-w,--warmup_iters", text.warmups, "calls before the timed ones, besides those that find out how long a call takes [0]")
      ->check(within(0, 10000000))
      ->group("Measuring");
  command.add_option("-c,--check", text.check, "1: check every element of every result before and after timing")
      ->capture_default_str()->check(within(0, 1))->group("Measuring");
  command.add_option("--memcpy", text.memcpy, "1: compare the memory traffic of the largest size with memcpy's [1 from 1M on]")
      ->check(within(0, 1))->group("Measuring");
  command.add_flag("--rewrite", options.rewritesInputs, "write new inputs before every timed call")->group("Measuring");
  command.add_option("--timeout", options.timeoutSeconds, "seconds that any one step of a row may take; 0: no limit")
      ->capture_default_str()->check(within(0.0, 1e6))->group("Measuring");
  command.add_option("--plot", options.plotPath, "draw time and bus bandwidth over size into FILE.svg")->type_name("FILE")->group("Output");
  command.add_option("--json", options.jsonPath, "write the rows as a JSON list")->type_name("FILE")->group("Output");
}

void addBenchPlaces(CLI::App& command, BenchText& text) {
  command.add_option("--threads", text.threads, "ranks of each process, where there are several")
      ->capture_default_str()->check(within(1, kMostRanks))->group("Places");
  command.add_option("--nodes", text.nodes, "start the ranks on so many hosts, played by network namespaces; needs root [none]")
      ->check(within(2, launch::kMostNodes))->group("Places");
  command.add_option("--devices", text.devices, "what the ranks compute with: host")
      ->capture_default_str()      ->check(CLI::IsMember({"host"}))->group("Places");
  command.add_option("--buffers", text.buffers, "buffers from the system (malloc), or from ncclMemAlloc (ncclmem)")
      ->capture_default_str()->check(CLI::IsMember({"malloc", "ncclmem"}))->group("Places");
  command.add_option("--launcher", text.launcher, "auto: as the launcher's variables say; none: this process is all there is")
      ->capture_default_str()->check(CLI::IsMember({"auto", "none"}))->group("Places");
}

/// The same command again, as the ranks of nodes that this process makes.
int startOnNodes(const BenchRun& run, const std::vector<std::string>& words) {
  launch::RunOptions options;
  options.ranks = run.text.ranks / run.text.threads;
  options.nodes = run.text.nodes;
  options.hasPrefix = false;
  options.command = {"/proc/self/exe"};
  options.command.insert(options.command.end(), words.begin(), words.end());
  return launch::runProgram(options);
}

int runBenchmark(const BenchRun& run) {
  // Before any thread is started, and before the library reads it.
  if (setenv("TUTTI_DEVICE", run.text.devices.c_str(), 1) != 0) return kExitError;
  return bench::runBench(run.options, [&run](std::chrono::milliseconds timeout) {
    return launch::exchangeId(run.standing, run.environment, bench::makeUniqueId, timeout);
  });
}

}  // namespace

void addBench(CLI::App& app, const std::vector<std::string>& words, Action& action) {
  const auto run = std::make_shared<BenchRun>();
  run->environment = launch::readEnvironment();
  BenchText* const text = &run->text;
  bench::Options* const options = &run->options;
  CLI::App* command = app.add_subcommand("bench", "measure and check a collective operation");
  command->add_option("OP", text->operation, bench::operationNames())->capture_default_str();
  addBenchSizes(*command, *text, *options);
  addBenchWork(*command, *text);
  addBenchPlaces(*command, *text);
  addBenchMeasuring(*command, *text, *options);
  command->footer(kBenchFooter);
  command->callback([command, run, &words, &action] {
    readBench(*command, *run);
    action = [run, &words] { return startsItself(*run) ? startOnNodes(*run, words) : runBenchmark(*run); };
  });
}

}  // namespace tutti::tool
