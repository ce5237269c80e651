// The command line of `tutti topo`.
#include "topology/topo.h"

#include <memory>

#include "bench/units.h"
#include "command/command.h"
#include "topo/host_devices.h"
#include "topology/times.h"

namespace tutti::tool {
namespace {

constexpr int kMostNodes = 128;

constexpr const char* kTopoFooter = R"(
Without --file and --replay: this machine, as driver, NVML, kernel and network say. The file is a topology as NCCL_TOPO_FILE takes it and
NCCL_TOPO_DUMP_FILE writes it; RCCL's dialect is read too. A recording holds what detection has read, for bug reports: names of network
interfaces and PCI addresses, but no host name and no serial number. Variables about paths and channels (NCCL_P2P_LEVEL,
NCCL_NET_GDR_LEVEL, NCCL_CROSS_NIC, NCCL_GRAPH_FILE …) are taken from the environment and from --set.

Examples:
  tutti topo
  tutti topo --record machine.xml && tutti topo --replay machine.xml
  tutti topo --host-devices 4 --svg ranks.svg
  tutti topo --file dgxh100.xml
  tutti topo --file dgxh100.xml --nodes 2 --svg dgxh100.svg
  tutti topo --file dgxh100.xml --nodes 2 --set NCCL_P2P_DISABLE=1
  tutti topo times --nodes 1,2,4 *.xml
  tutti topo facts --file dgxh100.xml --nodes 2 --gpus 0,1,2,3 > facts.json

Exit codes: 0 fine, 2 bad arguments, settings or file content, 3 the file cannot be read.)";

void addOptions(CLI::App* command, const std::shared_ptr<TopoOptions>& options, const std::shared_ptr<std::string>& gpus) {
  CLI::Option* file = command->add_option("--file", options->source.file, "topology XML [this machine]")->type_name("FILE");
  command->add_option("--replay", options->source.replayPath, "what --record has written, instead of this machine")
      ->type_name("FILE")
      ->excludes(file);
  command->add_option("--nodes", options->facts.nodes, "identical nodes, one rank a GPU")
      ->capture_default_str()
      ->check(within(1, kMostNodes));
  command->add_option("--gpus", *gpus, "GPUs used on each node, such as 0-3,6 [all]");
  command
      ->add_option("--host-devices", options->facts.hostDevices,
                   "ranks compute with so many CPUs, not with GPUs; 0: one each, 8 at most of a NUMA node [without GPUs]")
      ->check(within(0, topo::kMostHostDevices));
  command->add_flag("--collnet", options->facts.isCollNet, "the nets reduce");
  command->add_flag("--mnnvl", options->facts.isClique, "the nodes are one multi-node NVLink clique");
  command->add_flag("--no-p2p", [options](int64_t) { options->facts.settings.driverP2p = false; }, "the driver forbids peer access");
  command->add_option("--set", options->variables, "a variable about paths or channels, NAME=VALUE; may be given several times");
}

}  // namespace

void addTopo(CLI::App& app, Action& action) {
  const auto options = std::make_shared<TopoOptions>();
  const auto gpus = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("topo", "show the topology of this machine, or of one from a file");
  addOptions(command, options, gpus);
  command->add_option("--write", options->writePath, "write the XML of what is used, as NCCL_TOPO_DUMP_FILE does")->type_name("FILE");
  command->add_option("--svg", options->svgPath, "draw it, with its channels")->type_name("FILE");
  command->add_option("--record", options->source.recordPath, "write down what detection reads of this machine")
      ->type_name("FILE")
      ->excludes("--file", "--replay");
  CLI::App* facts = command->add_subcommand("facts", "the system, its paths and GPUDirect RDMA, and the channels found, as JSON");
  addOptions(facts, options, gpus);
  facts->add_option("--dump-graphs", options->dumpGraphs, "also write the channels as graph XML, which NCCL_GRAPH_FILE reads")
      ->type_name("FILE");
  const auto times = std::make_shared<TimesOptions>();
  CLI::App* timed = command->add_subcommand("times", "how long it takes from topology XMLs to channels, in CPU time of one thread");
  timed->add_option("FILE", times->files, "topology XML")->required();
  timed->add_option("--nodes", times->nodes, "numbers of identical nodes")
      ->capture_default_str()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(within(1, kMostNodes));
  timed->add_option("--runs", times->runs, "of each file")->capture_default_str()->check(within(1, 1000));
  timed->add_option("--expected", times->expected, "time the runs that this folder has the reference's facts of, beside its times")
      ->type_name("FOLDER")
      ->excludes("--nodes");
  timed->add_flag("--mnnvl", times->isClique, "the nodes are one multi-node NVLink clique");
  command->footer(kTopoFooter);
  const auto finish = [options, gpus] {
    if (!gpus->empty()) options->facts.gpus = require(bench::parseList(*gpus, 0, 1 << 20), "--gpus");
  };
  command->callback([options, finish, facts, timed, times, &action] {
    if (timed->parsed()) {
      action = [times] { return runTopoTimes(*times); };
      return;
    }
    finish();
    action = facts->parsed() ? Action([options] { return runTopoFacts(*options); }) : Action([options] { return runTopo(*options); });
  });
}

}  // namespace tutti::tool
