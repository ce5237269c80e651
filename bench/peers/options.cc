#include "peers/options.h"

#include <cstdlib>

#include "bench/units.h"
#include "command/command.h"

namespace tutti::bench {
namespace {

constexpr int kExitUsage = 2;

using tool::require;
using tool::within;

const std::vector<std::string> kCompared = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv"};

constexpr const char* kFooter = R"(
Start it as ranks of a job: mpirun -n 2 bench_mpi, or tutti run -n 2 --no-prefix -- bench_gloo.
A row's times are medians over the rounds. In a round each library makes a batch of calls, the one that begins changes from round to
round; before each call every rank writes its input anew, outside the time. A batch counts as the mean of its calls on the slowest rank.
Every element of both libraries' results is compared with the expected value.)";

}  // namespace

PeerOptions parsePeerOptions(int argc, char** argv) {
  PeerOptions options;
  std::vector<std::string> names = {"all_reduce"};
  std::string from = "8";
  std::string to = "64M";
  std::string buffers = "malloc";
  CLI::App app("tutti and another library side by side.");
  app.add_option("OP", names, "operations to compare: all, or of " + CLI::detail::join(kCompared, ", "))->capture_default_str()
      ->check(CLI::IsMember(kCompared) | CLI::IsMember({"all"}));
  app.add_option("--from", from, "smallest size")->capture_default_str();
  app.add_option("--to", to, "largest size")->capture_default_str();
  app.add_option("--factor", options.common.stepFactor, "multiply the size by this from row to row")->capture_default_str()
      ->check(within(1.01, 1e6));
  app.add_option("--buffers", buffers, "malloc: as it comes; pages: the system's, with large pages; ncclmem: ncclMemAlloc")
      ->capture_default_str()->check(CLI::IsMember({"malloc", "pages", "ncclmem"}));
  app.add_flag("--hosts", options.isHosts,
               "each rank as if on a host of its own: sockets over loopback (and for Open MPI: mpirun --mca btl tcp,self)");
  app.add_option("--rounds", options.rounds, "batches of each library")->capture_default_str()->check(within(1, 100000));
  app.add_option("--plot", options.common.plotPath, "draw times into FILE.svg; with several collectives FILE-OP.svg for each")
      ->type_name("FILE");
  app.add_option("--json", options.common.jsonPath, "write all rows as a JSON list")->type_name("FILE");
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
    options.common.minBytes = require(parseBytes(from), "--from");
    options.common.maxBytes = require(parseBytes(to), "--to");
    if (options.common.maxBytes < options.common.minBytes) throw CLI::ValidationError("--to", to + " is less than --from, " + from);
  } catch (const CLI::ParseError& problem) {
    std::exit(app.exit(problem) == 0 ? 0 : kExitUsage);
  }
  options.common.buffers = buffers == "malloc"    ? BufferKind::PlainMalloc
                           : buffers == "ncclmem" ? BufferKind::NcclMem
                                                  : BufferKind::Malloc;
  if (names.front() == "all") names = kCompared;
  for (const std::string& name : names) options.operations.push_back(*findOperation(name));
  return options;
}

}  // namespace tutti::bench
