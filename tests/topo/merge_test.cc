#include "topo/merge.h"

#include <gtest/gtest.h>

#include "topo/data.h"
#include "topo/search.h"
#include "topo/view.h"

namespace tutti::topo::merge_test {
namespace {

/// A dual-port NIC beside a GPU, two NICs below another switch, one at the second CPU, and one without a PCI device.
constexpr const char* kMachine = R"(<system version="1">
<cpu numaid="0" affinity="f" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
<pci busid="0000:10:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
 <pci busid="0000:11:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90" gdr="1"/></pci>
 <pci busid="0000:12:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16"><nic>
  <net name="a0" dev="0" speed="100000" port="1" guid="0x1" gdr="1"/>
  <net name="a1" dev="1" speed="100000" port="2" guid="0x1" gdr="1"/></nic></pci>
</pci>
<pci busid="0000:20:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
 <pci busid="0000:21:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="90" gdr="1"/></pci>
 <pci busid="0000:22:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16"><nic>
  <net name="b" dev="2" speed="200000" port="1" guid="0x2" gdr="1"/></nic></pci>
 <pci busid="0000:23:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16"><nic>
  <net name="c" dev="3" speed="200000" port="1" guid="0x3" gdr="0"/></nic></pci>
</pci></cpu>
<cpu numaid="1" affinity="f0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
<pci busid="0000:32:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16"><nic>
  <net name="d" dev="4" speed="200000" port="1" guid="0x4" gdr="1"/></nic></pci>
<nic><net name="eth0" dev="5" speed="200000"/></nic></cpu></system>)";

struct Merged {
  Status status;
  Document machine;
  System system;
};

/// Of a machine of two nodes, so that nets matter.
Merged merged(const std::vector<std::pair<std::string, std::string>>& variables, const std::string& text = kMachine) {
  Merged made;
  MergeSettings settings;
  for (const auto& [name, value] : variables) {
    made.status = applyMergeVariable(name, value, settings);
    if (!made.status.ok()) return made;
  }
  made.machine = *parseXml("m.xml", text);
  made.status = mergeNets(made.machine, settings);
  if (!made.status.ok()) return made;
  // What is written is read again.
  const auto again = parseXml("again.xml", writeXml(made.machine.root));
  EXPECT_TRUE(again);
  const auto request = identicalNodes(*again, 2, false, {});
  EXPECT_TRUE(request) << request.error().text();
  const auto view = makeView(*again, *request);
  EXPECT_TRUE(view) << view.error().text();
  if (view) made.system = view->system;
  return made;
}

std::string netsOf(const System& system) {
  std::string text;
  for (const NodeId id : system.all(NodeKind::Net)) {
    const NetInfo& net = system.at(id).net;
    text += format("{}{}:{:g}{}", text.empty() ? "" : " ", net.dev, net.GBps, net.gdr ? "" : "-");
    for (const int& dev : net.members) text += format("{}{}", &dev == net.members.data() ? "=" : "+", dev);
  }
  return text;
}

/// Of the link between a net's NIC and what that hangs on.
float pciGBpsOf(const System& system, int dev) {
  for (const NodeId net : system.all(NodeKind::Net)) {
    if (system.at(net).net.dev != dev) continue;
    const NodeId nic = system.at(system.at(net).links.front()).to;
    for (const LinkId link : system.at(nic).links)
      if (system.at(link).type == LinkType::Pci) return system.at(link).GBps;
  }
  return 0;
}

TEST(Merge, EachLevelMergesWhatIsAsNear) {
  EXPECT_EQ(netsOf(merged({}).system), "0:12.5 1:12.5 2:25 3:25- 4:25 5:25-");
  EXPECT_EQ(netsOf(merged({{"NCCL_NET_MERGE_LEVEL", "LOC"}}).system), "0:12.5 1:12.5 2:25 3:25- 4:25 5:25-");
  EXPECT_EQ(netsOf(merged({{"NCCL_NET_MERGE_LEVEL", "PORT"}}).system), "6:25=0+1 2:25 3:25- 4:25 5:25-");
  const Merged pix = merged({{"NCCL_NET_MERGE_LEVEL", "PIX"}});
  EXPECT_EQ(netsOf(pix.system), "6:25=0+1 7:50-=2+3 4:25 5:25-");
  EXPECT_FLOAT_EQ(pciGBpsOf(pix.system, 6), 24) << "ports share the link of their device";
  EXPECT_FLOAT_EQ(pciGBpsOf(pix.system, 7), 48) << "two devices have one each";
  EXPECT_EQ(netsOf(merged({{"NCCL_NET_MERGE_LEVEL", "SYS"}}).system), "6:25=0+1 7:50-=2+3 4:25 5:25-")
      << "once merged, a net is no member of another one, and one without a PCI device of none";
}

TEST(Merge, GroupsAreMergedWhateverTheirDistance) {
  const Merged far = merged({{"NCCL_NET_FORCE_MERGE", "b,d;a1,c"}});
  ASSERT_TRUE(far.status.ok()) << far.status.text();
  EXPECT_EQ(netsOf(far.system), "0:12.5 6:50=2+4 7:25-=1+3 5:25-") << "a speed of twice the slower one";
  EXPECT_FLOAT_EQ(pciGBpsOf(far.system, 6), 48);
  const Merged both = merged({{"NCCL_NET_FORCE_MERGE", "b,eth0"}, {"NCCL_NET_MERGE_LEVEL", "PORT"}});
  EXPECT_EQ(netsOf(both.system), "7:25=0+1 3:25- 6:50-=2+5 4:25");
}

TEST(Merge, FunctionsOfADeviceAreItsPorts) {
  std::string text = kMachine;
  const std::string second = "0000:23:00.0";
  text.replace(text.find(second), second.size(), "0000:22:00.1");
  const Merged made = merged({{"NCCL_NET_MERGE_LEVEL", "PORT"}}, text);
  EXPECT_EQ(netsOf(made.system), "6:25=0+1 7:50-=2+3 4:25 5:25-");
  EXPECT_FLOAT_EQ(pciGBpsOf(made.system, 7), 24);
}

TEST(Merge, NoMoreThanFourAndNoOtherSpeeds) {
  std::string nets;
  for (int i = 0; i < 10; ++i) nets += format(R"(<net name="n{0}" dev="{0}" speed="{1}" gdr="1"/>)", i, i == 3 ? 25000 : 100000);
  const std::string text =
      R"(<system version="1"><cpu numaid="0" arch="arm64"><pci busid="0000:01:00.0"><gpu dev="0" sm="90" gdr="1"/></pci>
<pci busid="0000:02:00.0" class="0x02"><nic>)" +
      nets + "</nic></pci></cpu></system>";
  EXPECT_EQ(netsOf(merged({{"NCCL_NET_MERGE_LEVEL", "PORT"}}, text).system), "3:3.125 9:12.5 10:50=0+1+2+4 11:50=5+6+7+8");
}

