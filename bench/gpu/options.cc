#include "gpu/options.h"

#include <algorithm>

#include "bench/units.h"
#include "command/command.h"

namespace tutti::bench::gpu {
namespace {

constexpr int kExitUsage = 2;

using tool::require;
using tool::within;

constexpr const char* kFooter = R"(
A row is a call of one size with both libraries, in turns: in each round each makes a block of calls, the one that begins changes from round
to round. A block's time is the device's own, from before its first call to after its last, on the slowest rank, by the calls of the block.
Calls of a block go round through several buffers, so that inputs are not in a cache. In a graph, the block is the graph.
Every element of both results is compared with what it must be before the rounds and after them, by the path that is timed.)";

/// What comes as text and is checked once everything is there.
struct Texts {
  std::vector<std::string> operations = {"all"};
  std::string types = "float";
  std::string redOps = "sum";
  std::vector<std::string> modes = {"eager", "graph"};
  std::string from = "8";
  std::string to = "1G";
  std::string rotate = "128M";
  std::string buffers = "plain";
  std::string memoryOf = "a";
  std::string ctas = "0";
  std::vector<std::string> variablesA;
  std::vector<std::string> variablesB;
};

void addCommon(CLI::App& app, BenchOptions& options, Texts& texts, bool hasPeer) {
  app.add_option("--a", options.a.path, "libnccl.so.2 that is looked at")->required();
  app.add_option("--a-name", options.a.name, "what it is called")->capture_default_str();
  app.add_option("--a-env", texts.variablesA, "NAME=VALUE for it alone; may be repeated");
  if (hasPeer) {
    app.add_option("--b", options.b.path, "libnccl.so.2 that it is compared with")->required();
    app.add_option("--b-name", options.b.name, "what it is called")->capture_default_str();
    app.add_option("--b-env", texts.variablesB, "NAME=VALUE for it alone; may be repeated");
  }
  app.add_option("-n,--ranks", options.ranks, "processes, one a GPU")->capture_default_str()->check(within(1, kMostRanks));
  app.add_flag("--host", options.isHost, "ranks without GPUs");
  app.add_option("--limit", options.limitSeconds, "seconds for one step of a rank")->capture_default_str()->check(within(0.1, 1e6));
  app.add_option("--seconds", options.seconds, "nothing new begins after them")->capture_default_str()->check(within(0.0, 1e6));
  app.add_option("--json", options.jsonPath, "a line of JSON for each row, written at once")->type_name("FILE");
}

void addSizes(CLI::App& app, BenchOptions& options, Texts& texts) {
  app.add_option("OP", texts.operations, "all, or of " + operationNames())->capture_default_str();
  app.add_option("-b,--from", texts.from, "smallest size")->capture_default_str();
  app.add_option("-e,--to", texts.to, "largest size")->capture_default_str();
  app.add_option("-f,--factor", options.stepFactor, "multiply the size by this")->capture_default_str()->check(within(1.01, 1e12));
  app.add_option("-d,--types", texts.types, "element types")->capture_default_str();
  app.add_option("-o,--redops", texts.redOps, "operators, not mulsum")->capture_default_str();
  app.add_option("--root", options.root, "of those that have one")->capture_default_str();
  app.add_option("--ctas", texts.ctas, "the most thread blocks of a call, one set of rows each; 0: as the library likes")
      ->capture_default_str();
  app.add_option("--warmups", options.warmups, "calls before anything is timed")->capture_default_str()->check(within(1, 100000));
  app.add_option("--rotate", texts.rotate, "bytes of buffers that calls of a block go round through")->capture_default_str();
}

void addCompare(CLI::App& app, BenchOptions& options, Texts& texts) {
  app.add_option("-m,--modes", texts.modes, "eager, graph: one after the other")->capture_default_str()
      ->check(CLI::IsMember({"eager", "graph"}));
  app.add_option("-r,--rounds", options.rounds, "blocks of each library")->capture_default_str()
      ->check(within(1, static_cast<int>(kMostFigures)));
  app.add_option("--block-us", options.blockUs, "about how long a block takes")->capture_default_str()->check(within(1.0, 1e7));
  app.add_flag("--in-place", options.isInPlace, "results where the inputs are");
}

void addBuffers(CLI::App& app, BenchOptions&, Texts& texts) {
  app.add_option("--buffers", texts.buffers, "plain: cudaMalloc; alloc: ncclMemAlloc; registered: and ncclCommRegister with both; "
                 "windows: and symmetric windows of both; windows-a: of the first alone")
      ->capture_default_str()->check(CLI::IsMember({"plain", "alloc", "registered", "windows", "windows-a"}));
  app.add_option("--memory-of", texts.memoryOf, "whose ncclMemAlloc")->capture_default_str()->check(CLI::IsMember({"a", "b"}));
}

void addTorture(CLI::App& app, BenchOptions& options, Texts& texts) {
  addCommon(app, options, texts, false);
  app.add_option("OP", texts.operations, "all, or of " + operationNames())->capture_default_str();
  app.add_option("-e,--to", texts.to, "largest size")->capture_default_str();
  app.add_option("-d,--types", texts.types, "element types")->capture_default_str();
  app.add_option("-o,--redops", texts.redOps, "operators, not mulsum")->capture_default_str();
  app.add_option("--seed", options.seed, "where chance begins")->capture_default_str();
  app.add_option("--steps", options.steps, "0: until the time is up")->capture_default_str();
  app.add_option("--slow-us", options.slowUs, "the most that a rank is held back before a step")
      ->capture_default_str()
      ->check(within(0.0, 1e7));
  app.add_flag("--mixed", options.isMixed, "calls of several communicators at once");
  app.add_option("--buffers", texts.buffers, "plain: cudaMalloc; alloc: ncclMemAlloc; windows: and symmetric windows of each communicator")
      ->capture_default_str()->check(CLI::IsMember({"plain", "alloc", "windows"}));
}

/// Everything, where nothing was asked for.
void setForTorture(const CLI::App& app, Texts& texts) {
  if (app.count("--to") == 0) texts.to = "16M";
  if (app.count("--types") == 0) texts.types = "all";
  if (app.count("--redops") == 0) texts.redOps = "all";
}

void finish(BenchOptions& options, const Texts& texts) {
  options.a.variables = parseVariables(texts.variablesA);
  options.b.variables = parseVariables(texts.variablesB);
  options.minBytes = require(parseBytes(texts.from), "--from");
  options.maxBytes = require(parseBytes(texts.to), "--to");
  options.rotateBytes = require(parseBytes(texts.rotate), "--rotate");
  if (options.maxBytes < options.minBytes) throw CLI::ValidationError("--to", texts.to + " is less than --from, " + texts.from);
  options.types = require(parseTypes(texts.types), "--types");
  options.redOps = require(parseRedOps(texts.redOps), "--redops");
  std::erase(options.redOps, RedOp::MulSum);
  options.ctas = require(parseList(texts.ctas, 0, 64), "--ctas");
  if (options.root < 0 || options.root >= options.ranks) throw CLI::ValidationError("--root", "no such rank");
  if ((options.ranks & (options.ranks - 1)) != 0 && std::erase(options.redOps, RedOp::Avg) != 0 && options.redOps.empty())
    throw CLI::ValidationError("--redops", "averages are exact, and so can be checked, for 2, 4, 8 or 16 ranks");
  options.modes.clear();
  for (const std::string& mode : texts.modes) options.modes.push_back(mode == "graph" ? Mode::Graph : Mode::Eager);
  for (const Buffers kind : {Buffers::Plain, Buffers::Allocated, Buffers::Registered, Buffers::Windows, Buffers::WindowsOfA})
    if (texts.buffers == name(kind)) options.buffers = kind;
  options.isMemoryOfA = texts.memoryOf == "a";
  for (const std::string& wanted : texts.operations) {
    if (wanted == "all") {
      for (const Operation& operation : operations()) options.operations.push_back(&operation);
      continue;
    }
    options.operations.push_back(require(findOperation(wanted), "OP"));
  }
}

}  // namespace

