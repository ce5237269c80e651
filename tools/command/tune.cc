// The command line of `tutti tune`.
#include "tune/tune.h"

#include <memory>

#include "command/command.h"

namespace tutti::tool {
namespace {

constexpr const char* kTuneFooter = R"(
Examples:
  tutti tune --errors bench/measured/nccl-h200x4.json   how near NCCL's model comes to its own times, fitted to every other row

Exit codes: 0 fine, 1 an all-reduce of 16 KiB or more is estimated wrong by more than 25%, 2 bad arguments or file content, 3 a file
cannot be read or written, or the library failed.)";

}  // namespace

void addTune(CLI::App& app, Action& action) {
  const auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand("tune", "measure this machine for the choice of algorithms, or test a model");
  command->add_option("--errors", options->errorsOf, "fit the model of links to every other row of a table, try it on the others")
      ->type_name("FILE")
      ->required();
  command->footer(kTuneFooter);
  command->callback([options, &action] { action = [options] { return runTune(*options); }; });
}

}  // namespace tutti::tool
