// The command line of `tutti run`.
#include "launch/run.h"

#include <memory>

#include "command/command.h"
#include "launch/nodes.h"

namespace tutti::tool {
namespace {

constexpr int kMostProcesses = 10000;
constexpr double kMostSeconds = 1e7;

constexpr const char* kRunFooter = R"(
Each rank finds RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in its environment (and MASTER_ADDR and MASTER_PORT, for programs that
expect them); `tutti bench` and other programs get the unique id of a communicator through TUTTI_RUN_FD. Nothing is read from the
terminal. When a rank fails, the others get SIGTERM, and SIGKILL after the grace; no descendant of a rank outlives `tutti run`.

Examples:
  tutti run -n 4 -- tutti bench all_reduce
  tutti run -n 2 --bind --timeout 60 -- ./train --epochs 3
  tutti run -n 4 --nodes 2 -- tutti bench all_reduce      two hosts played by network namespaces; needs root

Exit codes: 0 all ranks ended well; that of the first rank that failed, 128 + n if it died of signal n or signal n came;
124 --timeout, 125 tutti run itself failed, 127 the program cannot be started, 2 bad arguments.)";

void readRun(const CLI::App& command, const std::vector<std::string>& tail, launch::RunOptions& options) {
  // Without "--" the first word that is no option begins the program; a "--" further on is then one of its arguments.
  options.command = command.remaining();
  const auto first = options.command.empty() && !tail.empty() ? tail.begin() + 1 : tail.begin();
  options.command.insert(options.command.end(), first, tail.end());
  if (options.command.empty()) throw CLI::ValidationError("PROGRAM", "what to run is missing, as in: tutti run -n 4 -- PROGRAM ARGUMENTS");
  if (options.command.front().starts_with('-')) throw CLI::ValidationError(options.command.front(), "is not an option of tutti run");
  if (options.nodes > options.ranks) {
    throw CLI::ValidationError("--nodes", format("{} nodes for {} ranks: each needs one", options.nodes, options.ranks));
  }
}

}  // namespace

void addRun(CLI::App& app, const std::vector<std::string>& tail, Action& action) {
  const auto options = std::make_shared<launch::RunOptions>();
  const auto hidesPrefix = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("run", "start a program as several ranks on this machine");
  command->add_option("-n,--ranks", options->ranks, "processes to start")->required()->check(within(1, kMostProcesses));
  command->add_flag("--no-prefix", *hidesPrefix, "do not begin each line of output with the rank");
  command->add_flag("--bind", options->isBound, "bind each rank to one core, in turn");
  command->add_option("--timeout", options->timeoutSeconds, "seconds after which all ranks are ended [no limit]")
      ->check(within(0.0, kMostSeconds));
  command->add_option("--grace", options->graceSeconds, "seconds between SIGTERM and SIGKILL, and between another signal and SIGTERM")
      ->capture_default_str()
      ->check(within(0.0, kMostSeconds));
  command->add_option("--nodes", options->nodes, "play so many hosts, with a network namespace each [none]")
      ->check(within(2, launch::kMostNodes));
  command->prefix_command();
  command->footer(kRunFooter);
  command->callback([command, options, hidesPrefix, &tail, &action] {
    options->hasPrefix = !*hidesPrefix;
    readRun(*command, tail, *options);
    action = [options] { return launch::runProgram(*options); };
  });
}

}  // namespace tutti::tool
