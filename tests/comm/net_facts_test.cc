// A machine with the devices of a network as its nets, as hosts compare it.
#include "comm/net_facts.h"

#include <gtest/gtest.h>

#include "comm/said_network.h"

namespace tutti::comm::net_facts_test {
namespace {

using transport::net::Properties;

Properties net(const std::string& name, uint64_t guid, int64_t speedMbps = 100'000) { return saidNet(name, guid, speedMbps); }

machine::Machine machineOf(const std::string& nets) {
  auto document = topo::parseXml("host", "<system version=\"1\"><cpu numaid=\"0\" affinity=\"f\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
                                         "familyid=\"6\" modelid=\"85\">" + nets + "</cpu></system>");
  EXPECT_TRUE(document) << document.error().text();
  return {.document = *std::move(document),
          .hash = 1,
          .gpus = {},
          .files = std::make_shared<topo::detect::RecordedFiles>(topo::detect::Answers{}, topo::detect::Answers{}),
          .notes = {}};
}

std::string xmlOf(const machine::Machine& machine, std::vector<Properties> nets) {
  const auto whole = withNetsOf(machine, SaidNetwork(std::move(nets)));
  return whole ? topo::writeXml(whole->root) : whole.error().text();
}

TEST(NetFacts, TheDevicesOfTheNetworkAreTheNets) {
  const std::string xml = xmlOf(machineOf(""), {net("a", 7), net("b", 9, 25'000)});
  EXPECT_NE(xml.find("<net name=\"a\" dev=\"0\" latency=\"0\" speed=\"100000\" port=\"1\" guid=\"0x1\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("<net name=\"b\" dev=\"1\" latency=\"0\" speed=\"25000\" port=\"1\" guid=\"0x2\""), std::string::npos) << xml;
  EXPECT_EQ(xmlOf(machineOf(""), {net("a", 7), net("", 0)}), "device 1 does not answer");
}

/// No two NICs have the same GUID; hosts with the same NICs have the same document. Which ports are one chip's is kept.
TEST(NetFacts, GuidsAreNumbered) {
  const machine::Machine machine = machineOf("");
  EXPECT_EQ(xmlOf(machine, {net("a", 70), net("b", 71), net("c", 70)}), xmlOf(machine, {net("a", 9), net("b", 4), net("c", 9)}));
  EXPECT_NE(xmlOf(machine, {net("a", 70), net("b", 71), net("c", 70)}), xmlOf(machine, {net("a", 9), net("b", 4), net("c", 4)}));
}

/// What a file says of a net comes first, but for its number; nets that nobody can send over go, and so does one that stands twice.
TEST(NetFacts, AFilePlacesNetsAndInventsNone) {
  const std::string stated =
      "<nic><net name=\"ghost\" dev=\"0\" speed=\"400000\"/><net name=\"a\" dev=\"5\" speed=\"200000\" guid=\"0x33\"/>"
      "<net name=\"a\" dev=\"6\" speed=\"200000\"/></nic>";
  const std::string xml = xmlOf(machineOf(stated), {net("a", 7)});
  EXPECT_EQ(xml.find("ghost"), std::string::npos) << xml;
  EXPECT_NE(xml.find("<net name=\"a\" dev=\"0\" speed=\"200000\" guid=\"0x1\""), std::string::npos) << xml;
  EXPECT_EQ(xml.find("<net", xml.find("<net") + 1), std::string::npos) << xml;
}

}  // namespace
}  // namespace tutti::comm::net_facts_test