TEST(Merge, WhatIsMergedAlreadyStaysAsItIs) {
  Document once = merged({{"NCCL_NET_MERGE_LEVEL", "PIX"}}).machine;
  const std::string before = writeXml(once.root);
  ASSERT_TRUE(mergeNets(once, {.level = MergeLevel::Sys, .groups = {}}).ok());
  EXPECT_EQ(writeXml(once.root), before);
  // Two virtual nets of equal speed on one switch.
  std::string text = kMachine;
  for (const char* const dev : {"2", "3"}) {
    const std::string plain = format("dev=\"{}\" speed", dev);
    text.replace(text.find(plain), plain.size(), format("dev=\"{0}\" devs=\"{0}{0},{0}{0}{0}\" speed", dev));
  }
  EXPECT_EQ(netsOf(merged({{"NCCL_NET_MERGE_LEVEL", "PIX"}}, text).system), "6:25=0+1 2:25=22+222 3:25-=33+333 4:25 5:25-");
}

/// The XML of a clique has the same names on every host, and the same numbers: each is merged with its own host's.
TEST(Merge, HostsHaveNetsOfTheSameNames) {
  const auto host = [](const char* hash, int bus, const char* nets) {
    return format(
        R"(<cpu host_hash="{0}" numaid="0" arch="arm64"><pci busid="0000:{1}1:00.0"><gpu dev="{1}" rank="{1}" sm="90" gdr="1"/></pci>
<pci busid="0000:{1}2:00.0" class="0x02"><nic>{2}</nic></pci></cpu>)",
        hash, bus, nets);
  };
  constexpr const char* kBoth = R"(<net name="a" dev="0" speed="100000"/><net name="b" dev="1" speed="100000"/>)";
  constexpr const char* kSlow = R"(<net name="a" dev="0" speed="100000"/><net name="b" dev="1" speed="25000"/>)";
  const auto netsIn = [](const std::string& hosts, const MergeSettings& settings) -> std::string {
    auto machine = parseXml("m.xml", "<system version=\"1\">" + hosts + "</system>");
    EXPECT_TRUE(machine) << machine.error().text();
    if (const Status status = mergeNets(*machine, settings); !status.ok()) return status.text();
    std::string text;
    for (const Element& cpu : machine->root.children) {
      for (const Element& pci : cpu.children)
        if (const Element* const nic = pci.child("nic"))
          for (const Element& net : nic->children) text += *net.find("dev") + ":" + *net.find("name") + " ";
      text += "| ";
    }
    return text;
  };
  const MergeSettings ports{.level = MergeLevel::Port, .groups = {}};
  const MergeSettings named{.level = MergeLevel::None, .groups = {{"a", "b"}}};
  EXPECT_EQ(netsIn(host("0x1", 1, kBoth) + host("0x2", 2, kBoth), ports), "2:a+b | 2:a+b | ");
  EXPECT_EQ(netsIn(host("0x1", 1, kBoth) + host("0x2", 2, kBoth), named), "2:a+b | 2:a+b | ");
  EXPECT_EQ(netsIn(host("0x1", 1, kBoth) + host("0x2", 2, kSlow), ports), "2:a+b | 0:a 1:b | ") << "what is not merged stays";
  EXPECT_EQ(netsIn(host("0x1", 1, kSlow) + host("0x2", 2, kBoth), ports), "0:a 1:b | 2:a+b | ");
  const char* const other = R"(<net name="c" dev="0" speed="100000"/>)";
  EXPECT_EQ(netsIn(host("0x1", 1, kBoth) + host("0x2", 2, other), named), "2:a+b | 0:c | ");
  const char* const half = R"(<net name="b" dev="0" speed="100000"/>)";
  EXPECT_NE(netsIn(host("0x1", 1, kBoth) + host("0x2", 2, half), named).find("the host with host_hash=\"0x2\", has no net \"a\"; it has b"),
            std::string::npos);
}

