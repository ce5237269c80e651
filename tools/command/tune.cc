// The command line of `tutti tune`.
#include "tune/tune.h"

#include <memory>

#include "command/command.h"

namespace tutti::tool {
namespace {

constexpr const char* kTuneFooter = R"(
Without --errors: times calls of ranks that are threads of this machine for some seconds, fits the constants of the model that
chooses algorithms, and keeps them below $TUTTI_CACHE_DIR, else $XDG_CACHE_HOME/tutti, else ~/.cache/tutti, under a key of the
machine. Communicators whose ranks all have the same constants choose by them from then on; TUTTI_CACHE_DIR=none, or removing the
file, brings the built-in ones back. Measure while the machine is idle: constants that do not fit what was measured are not kept.
What is kept changes which algorithm a call gets, and with it the last bits of sums.

Examples:
  tutti tune
  tutti tune --gpus 4
  tutti tune --gpus 2 --probes probes.json   fits what `bench/gpu/choice LIB --probes probes.json` has timed
  tutti tune --dry-run --all
  tutti tune --errors bench/measured/nccl-h200x4.json   how near NCCL's model comes to its own times, fitted to every other row

Exit codes: 0 fine, 1 an all-reduce of 16 KiB or more is estimated wrong by more than 25%, 2 bad arguments or file content, 3 a file
cannot be read or written, or the library failed.)";

}  // namespace

void addTune(CLI::App& app, Action& action) {
  const auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand("tune", "measure this machine for the choice of algorithms, or test a model");
  command->add_option("--errors", options->errorsOf, "fit the model of links to every other row of a table, try it on the others")
      ->type_name("FILE");
  CLI::Option* const gpus =
      command->add_option("--gpus", options->gpus, "measure so many GPUs instead of ranks on host devices")->check(within(2, 16));
  command->add_option("--probes", options->probesOf, "with --gpus: calls that were timed before, as bench/gpu/choice --probes writes them")
      ->type_name("FILE")
      ->needs(gpus);
  command->add_flag("--dry-run", options->isDry, "measure, and keep nothing");
  command->add_flag("--all", options->showsAll, "show every call that was measured");
  command->footer(kTuneFooter);
  command->callback([options, &action] { action = [options] { return runTune(*options); }; });
}

}  // namespace tutti::tool
