#include "topo/assemble.h"

#include <gtest/gtest.h>

#include "topo/data.h"
#include "topo/same.h"

namespace tutti::topo::assemble_test {
namespace {

constexpr uint64_t kHash = 0x1000;

UsedHost allGpus(const Document& machine, uint64_t hash, int firstRank) {
  UsedHost host{.hostHash = hash, .gpus = {}};
  const std::vector<int> devs = *gpuDevs(machine);
  for (const int dev : devs) host.gpus.push_back({.dev = dev, .rank = firstRank++});
  return host;
}

/// What the ranks of these hosts would get by writing their parts and fusing them in order of rank.
Element fuseParts(const Document& machine, const std::vector<UsedHost>& hosts) {
  Element fused;
  for (const UsedHost& host : hosts) {
    for (const UsedGpu& gpu : host.gpus) {
      const auto part = partOfRank(machine, host.hostHash, gpu);
      EXPECT_TRUE(part.has_value());
      EXPECT_TRUE(fuse(fused, part->root).ok());
    }
  }
  return fused;
}

TEST(Assemble, ArrangingIsFusingThePartsOfAllRanks) {
  int compared = 0;
  for (const std::string& file : test::filesOf("", ".xml")) {
    const auto machine = readXml(file + ".xml");
    ASSERT_TRUE(machine.has_value());
    if (gpuDevs(*machine)->empty()) continue;
    const UsedHost first = allGpus(*machine, kHash, 0);
    const std::vector<UsedHost> hosts = {first, allGpus(*machine, kHash + 1, static_cast<int>(first.gpus.size()))};
    const auto arranged = arrange(*machine, hosts);
    ASSERT_TRUE(arranged.has_value()) << arranged.error().text();
    std::string where;
    EXPECT_TRUE(test::areSame(arranged->root, fuseParts(*machine, hosts), where)) << file << ": " << where;
    ++compared;
  }
  EXPECT_GE(compared, 28);
}

TEST(Assemble, GivesTheTreeThatTheReferenceDumps) {
  int compared = 0;
  for (const std::string& file : test::filesOf("/expected", ".fused.xml")) {
    std::string source = file;
    source.erase(source.rfind("/expected"), std::string("/expected").size());
    const auto machine = readXml(source + ".xml");
    const auto expected = readXml(file + ".fused.xml");
    ASSERT_TRUE(machine.has_value() && expected.has_value());
    const std::vector<UsedHost> hosts = {allGpus(*machine, kHash, 0)};
    std::string where;
    EXPECT_TRUE(test::areSame(arrange(*machine, hosts)->root, expected->root, where)) << file << ": " << where;
    ++compared;
  }
  EXPECT_GE(compared, 11);
}

TEST(Assemble, KeepsOnlyWhatLeadsToUsedGpusAndNets) {
  const auto machine = parseXml("t.xml", R"(<system version="1"><cpu numaid="0">
    <pci busid="0000:01:00.0"><pci busid="0000:02:00.0"><gpu dev="0"/></pci><pci busid="0000:03:00.0"><gpu dev="1"/></pci></pci>
    <pci busid="0000:04:00.0" class="0x060400"/>
    <pci busid="0000:05:00.0"><nic><net name="a" dev="0"/></nic></pci></cpu>
    <cpu numaid="1"><pci busid="0000:06:00.0"><gpu dev="2"/></pci></cpu></system>)");
  ASSERT_TRUE(machine.has_value());
  const UsedHost host{.hostHash = 7, .gpus = {{.dev = 1, .rank = 0}}};
  const auto used = arrange(*machine, {&host, 1});
  ASSERT_TRUE(used.has_value());
  ASSERT_EQ(used->root.children.size(), 1u);
  const Element& cpu = used->root.children[0];
  EXPECT_EQ(*cpu.find("host_hash"), "0x7");
  ASSERT_EQ(cpu.children.size(), 2u);
  EXPECT_EQ(*cpu.children[0].children[0].children[0].find("rank"), "0");
  EXPECT_EQ(*cpu.children[1].find("busid"), "0000:05:00.0");
}

TEST(Assemble, RefusesDevsThatAreNotThereOrTwice) {
  const auto twice = parseXml("t.xml", "<system><cpu>\n<pci><gpu dev=\"3\"/></pci>\n<pci><gpu dev=\"3\"/></pci></cpu></system>");
  EXPECT_EQ(gpuDevs(*twice).error().text(),
            "t.xml:3: <gpu dev=\"3\">: dev=\"3\"; expected a number that no other GPU has (line 2 has it too)");
  const auto one = parseXml("t.xml", "<system><cpu><pci><gpu dev=\"3\"/></pci></cpu></system>");
  const auto part = partOfRank(*one, 0, {.dev = 4, .rank = 1});
  ASSERT_FALSE(part.has_value());
  EXPECT_NE(part.error().text().find("no <gpu dev=\"4\">, which rank 1 is to use"), std::string::npos);
}

TEST(Assemble, FusingRefusesDifferentRoots) {
  Element into = parseXml("a", "<system version=\"1\"/>")->root;
  EXPECT_FALSE(fuse(into, parseXml("b", "<system version=\"2\"/>")->root).ok());
}

}  // namespace
}  // namespace tutti::topo::assemble_test
