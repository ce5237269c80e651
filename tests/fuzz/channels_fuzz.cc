// A topology, then a line "==", then a graph file: the machine is searched, the file is read for it; what is found in the one and accepted
// of the other is checked, written and read again.
#include "fuzz/target.h"
#include "topo/feasible.h"
#include "topo/graph_xml.h"
#include "topo/view.h"

namespace tutti::fuzz {
namespace {

using namespace topo;

constexpr std::string_view kCut = "\n==\n";

void expectSame(const Graphs& a, const Graphs& b) {
  for (int kind = 0; kind < kGraphKinds; ++kind) {
    const bool some = a.computed[kind] && a.sets[kind].count() > 0;
    promise(some == (b.computed[kind] && b.sets[kind].count() > 0), "what is written has the same sets");
    promise(!some || a.sets[kind].channels == b.sets[kind].channels, "what is written has the same channels");
  }
}

void rewrite(const Graphs& graphs, const System& system) {
  const auto file = parseXml("written", writeXml(writeGraphs(graphs, system)));
  promise(file.has_value(), "what is written is XML");
  const auto again = readGraphs(*file, system, {});
  promise(again.has_value(), again ? "" : again.error().text());
  expectSame(graphs, *again);
}

/// Two nets or GPUs of one number (a NIC listed under two CPUs) are one in a file.
bool hasTwins(const System& system) {
  for (const NodeKind kind : {NodeKind::Gpu, NodeKind::Net}) {
    for (const NodeId a : system.all(kind)) {
      for (const NodeId b : system.all(kind)) {
        const bool alike =
            kind == NodeKind::Gpu ? system.at(a).gpu.dev == system.at(b).gpu.dev : system.at(a).net.dev == system.at(b).net.dev;
        if (a != b && alike && systemOf(system.at(a).id) == systemOf(system.at(b).id)) return true;
      }
    }
  }
  return false;
}

void search(const View& view) {
  GraphsRequest request{.collnet = true, .nvls = true};
  request.settings.effort = 2000;
  const auto graphs = searchGraphs(view.system, view.paths, request);
  if (!graphs) return promise(!graphs.error().text().empty() && graphs.error().code() != Code::InternalError, "an error is the machine's");
  for (int kind = 0; kind < kGraphKinds; ++kind) {
    if (!graphs->computed[kind] || graphs->sets[kind].count() == 0) continue;
    const ChannelSet& set = graphs->sets[kind];
    const Feasibility checked = checkChannels(view.system, view.paths, {.pattern = set.pattern, .maxChannels = 64}, set);
    promise(checked.ok(), checked.ok() ? "" : checked.violations[0]);
    promise(set.boundGBps >= set.sumGBps() * 0.999F, "no set exceeds its bound");
  }
  if (!hasTwins(view.system)) rewrite(*graphs, view.system);
}

}  // namespace

void run(std::string_view text) {
  const size_t cut = text.find(kCut);
  const auto machine = parseXml("machine", text.substr(0, cut));
  if (!machine) return;
  for (const int nodes : {1, 2}) {
    const auto request = identicalNodes(*machine, nodes, false, {});
    if (!request) continue;
    const auto view = makeView(*machine, *request);
    if (!view) continue;
    search(*view);
    const auto file = parseXml("graphs", cut == std::string_view::npos ? "" : text.substr(cut + kCut.size()));
    if (!file) continue;
    const auto graphs = readGraphs(*file, view->system, {});
    if (!graphs) {
      promise(graphs.error().text().find("graphs:") != std::string::npos, "an error of a graph file names its place");
      continue;
    }
    if (!hasTwins(view->system)) rewrite(*graphs, view->system);
  }
}

std::vector<std::string> seeds() {
  const std::string switched = R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
<pci busid="0000:10:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
<pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90" gdr="1">
<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci>
<pci busid="0000:1c:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="90" gdr="1">
<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci>
<pci busid="0000:18:00.0" class="0x020700"><nic><net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.0" guid="0x9"
 gdr="1" coll="1"/></nic></pci></pci></cpu></system>)";
  const std::string plain = R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
<pci busid="0000:01:00.0" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="70" gdr="1"/></pci>
<pci busid="0000:02:00.0" link_speed="16.0 GT/s PCIe" link_width="8"><gpu dev="1" sm="70" gdr="1"/></pci></cpu>
<cpu numaid="1" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
<pci busid="0000:81:00.0" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="2" sm="70" gdr="1">
<nvlink target="0000:82:00.0" count="2" tclass="0x030200"/></gpu></pci><pci busid="0000:82:00.0" link_speed="16.0 GT/s PCIe"
 link_width="16"><gpu dev="3" sm="70" gdr="1"><nvlink target="0000:81:00.0" count="2" tclass="0x030200"/></gpu></pci>
<nic><net dev="0" speed="100000"/><net dev="1" speed="25000"/></nic></cpu></system>)";
  const std::string ring = R"(<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="30" speedinter="30"
 latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="1"><channel><net dev="0"/><gpu dev="0"/><gpu dev="0x1"/><net dev="0"/>
</channel></graph><graph id="3" pattern="5" crossnic="0" nchannels="0" speedintra="0" speedinter="0" typeintra="LOC" typeinter="LOC"
 samechannels="0"/></graphs>)";
  const std::string inside = R"(<graphs version="1"><graph id="1" pattern="1" crossnic="2" nchannels="1" speedintra="6" speedinter="6"
 typeintra="SYS" typeinter="PIX" samechannels="1"><channel><gpu dev="0"/><gpu dev="1"/><gpu dev="2"/><gpu dev="3"/></channel></graph>
</graphs>)";
  return {switched + std::string(kCut) + ring, plain + std::string(kCut) + inside, switched + std::string(kCut) + inside, plain};
}

}  // namespace tutti::fuzz
