#include "topo/host_devices.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "topo/data.h"

namespace tutti::topo::host_devices_test {
namespace {

/// NUMA nodes with these affinity masks and distances.
Document hostOf(const std::vector<std::pair<std::string, std::string>>& nodes) {
  Document machine{.file = "host.xml", .root = {}};
  machine.root.name = "system";
  machine.root.set("version", "1");
  for (size_t i = 0; i < nodes.size(); ++i) {
    Element& cpu = machine.root.children.emplace_back();
    cpu.name = "cpu";
    cpu.set("numaid", format("{}", i));
    cpu.set("arch", "x86_64");
    cpu.set("vendor", "AuthenticAMD");
    if (!nodes[i].first.empty()) cpu.set("affinity", nodes[i].first);
    if (!nodes[i].second.empty()) cpu.set("distances", nodes[i].second);
  }
  return machine;
}

/// Four NUMA nodes, of which 0 and 2, and 1 and 3, share a socket.
Document twoSockets() {
  return hostOf({{"000f", "0:10,1:32,2:12,3:32"},
                 {"00f0", "0:32,1:10,2:32,3:12"},
                 {"0f00", "0:12,1:32,2:10,3:32"},
                 {"f000", "0:32,1:12,2:32,3:10"}});
}

std::vector<HostDevice> spread(const Document& machine, int count, const std::optional<CpuSet>& allowed = {}) {
  const auto devices = spreadHostDevices(machine, count, allowed);
  EXPECT_TRUE(devices) << devices.error().text();
  return devices ? *devices : std::vector<HostDevice>();
}

TEST(HostDevices, StandOnNumaNodesAndMeetInMemoryOrOverTheLinkBetween) {
  Document machine = twoSockets();
  ASSERT_TRUE(addHostDevices(machine, spread(machine, 8)).ok());
  const auto view = makeHostView(machine);
  ASSERT_TRUE(view) << view.error().text();
  const System& system = view->system;
  ASSERT_EQ(system.count(NodeKind::Host), 8);
  EXPECT_EQ(system.ranks, 8);
  for (const NodeId from : system.all(NodeKind::Host)) {
    for (const NodeId to : system.all(NodeKind::Host)) {
      const Path& path = view->paths.get(from, to);
      const bool isNear = system.at(from).host.rank / 2 == system.at(to).host.rank / 2;
      EXPECT_EQ(path.type, isNear ? PathType::Loc : PathType::Sys);
      EXPECT_EQ(path.count, from == to ? 0 : isNear ? 2 : 3);
      EXPECT_FLOAT_EQ(path.GBps, from == to ? kLocalGBps : isNear ? 20.0F : 16.0F);
    }
  }
  EXPECT_FLOAT_EQ(system.maxGBps, 20);
  // What is written reads back the same.
  const auto again = parseXml("again", writeXml(machine.root));
  ASSERT_TRUE(again);
  const auto second = makeHostView(*again);
  ASSERT_TRUE(second) << second.error().text();
  EXPECT_EQ(second->system.at(second->system.all(NodeKind::Host)[7]).host.cpus, "14-15");
}

TEST(HostDevices, TakeThePlaceOfThoseThatWereThere) {
  auto machine = parseXml("m.xml", R"(<system version="1"><cpu numaid="0" arch="arm64"/><cpu numaid="1" arch="arm64"/></system>)");
  ASSERT_TRUE(machine);
  const HostDevice first[] = {{.rank = 0, .numa = 0, .cpus = {}}, {.rank = 1, .numa = 1, .cpus = {}}};
  const HostDevice second[] = {{.rank = 0, .numa = 1, .cpus = {}}};
  ASSERT_TRUE(addHostDevices(*machine, first).ok());
  ASSERT_TRUE(addHostDevices(*machine, second).ok());
  EXPECT_TRUE(machine->root.children[0].children.empty());
  EXPECT_EQ(machine->root.children[1].children.size(), 1u);
}

TEST(HostDevices, AreSpreadInProportionToTheCpusThatMayBeUsed) {
  const auto numasOf = [](const std::vector<HostDevice>& devices) {
    std::vector<int> numas;
    for (const HostDevice& device : devices) numas.push_back(device.numa);
    return numas;
  };
  const Document even = twoSockets();
  EXPECT_EQ(numasOf(spread(even, 6)), (std::vector<int>{0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(numasOf(spread(even, 1)), (std::vector<int>{0}));
  EXPECT_EQ(spread(even, 0).size(), 16u);
  const Document uneven = hostOf({{"3", ""}, {"fc", ""}});
  EXPECT_EQ(numasOf(spread(uneven, 4)), (std::vector<int>{0, 1, 1, 1}));
  EXPECT_EQ(numasOf(spread(uneven, 3, CpuSet::fromList("0-1,7"))), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(spread(uneven, 2, CpuSet::fromList("0-1,7"))[1].cpus.list(), "7");
  EXPECT_EQ(spread(uneven, 40).size(), 40u);  // more than there are CPUs: they share them
  const std::vector<HostDevice> crowd = spread(hostOf({{"3", ""}}), 5);
  for (const HostDevice& device : crowd) EXPECT_EQ(device.cpus.count(), 1);
  EXPECT_EQ(spread(hostOf({{"ffff,ffffffff", ""}}), 0).size(), 8u) << "no more than 8 unless they are asked for";
}

TEST(HostDevices, NobodyKnowsWhereTheyWouldRun) {
  for (const auto& machine : {hostOf({}), hostOf({{"", ""}}), hostOf({{"zz", ""}})}) {
    const auto devices = spreadHostDevices(machine, 2, {});
    ASSERT_FALSE(devices);
    EXPECT_NE(devices.error().text().find("host.xml: no <cpu> with affinity"), std::string::npos) << devices.error().text();
  }
  EXPECT_FALSE(spreadHostDevices(twoSockets(), 2, CpuSet::fromList("99"))) << "none of its CPUs is allowed";
  EXPECT_FALSE(spreadHostDevices(twoSockets(), kMostHostDevices + 1, {}));
  EXPECT_FALSE(spreadHostDevices(twoSockets(), -1, {}));
  Document machine = twoSockets();
  const HostDevice nowhere[] = {{.rank = 3, .numa = 9, .cpus = {}}};
  EXPECT_NE(addHostDevices(machine, nowhere).text().find("no <cpu numaid=\"9\">, on which rank 3 runs"), std::string::npos);
  EXPECT_NE(makeHostView(machine).error().text().find("no <hostdev>"), std::string::npos);
}

TEST(HostDevices, NonsenseIsRefusedWithItsPlace) {
  const auto refusal = [](const std::string& cpu, const std::string& device) {
    const auto machine =
        parseXml("h.xml", "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" " + cpu + ">\n" + device + "</cpu></system>");
    EXPECT_TRUE(machine);
    const auto view = makeHostView(*machine);
    return view ? std::string() : view.error().text();
  };
  const std::string good = "<hostdev dev=\"0\" rank=\"0\" cpus=\"0-3,8\"/>";
  EXPECT_EQ(refusal("memory=\"1024\" distances=\"0:10,1:21\"", good), "");
  for (const char* bad : {"0:9", "0", "0:10,", "0:10;1:21", "x:10", "-1:10", "0:256", ":"})
    EXPECT_NE(refusal(format("distances=\"{}\"", bad), good).find("h.xml:2: <cpu"), std::string::npos) << bad;
  EXPECT_NE(refusal("memory=\"much\"", good).find("memory=\"much\""), std::string::npos);
  EXPECT_NE(refusal("", good + "\n" + good).find("h.xml:4: <hostdev dev=\"0\">: dev=\"0\"; expected a number that no other"),
            std::string::npos)
      << refusal("", good + "\n" + good);
  EXPECT_NE(refusal("", good + "<hostdev dev=\"1\" rank=\"0\"/>").find("a rank that no other"), std::string::npos);
  EXPECT_NE(refusal("", "<hostdev dev=\"0\" rank=\"0\" cpus=\"a-b\"/>").find("cpus=\"a-b\"; expected a list of CPUs"), std::string::npos);
  EXPECT_NE(refusal("", "<hostdev rank=\"0\"/>").find("dev"), std::string::npos);
}

/// Beside GPUs they are left out: a communicator computes with the ones or the others.
TEST(HostDevices, GpusDoNotSeeThem) {
  auto machine = readXml(test::ownFile("nvidia-dgx1v-v100x8"));
  ASSERT_TRUE(machine);
  const auto request = identicalNodes(*machine, 1, false, {});
  ASSERT_TRUE(request);
  const auto before = makeView(*machine, *request);
  ASSERT_TRUE(before);
  ASSERT_TRUE(addHostDevices(*machine, spread(*machine, 4)).ok());
  const auto after = makeView(*machine, *request);
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_EQ(writeXml(after->xml.root), writeXml(before->xml.root));
}

int around(const Document& machine, const std::vector<int32_t>& order) {
  int sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto distances = parseDistances(*machine.root.children[static_cast<size_t>(order[i])].find("distances"));
    for (const NumaDistance& one : *distances) sum += one.numa == order[(i + 1) % order.size()] ? one.distance : 0;
  }
  return sum;
}

TEST(NumaOrder, NearNodesFollowOneAnother) {
  const Document machine = twoSockets();
  EXPECT_EQ(orderNumaNodes(machine, std::vector<int32_t>{0, 1, 2, 3}), (std::vector<int32_t>{0, 1, 3, 2}));
  EXPECT_EQ(orderNumaNodes(machine, std::vector<int32_t>{2, 0, 1, 3}), (std::vector<int32_t>{2, 0, 1, 3})) << "as good as any";
  EXPECT_EQ(orderNumaNodes(machine, std::vector<int32_t>{1, 0}), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(orderNumaNodes(machine, std::vector<int32_t>{3, -1, 0, 7}).size(), 4u) << "nodes that nobody knows";
  EXPECT_EQ(orderNumaNodes(hostOf({{"1", ""}, {"2", ""}, {"4", ""}, {"8", ""}}), std::vector<int32_t>{3, 1, 0, 2}),
            (std::vector<int32_t>{3, 1, 0, 2}));
  EXPECT_TRUE(orderNumaNodes(machine, {}).empty());
}

/// No order of any is better than what is found, up to the size that is searched whole; beyond it all nodes still come once.
TEST(NumaOrder, IsTheBestOfAll) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 30; ++trial) {
    const size_t nodes = trial < 25 ? 4 + static_cast<size_t>(trial) % 4 : 9 + static_cast<size_t>(trial);
    std::vector<std::pair<std::string, std::string>> all(nodes);
    std::vector<std::vector<int>> far(nodes, std::vector<int>(nodes, 10));
    for (size_t a = 0; a < nodes; ++a)
      for (size_t b = 0; b < a; ++b) far[a][b] = far[b][a] = 11 + static_cast<int>(random() % 30);
    for (size_t a = 0; a < nodes; ++a)
      for (size_t b = 0; b < nodes; ++b) all[a].second += format("{}{}:{}", b == 0 ? "" : ",", b, far[a][b]);
    const Document machine = hostOf(all);
    std::vector<int32_t> natural(nodes);
    std::iota(natural.begin(), natural.end(), 0);
    const std::vector<int32_t> found = orderNumaNodes(machine, natural);
    EXPECT_TRUE(std::is_permutation(found.begin(), found.end(), natural.begin(), natural.end()));
    EXPECT_EQ(found.front(), 0);
    if (nodes > kMostOrdered) continue;
    std::vector<int32_t> order = natural;
    int least = around(machine, order);
    while (std::next_permutation(order.begin() + 1, order.end())) least = std::min(least, around(machine, order));
    EXPECT_EQ(around(machine, found), least);
  }
}

}  // namespace
}  // namespace tutti::topo::host_devices_test