TEST(Merge, MoreNetsThanCanBeComparedAreRefused) {
  const auto statusOf = [](int count) {
    std::string nets;
    for (int i = 0; i < count; ++i) nets += format(R"(<net name="n{0}" dev="{0}" speed="{0}"/>)", i);
    auto machine = parseXml("m.xml", R"(<system version="1"><cpu numaid="0"><nic>)" + nets + "</nic></cpu></system>");
    EXPECT_TRUE(machine);
    return mergeNets(*machine, {.level = MergeLevel::Port, .groups = {}});
  };
  EXPECT_TRUE(statusOf(4096).ok());
  const Status status = statusOf(4097);
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  EXPECT_NE(status.text().find("at most 4096 nets"), std::string::npos) << status.text();
}

/// Channels go over the virtual net as over any other.
TEST(Merge, ASearchFindsChannelsOverVirtualNets) {
  const auto sumOf = [](MergeLevel level) {
    Document machine = *parseXml("m.xml", kMachine);
    EXPECT_TRUE(mergeNets(machine, {.level = level, .groups = {}}).ok());
    const auto view = makeView(machine, *identicalNodes(machine, 2, false, {}));
    const auto graphs = searchGraphs(view->system, view->paths, {.collnet = false, .nvls = false, .settings = {}});
    EXPECT_TRUE(graphs) << graphs.error().text();
    return (*graphs)[GraphKind::Ring].sumGBps();
  };
  EXPECT_GT(sumOf(MergeLevel::None), 0);
  EXPECT_GT(sumOf(MergeLevel::Pix), 0);
}

