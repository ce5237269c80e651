// Topology files: what is accepted is written, read again, and looked at from one node, two, and a clique of two.
#include "fuzz/target.h"
#include "topo/same.h"
#include "topo/host_devices.h"
#include "topo/merge.h"
#include "topo/view.h"

namespace tutti::fuzz {
namespace {

using namespace topo;

void checkLinks(const System& system) {
  for (size_t i = 0; i < system.links.size(); ++i) {
    const Link& link = system.links[i];
    if (link.reverse == kNoLink) continue;
    const Link& back = system.at(link.reverse);
    promise(back.from == link.to && back.to == link.from && back.type == link.type, "the reverse of a link leads back");
  }
}

/// Every path leads from its start to its target over links that follow one another, and is no wider than the narrowest of them.
void checkPaths(const System& system, const Paths& paths) {
  for (const NodeKind kind : {NodeKind::Gpu, NodeKind::Net, NodeKind::Cpu, NodeKind::NvSwitch, NodeKind::Host}) {
    for (const NodeId to : system.all(kind)) {
      for (size_t start = 0; start < system.nodes.size(); ++start) {
        const NodeId from(static_cast<int32_t>(start));
        const Path& path = paths.get(from, to);
        NodeId at = from;
        for (const LinkId id : paths.links(path)) {
          promise(system.at(id).from == at, "links of a path follow one another");
          promise(path.GBps <= system.at(id).GBps, "a path is no wider than its links");
          at = system.at(id).to;
        }
        promise(path.count == 0 || system.at(at).id == system.at(to).id, "a path ends at its target");
      }
    }
  }
}

}  // namespace

void run(std::string_view text) {
  const auto machine = parseXml("fuzz", text);
  if (!machine) return promise(!machine.error().text().empty(), "an error has words");
  const auto again = parseXml("fuzz", writeXml(machine->root));
  std::string where;
  promise(again.has_value() && topo::test::areSame(machine->root, again->root, where), "what is written is what was read");
  if (const auto hosts = makeHostView(*machine)) {
    checkLinks(hosts->system);
    checkPaths(hosts->system, hosts->paths);
  }
  Document merged = *machine;
  if (mergeNets(merged, {.level = MergeLevel::Sys, .groups = {}}).ok()) {
    const auto rewritten = parseXml("merged", writeXml(merged.root));
    promise(rewritten.has_value(), "what is merged is XML");
    const auto request = identicalNodes(*rewritten, 2, false, {});
    const auto before = request ? makeView(*machine, *request) : Result<View>(fail(Code::InvalidUsage, ""));
    const auto after = request ? makeView(*rewritten, *request) : Result<View>(fail(Code::InvalidUsage, ""));
    promise(!before || after.has_value() || after.error().code() != Code::InternalError, "what is merged is a machine");
  }
  for (const int nodes : {1, 2}) {
    for (const bool isClique : {false, true}) {
      const auto request = identicalNodes(*machine, nodes, isClique, {});
      if (!request) continue;
      const auto view = makeView(*machine, *request);
      if (!view) {
        promise(!view.error().text().empty() && view.error().code() != Code::InternalError, "an error is the file's");
        continue;
      }
      checkLinks(view->system);
      checkPaths(view->system, view->paths);
    }
  }
}

std::vector<std::string> seeds() {
  return {
      R"(<system version="1"><cpu host_hash="0x1" numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
<pci busid="0000:10:00.0" class="0x060400" vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x0005"
 link_speed="32.0 GT/s PCIe" link_width="16"><pcilink target="0000:30:00.0"/>
<pci busid="0000:11:00.0" class="0x060400" vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x1005">
<pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90" gdr="1">
<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci></pci>
<pci busid="0000:18:00.0" class="0x020700"><nic><net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.0" guid="0x9" gdr="1"/>
</nic></pci></pci><pci busid="0000:30:00.0" class="0x060400"><pcilink target="0000:10:00.0"/><pci busid="0000:31:00.0">
<gpu dev="1" sm="90" gdr="1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci></pci></cpu></system>)",
      R"(<system version="1"><cpu numaid="0" arch="ppc64"><pci busid="0004:04:00.0"><gpu dev="0" sm="70" gdr="1">
<nvlink target="0004:05:00.0" count="3" tclass="0x030200"/><nvlink target="0004:00:00.0" count="3" tclass="0x068001"/></gpu></pci>
<pci busid="0004:05:00.0"><gpu dev="1" sm="70" gdr="1"><nvlink target="0004:04:00.0" count="3" tclass="0x030200"/></gpu></pci></cpu>
<cpu numaid="8" arch="ppc64"><nic><net name="eth0" dev="0"/></nic></cpu></system>)",
      R"(<system version="1"><cpu numaid="0" arch="arm64"><pci busid="0008:01:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="100" gdr="1"><c2c bw="44712" count="5"/></gpu></pci><pci busid="0000:01:00.0" link_width=""><nic>
<net dev="0" speed="400000" gdr="1"/><net dev="1" speed="-1" coll="1"/></nic></pci></cpu></system>)",
      R"(<system version="2"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1"><pci busid="0000:82:00.0"
 class="0x120000"><gpu dev="0" sm="94" gcn="gfx942" gdr="1"><xgmi target="0000:c2:00.0" count="1" tclass="0x120000"/></gpu></pci>
<pci busid="0000:c2:00.0"><gpu dev="1" sm="94" gcn="910" gdr="1"><xgmi target="0000:82:00.0" count="1" tclass="0x120000"/></gpu></pci>
</cpu></system>)",
      R"(<system version="1"><cpu numaid="0" affinity="f" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17" memory="32768"
 distances="0:10,1:32"><hostdev dev="0" rank="0" cpus="0-1"/><hostdev dev="1" rank="2" cpus="2-3"/></cpu><cpu numaid="1" affinity="f0"
 arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17" distances="0:32,1:10"><hostdev dev="2" rank="1"/></cpu></system>)",
      R"(<system version="1"><cpu numaid="0" arch="arm64"><pci busid="0000:01:00.0"><gpu dev="0" sm="90" gdr="1"/></pci>
<pci busid="0000:02:00.0" class="0x02" link_speed="16.0 GT/s PCIe" link_width="16"><nic><net name="a" dev="0" speed="100000"/>
<net name="b" dev="1" speed="100000"/></nic></pci><pci busid="0000:02:00.1" class="0x02"><nic><net name="c" dev="7" speed="100000"
 devs="2,3"/></nic></pci></cpu></system>)",
      "<!-- c -->\n<system version=\"1\"><cpu numaid='-1'/></system>"};
}

}  // namespace tutti::fuzz
