// The `tutti` command: what each subcommand accepts, checked, and handed on. The only file that includes the (slow to compile)
// command line library, which throws; nothing behind it does.
//
// Exit codes: 0 fine · 1 wrong results, or a proof failed · 2 bad arguments · 3 the library failed or hung.

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>

#include "bench/bench.h"
#include "bench/checks.h"
#include "bench/units.h"
#include "core/format.h"
#include "env/env.h"
#include "nccl.h"
#include "prove/prove.h"
#include "tutti.h"

namespace tutti::tool {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitError = 3;
constexpr int kMostRanks = 1024;
constexpr uint64_t kMemcpyFrom = uint64_t{1} << 20;  // smaller calls run in the caches

/// What a subcommand does once everything is parsed; its exit code.
using Action = std::function<int()>;

/// A value, or the parser's own kind of error with our words.
template <class T>
T require(Result<T> result, const char* option) {
  if (!result) throw CLI::ValidationError(option, result.error().text());
  return *std::move(result);
}

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
                            ->capture_default_str()->check(CLI::Range(1.01, 1e6))->group("Sizes");
  command.add_option("-i,--stepbytes", text.stepBytes, "add this to the size instead")->excludes(factor)->group("Sizes");
}

void addBenchWork(CLI::App& command, BenchText& text, bench::Options& options) {
  command.add_option("-d,--datatype", text.types, format("{}, or all", bench::typeNames()))->capture_default_str()->group("Work");
  command.add_option("-o,--op", text.redOps, format("reduction: {}, or all", bench::redOpNames()))->capture_default_str()->group("Work");
  command.add_option("-r,--root", text.roots, "root: a rank, a list, or all")->capture_default_str()->group("Work");
  command.add_option("--ranks", options.ranks, "ranks: threads of this process in one communicator")
      ->capture_default_str()->check(CLI::Range(1, kMostRanks))->group("Work");
  command.add_option("--inplace", text.inPlace, "0: out of place only, 1: in place only, both")
      ->capture_default_str()->check(CLI::IsMember({"0", "1", "both"}))->group("Work");
}

void addBenchMeasuring(CLI::App& command, BenchText& text, bench::Options& options) {
  command
      .add_option("-n,--iters", text.iterations,
                  "timed samples of each row [as many as fit 0.1 s]; a sample is one call, or as many as take 20 us")
      ->check(CLI::Range(1, 10000000))
      ->group("Measuring");
  command
      .add_option("-w,--warmup_iters", text.warmups, "calls before the timed ones, besides those that find out how long a call takes [0]")
      ->check(CLI::Range(0, 10000000))
      ->group("Measuring");
  command.add_option("-c,--check", text.check, "1: check every element of every result before and after timing")
      ->capture_default_str()->check(CLI::Range(0, 1))->group("Measuring");
  command.add_option("--memcpy", text.memcpy, "1: compare the memory traffic of the largest size with memcpy's [1 from 1M on]")
      ->check(CLI::Range(0, 1))->group("Measuring");
  command.add_option("--timeout", options.timeoutSeconds, "seconds that any one step of a row may take; 0: no limit")
      ->capture_default_str()->check(CLI::Range(0.0, 1e6))->group("Measuring");
  command.add_option("--plot", options.plotPath, "draw time and bus bandwidth over size into FILE.svg")->type_name("FILE")->group("Output");
  command.add_option("--json", options.jsonPath, "write the rows as a JSON list")->type_name("FILE")->group("Output");
}

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

constexpr const char* kChecksFooter = R"(
The checks compare the calls of the ranks, look at deadlines and let an abort end a running call; TUTTI_CHECKS=off leaves them out.
Both kinds of communicator are used by turns, in one process and by the same threads.

Examples:
  tutti checks                     8 bytes on 2 ranks
  tutti checks --ranks 4 --calls 20000

Exit codes: 0 they cost no more than the larger of 2% and 20 ns, 1 they cost more, 2 bad arguments, 3 the library failed.)";