TEST(Merge, NonsenseIsRefused) {
  const auto refusal = [](const char* name, const std::string& value) { return merged({{name, value}}).status.text(); };
  for (const char* bad : {"port", "FAR", "-1", "NET"})
    EXPECT_NE(refusal("NCCL_NET_MERGE_LEVEL", bad).find(format("NCCL_NET_MERGE_LEVEL=\"{}\"; expected LOC for no merging, PORT", bad)),
              std::string::npos)
        << bad;
  for (const auto& [bad, why] : {std::pair{"a0", "2 to 4 nets in a group: \"a0\" has 1"}, std::pair{"a0,a1;b", "\"b\" has 1"},
                                 std::pair{"a0,,a1", "names of nets"}, std::pair{"a0,a1;b,a0", "every net once: a0 stands twice"},
                                 std::pair{"a0,a1,b,c,d", "has 5"}, std::pair{",", "names of nets"},
                                 std::pair{"a0,x9", "m.xml has no net \"x9\"; it has a0, a1, b, c, d, eth0"}}) {
    EXPECT_NE(refusal("NCCL_NET_FORCE_MERGE", bad).find(why), std::string::npos) << bad << ": " << refusal("NCCL_NET_FORCE_MERGE", bad);
  }
  EXPECT_EQ(refusal("NCCL_NET_FORCE_MERGE", "a0,a1;"), "");
  for (const char* bad : {"", "0,", "x", "0,1,2,3,4", "-1"}) {
    const auto machine = parseXml("m.xml", format(R"(<system version="1"><cpu numaid="0" arch="arm64">
<pci busid="0000:01:00.0"><gpu dev="0" rank="0"/></pci><nic><net dev="0" devs="{}"/></nic></cpu></system>)", bad));
    const auto view = makeView(*machine, *identicalNodes(*machine, 1, false, {}));
    ASSERT_FALSE(view) << bad;
    EXPECT_NE(view.error().text().find(format("devs=\"{}\"; expected the numbers of nets", bad)), std::string::npos) << view.error().text();
  }
}

/// Every machine that there is, at every level: it still is one, with no more nets, and every net that was there is in it once.
TEST(Merge, EveryFileStaysAMachine) {
  int files = 0;
  for (const std::string& file : test::filesOf("", ".xml")) {
    const auto machine = readXml(file + ".xml");
    if (!machine || !identicalNodes(*machine, 1, false, {})) continue;
    const auto before = makeView(*machine, *identicalNodes(*machine, 2, false, {}));
    if (!before) continue;
    for (const MergeLevel level : {MergeLevel::Port, MergeLevel::Pix, MergeLevel::Pxb, MergeLevel::Phb, MergeLevel::Sys}) {
      Document changed = *machine;
      ASSERT_TRUE(mergeNets(changed, {.level = level, .groups = {}}).ok()) << file;
      const auto after = makeView(changed, *identicalNodes(changed, 2, false, {}));
      ASSERT_TRUE(after) << file << ": " << after.error().text();
      std::vector<int> devs;
      for (const NodeId net : after->system.all(NodeKind::Net)) {
        const NetInfo& info = after->system.at(net).net;
        if (info.members.empty()) devs.push_back(info.dev);
        devs.insert(devs.end(), info.members.begin(), info.members.end());
      }
      std::vector<int> known;
      for (const NodeId net : before->system.all(NodeKind::Net)) known.push_back(before->system.at(net).net.dev);
      std::sort(devs.begin(), devs.end());
      std::sort(known.begin(), known.end());
      EXPECT_EQ(devs, known) << file << " level " << static_cast<int>(level);
    }
    ++files;
  }
  EXPECT_GE(files, 25);
}

}  // namespace
}  // namespace tutti::topo::merge_test
