#include "bootstrap/interfaces.h"

#include <gtest/gtest.h>

namespace tutti::bootstrap::interfaces_test {
namespace {

Interface interface(const std::string& name, std::string_view address, bool isUp = true) { return {name, *parseAddress(address), isUp}; }

const std::vector<Interface> kMachine = {interface("lo", "127.0.0.1"),       interface("lo", "::1"),
                                         interface("docker0", "172.17.0.1"), interface("eth0", "192.0.2.2"),
                                         interface("eth0", "2001:db8::2"),   interface("eth0", "fe80::2"),
                                         interface("eth1", "192.0.3.2"),     interface("eth10", "192.0.4.2"),
                                         interface("ib0", "10.0.0.2"),       interface("eth2", "192.0.5.2", false)};

/// "ib0/10.0.0.2 eth0/…", or "" when nothing can be used.
std::string choose(std::string_view names, Family family = Family::Any, const std::vector<Interface>& all = kMachine) {
  const auto choice = chooseInterfaces(all, names, family);
  if (!choice) {
    EXPECT_EQ(choice.error().code(), Code::InvalidUsage);
    return "";
  }
  std::string text;
  for (const Interface& one : choice->chosen()) {
    std::string address = describe(one.address);
    text += (text.empty() ? "" : " ") + one.name + "/" + address.substr(0, address.rfind(':'));
  }
  return text;
}

TEST(Interfaces, WithoutAListInfiniBandFirstAndSparesNever) {
  EXPECT_EQ(choose(""), "ib0/10.0.0.2 eth0/192.0.2.2 eth0/[2001:db8::2] eth1/192.0.3.2 eth10/192.0.4.2");
  EXPECT_EQ(choose("", Family::V6), "eth0/[2001:db8::2]");
  EXPECT_EQ(choose("", Family::V4), "ib0/10.0.0.2 eth0/192.0.2.2 eth1/192.0.3.2 eth10/192.0.4.2");
}

TEST(Interfaces, DataGoesOverInfiniBandAloneUnlessAListSaysOtherwise) {
  const auto forDataOf = [](std::string_view names, Family family = Family::Any) {
    std::string text;
    for (const Interface& one : forData(*chooseInterfaces(kMachine, names, family), names).chosen())
      text += (text.empty() ? "" : " ") + one.name;
    return text;
  };
  EXPECT_EQ(forDataOf(""), "ib0");
  EXPECT_EQ(forDataOf("", Family::V6), "eth0") << "there is no InfiniBand then";
  EXPECT_EQ(forDataOf("ib,eth1"), "ib0 eth1 eth10");
  EXPECT_EQ(forDataOf("^eth0"), "ib0 eth1 eth10");
}

TEST(Interfaces, SparesWhereThereIsNothingElse) {
  const std::vector<Interface> few = {interface("lo", "127.0.0.1"), interface("docker0", "172.17.0.1"), interface("eth0", "fe80::1")};
  EXPECT_EQ(choose("", Family::Any, few), "docker0/172.17.0.1");
  EXPECT_EQ(choose("", Family::Any, {few[0]}), "lo/127.0.0.1");
  EXPECT_EQ(choose("", Family::Any, {}), "");
}

/// An id has room for nine addresses: one interface with as many must not keep the others out.
TEST(Interfaces, FurtherAddressesOfAnInterfaceComeLast) {
  const std::vector<Interface> all = {interface("br0", "172.30.0.1"), interface("br0:1", "172.30.0.2"), interface("br0", "2001:db8::2"),
                                      interface("br0", "172.30.0.3"), interface("eth0", "192.0.2.2"), interface("eth0", "192.0.2.3")};
  EXPECT_EQ(choose("", Family::Any, all),
            "br0/172.30.0.1 br0/[2001:db8::2] eth0/192.0.2.2 br0:1/172.30.0.2 eth0/192.0.2.3 br0/172.30.0.3");
  EXPECT_EQ(choose("eth,br", Family::V4, all), "eth0/192.0.2.2 br0/172.30.0.1 eth0/192.0.2.3 br0:1/172.30.0.2 br0/172.30.0.3");
}

TEST(Interfaces, AListTakesPrefixesInItsOrder) {
  EXPECT_EQ(choose("eth1,ib"), "eth1/192.0.3.2 eth10/192.0.4.2 ib0/10.0.0.2");
  EXPECT_EQ(choose("lo"), "lo/127.0.0.1 lo/[::1]");
  EXPECT_EQ(choose("docker"), "docker0/172.17.0.1");
  EXPECT_EQ(choose("=eth1"), "eth1/192.0.3.2");
  EXPECT_EQ(choose("=eth"), "");
  EXPECT_EQ(choose("=eth1,eth0", Family::V4), "eth1/192.0.3.2 eth0/192.0.2.2");
  EXPECT_EQ(choose("nothing"), "");
  EXPECT_EQ(choose("eth2"), "") << "it is down";
}

TEST(Interfaces, AListMayExclude) {
  EXPECT_EQ(choose("^ib,eth1"), "eth0/192.0.2.2 eth0/[2001:db8::2]");
  EXPECT_EQ(choose("^=eth1,ib0"), "eth0/192.0.2.2 eth0/[2001:db8::2] eth10/192.0.4.2");
  EXPECT_EQ(choose("^eth,ib"), "docker0/172.17.0.1") << "the usual order among what is left";
}

TEST(Interfaces, TheTableSaysWhy) {
  const auto choice = chooseInterfaces(kMachine, "", Family::V4);
  ASSERT_TRUE(choice);
  std::string table;
  for (const std::string& line : choice->table()) table += line + '\n';
  for (const std::string_view reason : {"chosen", "it is down", "other IP version", "there is a better one"})
    EXPECT_NE(table.find(reason), std::string::npos) << table;
  const Choice forInfiniBand = forData(*choice, "");
  EXPECT_EQ(forInfiniBand.candidates.size(), choice->candidates.size()) << "none is lost";
  EXPECT_EQ(forInfiniBand.candidates[1].refusal, "it would hold up the InfiniBand beside it");
  const auto none = chooseInterfaces(kMachine, "wlan", Family::Any);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().text().find("NCCL_SOCKET_IFNAME=wlan"), std::string::npos) << none.error().text();
  EXPECT_NE(none.error().text().find("does not name it"), std::string::npos) << none.error().text();
}

TEST(Interfaces, FamiliesAreReadAsNcclReadsThem) {
  EXPECT_EQ(parseFamily("AF_INET"), Family::V4);
  EXPECT_EQ(parseFamily("AF_INET6"), Family::V6);
  EXPECT_EQ(parseFamily(""), Family::Any);
  EXPECT_EQ(parseFamily("inet"), Family::Any);
}

TEST(Interfaces, ThisMachineHasALoopback) {
  const auto all = listInterfaces();
  ASSERT_TRUE(all);
  bool hasLoopback = false;
  for (const Interface& one : *all) hasLoopback = hasLoopback || isLoopback(one.address);
  EXPECT_TRUE(hasLoopback);
}

}  // namespace
}  // namespace tutti::bootstrap::interfaces_test