void addChecks(CLI::App& app, Action& action) {
  const auto options = std::make_shared<bench::CheckCostOptions>();
  CLI::App* command = app.add_subcommand("checks", "measure what agreement, deadlines and abort checks cost");
  command->add_option("--ranks", options->ranks, "ranks, a thread each")->capture_default_str()->check(CLI::Range(1, 1024));
  command->add_option("--bytes", options->bytes, "size of the all-reduce")->capture_default_str()->check(CLI::Range(4, 1 << 30));
  command->add_option("--blocks", options->blocks, "blocks, each timed with checks and without")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option("--calls", options->calls, "calls of a block")->capture_default_str()->check(CLI::Range(1, 100000000));
  command->footer(kChecksFooter);
  command->callback([options, &action] { action = [options] { return bench::runChecks(*options); }; });
}

constexpr const char* kProveFooter = R"(
What is proved, for every standard case (ranks, root, slots, slices, channels, in place or not): every output holds every
contribution exactly once and in the promised order; no schedule deadlocks; no two accesses race.

Examples:
  tutti prove                                             all algorithms, up to 127 ranks, in a few minutes at most
  tutti prove --algorithm ring --ranks 2-8 --slots 2,3
  tutti prove --full --markdown proofs.md                 every rank count to 64, and 100, 127, 1000; takes longer

Exit codes: 0 all proved, 1 something is not (the message says what), 2 bad arguments.)";

void addProve(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ProveOptions>();
  const auto ranks = std::make_shared<std::string>();
  const auto slots = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("prove", "prove the algorithms correct, by running their steps on symbols");
  command->add_option("--algorithm", options->algorithm, "only this one: ring, AllReduce:ring, or a whole collective");
  command->add_option("--ranks", *ranks, "only these rank counts, such as 2-8,16");
  command->add_option("--slots", *slots, "only these slot counts");
  command->add_flag("--full", options->isFull, "all cases instead of a sample");
  command->add_flag("--list", options->listsOnly, "list the algorithms and stop");
  command->add_option("--markdown", options->markdownPath, "write the table as Markdown too")->type_name("FILE");
  command->footer(kProveFooter);
  command->callback([options, ranks, slots, &action] {
    if (!ranks->empty()) options->ranks = require(bench::parseList(*ranks, 1, 1000000), "--ranks");
    if (!slots->empty()) options->slots = require(bench::parseList(*slots, 1, 1000000), "--slots");
    action = [options] { return runProve(*options); };
  });
}

constexpr const char* kEnvFooter = R"(
Examples:
  tutti env                         every variable: type, default, value now and where from, meaning
  tutti env --set                   those that are set
  tutti env NCCL_ALGO TUTTI_SLOTS   these
  tutti env --markdown > env.md     the documentation)";

void addEnv(CLI::App& app, Action& action) {
  const auto options = std::make_shared<EnvOptions>();
  CLI::App* command = app.add_subcommand("env", "explain the environment variables and show their values");
  command->add_option("NAME", options->names, "variables to show [all]");
  CLI::Option* markdown = command->add_flag("--markdown", options->writesMarkdown, "the documentation of all, as Markdown");
  command->add_flag("--set", options->onlySet, "only those that are set")->excludes(markdown);
  command->footer(kEnvFooter);
  command->callback([options, &action] { action = [options] { return runEnv(*options); }; });
}

std::string versionText() {
  int code = 0;
  (void)ncclGetVersion(&code);
  return format("tutti {} (NCCL interface {}.{}.{})", tuttiVersionString(), code / 10000, code / 100 % 100, code % 100);
}

int run(int argc, char** argv) {
  CLI::App app("tutti: collective communication, measured, proved and explained.\n", "tutti");
  app.get_formatter()->column_width(34);
  app.require_subcommand(1);
  app.set_version_flag("--version", versionText);
  app.footer("\n'tutti COMMAND --help' explains a command.");
  Action action;
  addBench(app, action);
  addChecks(app, action);
  addProve(app, action);
  addEnv(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) return app.exit(problem);  // --help, --version
    const auto chosen = app.get_subcommands();
    const std::string command = chosen.empty() ? "tutti" : "tutti " + chosen.front()->get_name();
    std::fprintf(stderr, "%s: %s\n'%s --help' explains.\n", command.c_str(), problem.what(), command.c_str());
    return kExitUsage;
  }
  return action();
}

}  // namespace
}  // namespace tutti::tool

int main(int argc, char** argv) {
  try {
    return tutti::tool::run(argc, argv);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "tutti: %s\n", problem.what());
    return tutti::tool::kExitError;
  }
}
