// The `tutti` command: what each subcommand accepts, checked, and handed on; those with many options have files of their own in command/.
//
// Exit codes: 0 fine · 1 wrong results, or a proof failed · 2 bad arguments · 3 the library failed or hung.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/checks.h"
#include "bench/units.h"
#include "command/command.h"
#include "env/env.h"
#include "exit_codes.h"
#include "nccl.h"
#include "prove/prove.h"
#include "tutti.h"

namespace tutti::tool {
namespace {

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
  command->callback([options, &action] {
    action = [options] {
      if (setenv("TUTTI_DEVICE", "host", 1) != 0) return kExitError;  // its buffers are memory of the host
      return bench::runChecks(*options);
    };
  });
}

constexpr const char* kProveFooter = R"(
What is proved, for every standard case (ranks, root, slots, slices, channels, in place or not): every output holds every
contribution exactly once and in the promised order; no schedule deadlocks; no two accesses race.

Examples:
  tutti prove                                             all algorithms, up to 127 ranks, in a few minutes at most
  tutti prove --algorithm ring --ranks 2-8 --slots 2,3
  tutti prove --full --markdown docs/proofs.md            every rank count to 64, and 100, 127, 1000; takes longer

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
  command->add_option("--markdown", options->markdownPath, "write docs/proofs.md: what is proved, and the table")->type_name("FILE");
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

/// The words from the first "--" on; only `tutti run` has any.
std::vector<std::string> cutTail(std::vector<std::string>& words) {
  const auto cut = words.empty() || words.front() != "run" ? words.end() : std::find(words.begin(), words.end(), "--");
  std::vector<std::string> tail(cut, words.end());
  words.erase(cut, words.end());
  return tail;
}

int run(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::vector<std::string> tail = cutTail(words);
  const std::vector<std::string> all = words;
  CLI::App app("tutti: collective communication, measured, proved and explained.\n", "tutti");
  app.get_formatter()->column_width(34);
  app.require_subcommand(1);
  app.set_version_flag("--version", versionText);
  app.footer("\n'tutti COMMAND --help' explains a command.");
  Action action;
  addBench(app, all, action);
  addRun(app, tail, action);
  addChecks(app, action);
  addProve(app, action);
  addEnv(app, action);
  addTopo(app, action);
  addExplain(app, action);
  addTune(app, action);
  addDoctor(app, action);
  try {
    std::reverse(words.begin(), words.end());  // as the parser takes them
    app.parse(std::move(words));
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
