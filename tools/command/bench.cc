// The command line of `tutti bench`.
#include "bench/bench.h"

#include <memory>

#include "bench/units.h"
#include "command/command.h"

namespace tutti::tool {
namespace {

constexpr int kMostRanks = 1024;
constexpr uint64_t kMemcpyFrom = uint64_t{1} << 20;  // smaller calls run in the caches

constexpr const char* kBenchFooter = R"(
Examples:
  tutti bench all_reduce                                  8 B to 64 MiB, 4 ranks, float sum, every result checked
  tutti bench all_reduce --ranks 2 -b 8 -e 8              latency of the smallest call
  tutti bench reduce_scatter -d all -o all -e 1M          all datatypes and reductions
  tutti bench broadcast -r all --ranks 8 -b 1M -e 1M      every root
  tutti bench alltoall -e 256M --plot a2a.svg --json a2a.json

Units: sizes take K, M, G (powers of 1024); GB/s are decimal. "size" is the larger of a rank's two buffers. Bus bandwidth is
size / time times 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter, alltoall, gather and scatter, 1 for the others.

Exit codes: 0 fine, 1 wrong results or an output file not written, 2 bad arguments, 3 the library failed or hung.)";

struct BenchText {
  std::string operation;
  std::string minBytes = "8";
  std::string maxBytes = "64M";
  std::string stepBytes;
  std::string types = "float";
  std::string redOps = "sum";
  std::string roots = "0";
  std::string inPlace = "both";
  int iterations = 0;
  int warmups = 0;
  int check = 1;
  int memcpy = 1;
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

void readBench(const CLI::App& command, const BenchText& text, bench::Options& options) {
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
  options.measuresMemcpy = text.memcpy != 0 && (command.count("--memcpy") > 0 || options.maxBytes >= kMemcpyFrom);
  const auto endsIn = [&](const char* suffix) { return options.plotPath.ends_with(suffix); };
  if (!options.plotPath.empty() && !endsIn(".svg")) {
    throw CLI::ValidationError("--plot", format("'{}': the plot is written as SVG; choose a name that ends in .svg", options.plotPath));
  }
}

void addBenchSizes(CLI::App& command, BenchText& text, bench::Options& options) {
  command.add_option("-b,--minbytes", text.minBytes, "smallest size")->capture_default_str()->group("Sizes");
  command.add_option("-e,--maxbytes", text.maxBytes, "largest size")->capture_default_str()->group("Sizes");
  CLI::Option* factor = command.add_option("-f,--stepfactor", options.stepFactor, "multiply the size by this from row to row")
                            ->capture_default_str()->check(within(1.01, 1e6))->group("Sizes");
  command.add_option("-i,--stepbytes", text.stepBytes, "add this to the size instead")->excludes(factor)->group("Sizes");
}

void addBenchWork(CLI::App& command, BenchText& text, bench::Options& options) {
  command.add_option("-d,--datatype", text.types, format("{}, or all", bench::typeNames()))->capture_default_str()->group("Work");
  command.add_option("-o,--op", text.redOps, format("reduction: {}, or all", bench::redOpNames()))->capture_default_str()->group("Work");
  command.add_option("-r,--root", text.roots, "root: a rank, a list, or all")->capture_default_str()->group("Work");
  command.add_option("--ranks", options.ranks, "ranks: threads of this process in one communicator")
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
  command.add_option("--timeout", options.timeoutSeconds, "seconds that any one step of a row may take; 0: no limit")
      ->capture_default_str()->check(within(0.0, 1e6))->group("Measuring");
  command.add_option("--plot", options.plotPath, "draw time and bus bandwidth over size into FILE.svg")->type_name("FILE")->group("Output");
  command.add_option("--json", options.jsonPath, "write the rows as a JSON list")->type_name("FILE")->group("Output");
}

}  // namespace

void addBench(CLI::App& app, Action& action) {
  const auto text = std::make_shared<BenchText>();
  const auto options = std::make_shared<bench::Options>();
  CLI::App* command = app.add_subcommand("bench", "measure and check a collective operation");
  command->add_option("OP", text->operation, bench::operationNames())->required();
  addBenchSizes(*command, *text, *options);
  addBenchWork(*command, *text, *options);
  addBenchMeasuring(*command, *text, *options);
  command->footer(kBenchFooter);
  command->callback([command, text, options, &action] {
    readBench(*command, *text, *options);
    action = [options] { return bench::runBench(*options); };
  });
}

}  // namespace tutti::tool
