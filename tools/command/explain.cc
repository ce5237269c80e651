// The command line of `tutti explain`.
#include "explain/explain.h"

#include <memory>

#include "bench/options.h"
#include "bench/units.h"
#include "command/command.h"

namespace tutti::tool {
namespace {

constexpr const char* kExplainFooter = R"(
Without --topo and --gpus: host devices of this machine, asked through the library (tuttiExplain). --gpus: GPUs of one host that NVSwitches
join, by the library's own planner and the constants that tutti tune --gpus kept of this machine, if it did; else those of the machine
that the built-in ones were measured on. --topo: an estimate for GPUs of several
hosts, from the channels that are found for a topology file and NCCL's constants; this library does not use GPUs of several hosts yet.

NCCL_ALGO, NCCL_PROTO, NCCL_MAX_CTAS, TUTTI_ALGO and so on hold as they do for a communicator (tutti env).

Examples:
  tutti explain all_reduce 4M --ranks 8
  tutti explain all_reduce 4M --gpus 4
  tutti explain all_reduce 4M --topo dgxh100.xml --nodes 8
  NCCL_ALGO=ring tutti explain all_reduce 64K --topo dgxh100.xml --json

Exit codes: 0 fine, 2 bad arguments, settings or file content, 3 the library failed or the file cannot be read.)";

struct ExplainText {
  std::string operation;
  std::string bytes;
  std::string type = "float";
};

void read(const ExplainText& text, ExplainOptions& options) {
  options.operation = require(bench::findOperation(text.operation), "OP");
  options.bytes = require(bench::parseBytes(text.bytes), "SIZE");
  const auto types = require(bench::parseTypes(text.type), "--datatype");
  if (types.size() != 1) throw CLI::ValidationError("--datatype", "expected one type");
  options.type = types.front();
  const int ranks = options.gpus > 0 ? options.gpus : options.ranks;
  if (options.operation->isRooted && options.topo.source.file.empty() && options.root >= ranks)
    throw CLI::ValidationError("--root", format("{} is none of the {} ranks", options.root, ranks));
}

}  // namespace

void addExplain(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ExplainOptions>();
  const auto text = std::make_shared<ExplainText>();
  CLI::App* command = app.add_subcommand("explain", "say what a call would get, how long it would take, and why nothing else");
  command->add_option("OP", text->operation, bench::operationNames())->required();
  command->add_option("SIZE", text->bytes, "bytes of the larger buffer, such as 4M")->required();
  CLI::Option* ranks =
      command->add_option("--ranks", options->ranks, "ranks on host devices")->capture_default_str()->check(within(1, kMostRanks));
  CLI::Option* gpus =
      command->add_option("--gpus", options->gpus, "so many GPUs of one host")->check(within(1, kMostRanks))->excludes(ranks);
  CLI::Option* topo = command->add_option("--topo", options->topo.source.file, "topology XML of each node")
                          ->type_name("FILE")
                          ->excludes(ranks)
                          ->excludes(gpus);
  command->add_option("--nodes", options->topo.facts.nodes, "identical nodes, one rank a GPU")
      ->capture_default_str()
      ->check(within(1, 128))
      ->needs(topo);
  command->add_option("--set", options->topo.variables, "a variable about paths or channels, NAME=VALUE; may be given several times")
      ->needs(topo);
  command->add_option("-d,--datatype", text->type, bench::typeNames())->capture_default_str();
  command->add_option("-r,--root", options->root, "of a rooted collective")->capture_default_str()->check(within(0, 1 << 20));
  command->add_flag("--json", options->writesJson, "as tuttiExplain answers (tutti.h)");
  command->footer(kExplainFooter);
  command->callback([text, options, &action] {
    read(*text, *options);
    action = [options] { return runExplain(*options); };
  });
}

}  // namespace tutti::tool
