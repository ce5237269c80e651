#include "topo/build.h"

#include <gtest/gtest.h>

#include "topo/data.h"
#include "topo/paths.h"
#include "topo/same.h"

namespace tutti::topo::build_test {
namespace {

constexpr const char* kGpu = R"(<gpu dev="0" sm="80" rank="0" gdr="1"/>)";

std::string cpu(std::string_view inside,
                std::string_view attributes = "numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"1\" modelid=\"1\"") {
  return format("<cpu {}>{}</cpu>", attributes, inside);
}

std::string pci(std::string_view busId, std::string_view inside, std::string_view more = "") {
  return format("<pci busid=\"{}\" link_speed=\"16 GT/s\" link_width=\"16\" {}>{}</pci>", busId, more, inside);
}

Result<Build> build(std::string_view cpus, std::string_view version = "1") {
  const auto document = parseXml("t.xml", format("<system version=\"{}\">\n{}</system>", version, cpus));
  if (!document) return tl::unexpected(document.error());
  return buildSystem(*document, 0);
}

System systemOf(std::string_view cpus, std::string_view version = "1") {
  const auto built = build(cpus, version);
  EXPECT_TRUE(built.has_value()) << built.error().text();
  return built ? built->system : System{};
}

std::string refusal(std::string_view cpus, std::string_view version = "1") {
  const auto built = build(cpus, version);
  return built ? "" : built.error().text();
}

NodeId only(const System& system, NodeKind kind) {
  EXPECT_EQ(system.count(kind), 1) << nodeKindName(kind);
  return system.all(kind).at(0);
}

float between(const System& system, NodeId from, NodeId to, LinkType type) {
  const LinkId link = system.linkBetween(from, to, type);
  return link == kNoLink ? 0 : system.at(link).GBps;
}

TEST(Build, NvLinkThatPointsToItsOwnGpuIsALinkToItself) {
  const System system = systemOf(cpu(
      pci("0000:01:00.0", R"(<gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="0000:01:00.0" count="12" tclass="0x030200"/></gpu>)")));
  const NodeId gpu = only(system, NodeKind::Gpu);
  EXPECT_EQ(between(system, gpu, gpu, LinkType::Nvl), 240.0F);
  EXPECT_EQ(between(system, gpu, only(system, NodeKind::Cpu), LinkType::Pci), 24.0F);
}

TEST(Build, AllNvSwitchesAreOne) {
  const System system = systemOf(cpu(pci("0000:01:00.0", R"(<gpu dev="0" sm="90" rank="0" gdr="1">
    <nvlink target="0000:a1:00.0" count="5" tclass="0x068000"/><nvlink target="fffffff:ff:ff.0" count="4" tclass="0x068000"/></gpu>)")));
  EXPECT_FLOAT_EQ(between(system, only(system, NodeKind::Gpu), only(system, NodeKind::NvSwitch), LinkType::Nvl), 9 * 20.6F);
}

TEST(Build, NvLinkOfAPowerCpuAndC2cLeadToTheCpuAboveTheGpu) {
  const std::string gpu = R"(<gpu dev="0" sm="70" rank="0" gdr="1"><nvlink target="0004:00:00.0" count="3" tclass="0x068001"/>
    <c2c bw="44712" count="5"/></gpu>)";
  const System system = systemOf(cpu(pci("0000:02:00.0", pci("0000:03:00.0", gpu)), "numaid=\"8\" arch=\"ppc64\""));
  const NodeId node = only(system, NodeKind::Gpu);
  EXPECT_EQ(between(system, node, only(system, NodeKind::Cpu), LinkType::Nvl), 60.0F);
  EXPECT_FLOAT_EQ(between(system, only(system, NodeKind::Cpu), node, LinkType::C2c), 223.56F);
}

TEST(Build, ANicWithoutPciAddressIsOneForTheHost) {
  const std::string nic = R"(<nic><net name="eth0" dev="0" speed="10000"/></nic>)";
  const System system = systemOf(cpu(nic) + cpu(nic, "numaid=\"1\" arch=\"arm64\""));
  EXPECT_EQ(system.count(NodeKind::Cpu), 2);
  EXPECT_EQ(system.count(NodeKind::Net), 2) << "listed twice, with one id";
  EXPECT_EQ(between(system, only(system, NodeKind::Nic), system.all(NodeKind::Cpu)[0], LinkType::Pci), kLocalGBps);
  EXPECT_EQ(between(system, only(system, NodeKind::Nic), system.all(NodeKind::Cpu)[1], LinkType::Pci), 0);
}

TEST(Build, SeveralNetsOfOneNic) {
  const System system = systemOf(cpu(pci("0000:05:00.0", R"(<nic><net name="a" dev="0" speed="100000" guid="0x12"/>
    <net name="b" dev="1" speed="-1" port="2"/><net name="c"/></nic>)")));
  ASSERT_EQ(system.count(NodeKind::Net), 2);
  const NetInfo& a = system.at(system.all(NodeKind::Net)[0]).net;
  const NetInfo& b = system.at(system.all(NodeKind::Net)[1]).net;
  EXPECT_EQ(a.GBps, 12.5F);
  EXPECT_EQ(a.guid, 0x12u);
  EXPECT_EQ(b.GBps, 1.25F) << "some say -1";
  EXPECT_EQ(b.guid, 1u) << "without a guid, its own id";
  EXPECT_EQ(b.port, 2);
}

TEST(Build, ASwitchThatIsANicTooKeepsWhatIsBelow) {
  const auto built = build(cpu(pci("0000:02:00.0", pci("0000:03:00.0", kGpu) + R"(<nic><net name="a" dev="0" speed="100000"/></nic>)")));
  ASSERT_TRUE(built.has_value());
  const NodeId bridge = only(built->system, NodeKind::Pci);
  EXPECT_EQ(between(built->system, bridge, only(built->system, NodeKind::Gpu), LinkType::Pci), 24.0F);
  EXPECT_EQ(between(built->system, bridge, only(built->system, NodeKind::Nic), LinkType::Pci), 24.0F);
}

TEST(Build, TheOtherDialect) {
  const std::string gpu =
      R"(<gpu dev="{0}" sm="94" gcn="gfx942" arch="38911" rank="{0}" gdr="1">
    <xgmi target="0000:0{1}:00.0" count="2" tclass="0x120000"/></gpu>)";
  const auto filled = [&](int dev, int peer) { return formatArgs(gpu, fmt::make_format_args(dev, peer)); };
  const System system = systemOf(cpu(pci("0000:01:00.0", filled(0, 2)) + pci("0000:02:00.0", filled(1, 1))), "2");
  ASSERT_EQ(system.count(NodeKind::Gpu), 2);
  const NodeId gpu0 = system.all(NodeKind::Gpu)[0];
  const NodeId gpu1 = system.all(NodeKind::Gpu)[1];
  EXPECT_EQ(between(system, gpu0, gpu1, LinkType::Nvl), 96.0F);
  EXPECT_EQ(system.at(gpu1).gpu.gcn, "gfx942");
}

/// A switch of two levels as Broadcom's show themselves, with a GPU and a NIC below the lower ones.
std::string twoLevels(std::string_view upper, std::string_view lower) {
  return cpu(pci("0000:10:00.0",
                 pci("0000:11:00.0", pci("0000:12:00.0", kGpu), lower) +
                     pci("0000:13:00.0", pci("0000:14:00.0", R"(<nic><net name="a" dev="0" speed="1"/></nic>)"), lower) +
                     pci("0000:15:00.0", "", R"(class="0x060400")"),
                 upper));
}

TEST(Build, BroadcomSwitchesThatShowTwoLevelsAreOne) {
  const std::string gen4 = R"(vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" subsystem_device="0xa096")";
  const std::string gen5 = R"(vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x0005")";
  const std::string gen5Lower = R"(vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x1005")";
  for (const auto& [upper, lower] : {std::pair(gen4, gen4), std::pair(gen5, gen5Lower)}) {
    const System system = systemOf(twoLevels(upper, lower));
    ASSERT_EQ(system.count(NodeKind::Pci), 2);
    const NodeId merged = system.all(NodeKind::Pci)[0];
    EXPECT_EQ(between(system, only(system, NodeKind::Gpu), merged, LinkType::Pci), 24.0F);
    EXPECT_EQ(between(system, merged, only(system, NodeKind::Nic), LinkType::Pci), 24.0F);
    EXPECT_EQ(system.at(system.at(merged).links.back()).to, only(system, NodeKind::Cpu)) << "the link up comes last";
    EXPECT_EQ(system.at(merged).links.size(), 4u);
  }
  EXPECT_EQ(systemOf(twoLevels(gen5, gen5)).count(NodeKind::Pci), 4) << "not a lower part";
  EXPECT_EQ(systemOf(twoLevels("", "")).count(NodeKind::Pci), 4);
}

TEST(Build, LinksBetweenSwitches) {
  const System system = systemOf(cpu(pci("0000:02:00.0", R"(<pcilink target="0000:04:00.0"/><pcilink target="0000:99:00.0"/>)") +
                                     pci("0000:04:00.0", R"(<pcilink target="0000:02:00.0"/>)")));
  ASSERT_EQ(system.count(NodeKind::Pci), 2);
  EXPECT_EQ(between(system, system.all(NodeKind::Pci)[0], system.all(NodeKind::Pci)[1], LinkType::Loc), kLocalGBps);
}

TEST(Build, RefusesWhatMakesNoSense) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {cpu(pci("0000:01:00.0", R"(<gpu dev="0" sm="eighty" rank="0"/>)")), "sm=\"eighty\"; expected a whole number"},
      {cpu("<pci busid=\"0000:01:00.0\" link_width=\"-4\"/>"), "t.xml:2: <pci busid=\"0000:01:00.0\">: link_width=\"-4\"; expected"},
      {cpu("<pci busid=\"0000:01:00.0\" link_speed=\"fast\"/>"), "link_speed=\"fast\"; expected a speed such as"},
      {cpu("<pci/>"), "the attribute busid is missing; expected a PCI address"},
      {cpu(pci("0000:01:00.0", R"(<nic><net dev="0" speed="-100000"/></nic>)")), "speed=\"-100000\"; expected a whole number from -1"},
      {cpu("", "arch=\"arm64\""), "the attribute numaid is missing"},
      {cpu("", "numaid=\"0\" arch=\"arm64\" affinity=\"xyz\""), "affinity=\"xyz\"; expected a mask of CPUs"},
      {cpu("") + cpu(""), "numaid=\"0\"; expected a number that no other <cpu> of the host has"},
      {cpu(pci("0000:01:00.0", kGpu) + pci("0000:01:00.0", R"(<gpu dev="1" sm="80" rank="1"/>)")), "has the same busid"},
      {cpu(pci("0000:01:00.0", kGpu) + pci("0000:02:00.0", kGpu)), "rank=\"0\"; expected a rank that no other GPU has"},
      {cpu(pci("0000:01:00.0", R"(<gpu dev="0" sm="80" rank="0"><nvlink target="x" count="many" tclass="0x068000"/></gpu>)")),
       "count=\"many\""},
      {cpu(pci("0000:01:00.0", R"(<gpu dev="0" sm="80" rank="0"><nvlink count="1" tclass="0x030200"/></gpu>)")), "target is missing"},
      {cpu(pci("0000:01:00.0", kGpu) + pci("0000:02:00.0", R"(<gpu dev="1" sm="80" rank="1">
         <nvlink target="0000:01:00.0" count="1" tclass="0x030200"/></gpu>)")),
       "t.xml:3: <nvlink target=\"0000:01:00.0\">: GPU1 states a link to GPU0, which states none back"},
      {cpu(pci("0000:01:00.0", R"(<nic><net dev="0" guid="xyz"/></nic>)")), "guid=\"xyz\"; expected a hexadecimal number"},
      {cpu(pci("0000:01:00.0", R"(<nic><net dev="0" latency="soon"/></nic>)")), "latency=\"soon\"; expected a number"},
      {cpu("", "numaid=\"0\" host_hash=\"0x5\""), "no <cpu> has host_hash=\"0x0\""},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_NE(refusal(text).find(expected), std::string::npos) << refusal(text) << " for " << expected;
  EXPECT_NE(refusal("", "3").find("version=\"3\"; expected a whole number from 1 to 2"), std::string::npos) << refusal("", "3");
  EXPECT_NE(buildSystem(*parseXml("t.xml", "<graphs version=\"1\"/>"), 0).error().text().find("expected <system version=\"1\">"),
            std::string::npos);
}

TEST(Build, BoundsWhatAHostileFileCanAskFor) {
  std::string cpus;
  for (int i = 0; i < 257; ++i) cpus += format("<cpu numaid=\"{}\"/>", i);
  EXPECT_NE(refusal(cpus).find("<cpu numaid=\"256\">: more than 256 CPUs in a host"), std::string::npos) << refusal(cpus);
  std::string bridges;
  for (int i = 0; i < 4096; ++i) bridges += pci(format("0000:{:02x}:{:02x}.0", i >> 8, i & 0xff), "");
  EXPECT_NE(refusal(cpu(bridges)).find("more than 4096 CPUs, switches, GPUs and NICs"), std::string::npos) << refusal(cpu(bridges));
}

TEST(Build, OfTwoNetsOfOneNumberTheSecondIsOutOfReach) {
  const auto gpu = [](int dev) {
    return pci(format("0000:0{}:00.0", dev + 1),
               format(R"(<gpu dev="{0}" sm="90" rank="{0}" gdr="1"><c2c bw="44712" count="10"/></gpu>)", dev));
  };
  const auto nic = [](std::string_view busId) {
    return pci(busId, R"(<nic><net name="n" dev="0" speed="100000" port="1" guid="0x1" gdr="1"/></nic>)", "class=\"0x020700\"");
  };
  auto built = build(cpu(gpu(0) + gpu(1) + nic("0000:09:00.0") + nic("0000:0a:00.0"), "numaid=\"0\" arch=\"arm64\""));
  ASSERT_TRUE(built.has_value()) << built.error().text();
  EXPECT_NE(std::ranges::find_if(built->notes, [](const std::string& note) { return note.find("the same dev") != std::string::npos; }),
            built->notes.end());
  System& system = built->system;
  system.ranks = 4;
  const auto paths = computePaths(system, {});
  ASSERT_TRUE(paths.has_value()) << paths.error().text();
  for (const NodeId from : system.all(NodeKind::Gpu)) {
    for (const NodeId to : system.all(NodeKind::Net)) {
      for (const Path& path : {paths->get(from, to), paths->get(to, from)})
        EXPECT_EQ(path.type == PathType::Dis, path.count == 0) << pathTypeName(path.type) << " over nothing";
    }
  }
}

TEST(Build, AWidthThatTheKernelDoesNotKnowIsNone) {
  const std::string gpuAt = format("<pci busid=\"0000:01:00.0\" link_speed=\"16 GT/s\" link_width=\"{}\">{}</pci>", 255, kGpu);
  const System unknown = systemOf(cpu(gpuAt));
  const System usual = systemOf(cpu(pci("0000:01:00.0", kGpu)));
  ASSERT_EQ(unknown.links.size(), usual.links.size());
  for (size_t i = 0; i < usual.links.size(); ++i) EXPECT_EQ(unknown.links[i].GBps, usual.links[i].GBps);
}

TEST(Build, SaysWhatDetectionHasToAdd) {
  const auto built = build(cpu(pci("0000:01:00.0", "", R"(class="0x030200")") + pci("0000:02:00.0", "", R"(class="0x020700")") +
                                   "<pci busid=\"0000:03:00.0\"><gpu dev=\"0\" rank=\"0\">"
                                   "<nvlink target=\"1\" count=\"1\" tclass=\"switch\"/></gpu></pci><fan/>"
                                   "<nic><net dev=\"0\" speed=\"-1\"/><net dev=\"1\"/></nic>",
                               "numaid=\"0\""));
  ASSERT_TRUE(built.has_value());
  std::string all;
  for (const std::string& note : built->notes) all += note + "\n";
  for (const char* expected : {"is a GPU by its class, but has no <gpu>", "is a NIC by its class", "sm is missing",
                               "tclass=\"switch\" is no GPU's, CPU's or NVSwitch's",
                               "speed is not known: taken for 10000 Mbit/s", "speed is missing: taken for 10000 Mbit/s", "gdr is missing",
                               "arch=\"\"", "link_speed is missing", "unknown element below <cpu>"}) {
    EXPECT_NE(all.find(expected), std::string::npos) << expected << " in\n" << all;
  }
}

TEST(Build, EveryFileGivesTheSameSystemAgainWhenItIsWritten) {
  for (const std::string& file : test::filesOf("", ".xml")) {
    const auto read = readXml(file + ".xml");
    ASSERT_TRUE(read.has_value());
    const auto again = parseXml("again", writeXml(read->root));
    const auto* first = read->root.child("cpu");
    ASSERT_NE(first, nullptr) << file;
    const uint64_t hash = findHex(*read, *first, "host_hash")->value_or(0);
    const auto built = buildSystem(*read, hash);
    const auto rebuilt = buildSystem(*again, hash);
    ASSERT_TRUE(built.has_value()) << built.error().text();
    ASSERT_TRUE(rebuilt.has_value());
    EXPECT_EQ(test::describe(built->system), test::describe(rebuilt->system)) << file;
    EXPECT_GT(built->system.count(NodeKind::Cpu), 0) << file;
  }
}

}  // namespace
}  // namespace tutti::topo::build_test