std::string_view name(Mode mode) { return mode == Mode::Eager ? "eager" : "graph"; }
std::string_view name(Buffers buffers) {
  switch (buffers) {
    case Buffers::Plain: return "plain";
    case Buffers::Allocated: return "alloc";
    case Buffers::Registered: return "registered";
    case Buffers::Windows: return "windows";
    case Buffers::WindowsOfA: break;
  }
  return "windows-a";
}

BenchOptions parseBenchOptions(int argc, char** argv) {
  BenchOptions options;
  options.a.name = "tutti";
  options.b.name = "NCCL";
  Texts texts;
  CLI::App app("Collectives of two libraries on the GPUs of this machine, one process a GPU, both in the same processes.");
  app.require_subcommand(1);
  CLI::App& compare = *app.add_subcommand("compare", "times of both, in turns");
  addCommon(compare, options, texts, true);
  addSizes(compare, options, texts);
  addCompare(compare, options, texts);
  addBuffers(compare, options, texts);
  compare.footer(kFooter);
  CLI::App& life = *app.add_subcommand("life", "time until a communicator is ready, and what memory it takes; of --a alone");
  addCommon(life, options, texts, false);
  life.add_option("-e,--to", texts.to, "bytes of the all-reduce and of the all-to-all after which memory is looked at")
      ->capture_default_str();
  CLI::App& overlap = *app.add_subcommand("overlap", "a product of matrices beside each call: what both lose");
  addCommon(overlap, options, texts, true);
  addSizes(overlap, options, texts);
  addBuffers(overlap, options, texts);
  overlap.add_option("-r,--rounds", options.rounds, "of each library")
      ->capture_default_str()
      ->check(within(1, static_cast<int>(kMostFigures)));
  overlap.add_option("--block-us", options.blockUs, "about how long either is timed")->capture_default_str()->check(within(1.0, 1e7));
  overlap.add_flag("--in-place", options.isInPlace, "results where the inputs are");
  overlap.add_flag("--zeros", options.isProductOfZeros,
                   "matrices of zeros: they take less power, so what is lost is not lost because the clock goes down");
  overlap.add_option("--product", options.productSize, "rows and most columns, a multiple of 16")
      ->capture_default_str()
      ->check(within(16, 65536));
  CLI::App& torture = *app.add_subcommand("torture", "random calls, every element compared; of --a alone");
  addTorture(torture, options, texts);
  CLI::App& plot = *app.add_subcommand("plot", "draws rows of compare");
  plot.add_option("FILES", options.plot, "rows, and the drawing: ROWS.json OUT.svg")->required()->expected(2);
  try {
    app.parse(argc, argv);
    options.command = app.get_subcommands().front()->get_name();
    if (torture.parsed() || life.parsed()) texts.from = "0";  // they have no smallest size
    if (torture.parsed()) setForTorture(torture, texts);
    if (life.parsed()) texts.rotate = "8", texts.to = life.count("--to") == 0 ? "64M" : texts.to;
    if (options.productSize % 16 != 0) throw CLI::ValidationError("--product", "is a multiple of 16");
    if (options.command != "plot") finish(options, texts);
  } catch (const CLI::ParseError& problem) {
    std::exit(app.exit(problem) == 0 ? 0 : kExitUsage);
  }
  return options;
}

}  // namespace tutti::bench::gpu
