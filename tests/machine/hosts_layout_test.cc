#include "machine/hosts_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "machine/played.h"

namespace tutti::machine::hosts_layout_test {
namespace {

/// Two NUMA nodes; `nets` by NUMA node: how many NICs of 100 Gb/s it has. Devices are counted over both.
topo::Document hostWith(std::vector<int> nets, const std::string& speed = "100000") {
  std::string text = "<system version=\"1\">";
  int dev = 0;
  for (size_t numa = 0; numa < nets.size(); ++numa) {
    text += format("<cpu numaid=\"{}\" affinity=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">", numa,
                   numa + 1);
    for (int i = 0; i < nets[numa]; ++i, ++dev)
      text += format(
          "<pci busid=\"0000:{:x}{:x}:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><nic><net name=\"n{}\" "
          "dev=\"{}\" speed=\"{}\" port=\"1\" guid=\"0x{}\" maxconn=\"64\" gdr=\"0\"/></nic></pci>",
          numa + 1, i, dev, dev, speed, dev + 1);
    text += "</cpu>";
  }
  auto parsed = topo::parseXml("host", text + "</system>");
  EXPECT_TRUE(parsed) << parsed.error().text();
  return parsed ? *std::move(parsed) : topo::Document();
}

/// `ranks` of each NUMA node on each host, ranks in order of host, then of NUMA node.
std::vector<HostRanks> hostsOf(const std::vector<const topo::Document*>& machines, const std::vector<int>& ranks) {
  std::vector<HostRanks> hosts;
  int32_t rank = 0;
  for (const topo::Document* machine : machines) {
    HostRanks& host = hosts.emplace_back(HostRanks{machine, reinterpret_cast<uint64_t>(machine), {}});
    for (size_t numa = 0; numa < ranks.size(); ++numa)
      for (int i = 0; i < ranks[numa]; ++i) host.ranks.push_back({rank++, -1, static_cast<int32_t>(numa), -1});
  }
  return hosts;
}

/// Every ring passes all ranks once, those of a host beside each other. The doors of each host by track: the device that it is entered
/// by, and left by.
std::vector<std::vector<std::pair<int, int>>> doorsOf(const HostsLayout& found, std::span<const HostRanks> hosts) {
  std::vector<int> hostOf(static_cast<size_t>(found.layout.ranks()), -1);
  for (size_t h = 0; h < hosts.size(); ++h)
    for (const RankOnHost& rank : hosts[h].ranks) hostOf[static_cast<size_t>(rank.rank)] = static_cast<int>(h);
  std::vector<std::vector<std::pair<int, int>>> doors;
  for (int32_t track = 0; track < found.layout.tracks(); ++track) {
    auto& own = doors.emplace_back(hosts.size(), std::pair{-1, -1});
    const algo::LayoutView view = found.layout.view(Rank(0), Rank(0), ChannelId(track));
    std::set<int32_t> seen;
    int crossings = 0;
    for (int32_t i = 0; i < found.layout.ranks(); ++i) {
      const Rank from = view.ring.at(i);
      const Rank to = view.ring.at((i + 1) % found.layout.ranks());
      EXPECT_TRUE(seen.insert(from.value).second) << "rank " << from.value << " twice";
      const int here = hostOf[static_cast<size_t>(from.value)];
      const int there = hostOf[static_cast<size_t>(to.value)];
      if (here == there) continue;
      ++crossings;
      own[static_cast<size_t>(here)].second = found.layout.netsOf(from, ChannelId(track)).out;
      own[static_cast<size_t>(there)].first = found.layout.netsOf(to, ChannelId(track)).in;
    }
    EXPECT_EQ(crossings, static_cast<int>(hosts.size())) << "ranks of a host stand beside each other";
  }
  return doors;
}

TEST(HostsLayout, EachNetCarriesARing) {
  for (const auto& [nets, ranks] :
       {std::pair<std::vector<int>, std::vector<int>>{{1, 1}, {2, 2}}, {{2, 2}, {3, 3}}, {{2, 1}, {1, 4}}, {{4, 0}, {5, 0}}}) {
    const topo::Document machine = hostWith(nets);
    const std::vector<HostRanks> hosts = hostsOf({&machine, &machine, &machine}, ranks);
    const auto found = findHostsLayout(hosts, {});
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_EQ(found->searches, 1) << "all hosts are alike";
    std::vector<std::set<int>> in(3);
    std::vector<std::set<int>> out(3);
    for (const auto& track : doorsOf(*found, hosts)) {
      for (size_t h = 0; h < 3; ++h) {
        in[h].insert(track[h].first);
        out[h].insert(track[h].second);
      }
    }
    for (size_t h = 0; h < 3; ++h) {
      EXPECT_EQ(in[h].size(), static_cast<size_t>(nets[0] + nets[1])) << nets[0] << "+" << nets[1] << " nets, host " << h;
      EXPECT_EQ(out[h], in[h]);
    }
    EXPECT_TRUE(found->layout.spreadsOverNets());
  }
}

/// A rank sends by the net beside it: of a channel that leaves by net 1, the last rank is on NUMA node 1.
TEST(HostsLayout, ARingLeavesBesideItsNet) {
  const topo::Document machine = hostWith({1, 1});
  const std::vector<HostRanks> hosts = hostsOf({&machine, &machine}, {2, 2});
  const auto found = findHostsLayout(hosts, {});
  ASSERT_TRUE(found) << found.error().text();
  for (int32_t track = 0; track < found->layout.tracks(); ++track) {
    const algo::LayoutView view = found->layout.view(Rank(0), Rank(0), ChannelId(track));
    for (int32_t i = 0; i < 8; ++i) {
      const Rank from = view.ring.at(i);
      const Rank to = view.ring.at((i + 1) % 8);
      if (from.value / 4 == to.value / 4) continue;
      EXPECT_EQ(found->layout.netsOf(from, ChannelId(track)).out, from.value % 4 / 2) << "rank " << from.value << ", track " << track;
      EXPECT_EQ(found->layout.netsOf(to, ChannelId(track)).in, to.value % 4 / 2) << "rank " << to.value << ", track " << track;
    }
  }
  // What follows in no ring crosses at net 0 on both sides: on a fabric of rails nets of different numbers do not meet.
  const algo::LayoutView view = found->layout.view(Rank(0), Rank(0), ChannelId(0));
  int32_t doors = 0;
  for (const bool sends : {true, false}) {
    for (int32_t i = 0; i < 8; ++i) {
      const Rank from = view.ring.at(i);
      const Rank next = view.ring.at((i + 1) % 8);
      doors += found->layout.netBetween(from, next, ChannelId(0), sends) != 0 ? 1 : 0;
      for (int32_t far = 2; far < 8; ++far)
        EXPECT_EQ(found->layout.netBetween(from, view.ring.at((i + far) % 8), ChannelId(0), sends), 0) << from.value << " + " << far;
    }
  }
  EXPECT_GT(doors, 0) << "the ring itself uses net 1";
  for (int32_t rank = 0; rank < 8; ++rank)
    EXPECT_EQ(found->layout.netsOf(Rank(rank), ChannelId(0)).out, rank % 4 / 2) << rank;
}

TEST(HostsLayout, OneNetMakesOneTrackInOrderOfRanks) {
  const topo::Document machine = hostWith({1});
  const std::vector<HostRanks> hosts = hostsOf({&machine, &machine}, {3});
  const auto found = findHostsLayout(hosts, {});
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->layout.rings(), (std::vector<std::vector<int32_t>>{{0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(found->layout.nodes(), 2);
  EXPECT_FALSE(found->layout.spreadsOverNets());
}

/// With the same nets, but bound nowhere: all ranks of the host stand in one place.
TEST(HostsLayout, RanksThatMayRunAnywhereAreOneStop) {
  const topo::Document machine = hostWith({1, 1});
  std::vector<HostRanks> hosts = hostsOf({&machine, &machine}, {2, 2});
  hosts[1].ranks[2].numa = -1;
  const auto found = findHostsLayout(hosts, {});
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->searches, 2);
  (void)doorsOf(*found, hosts);
}

TEST(HostsLayout, HostsThatDifferAgreeAboutTheirRings) {
  const topo::Document two = hostWith({1, 1});
  const topo::Document three = hostWith({2, 1});
  std::vector<HostRanks> hosts = hostsOf({&two, &three, &two}, {2, 1});
  hosts[1].ranks.pop_back();  // a host with fewer ranks
  for (RankOnHost& rank : hosts[2].ranks) --rank.rank;
  const auto found = findHostsLayout(hosts, {});
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->searches, 2);
  for (const auto& track : doorsOf(*found, hosts)) {
    EXPECT_LT(track[0].second, 2);
    EXPECT_LT(track[2].first, 2);
  }
  EXPECT_EQ(found->layout.nodes(), 1) << "hosts of several sizes are no grid";
}

TEST(HostsLayout, CrossNicDecidesWhetherARingChangesItsRail) {
  const topo::Document machine = hostWith({1, 1});
  const std::vector<HostRanks> hosts = hostsOf({&machine, &machine}, {2, 2});
  Settings settings;
  settings.search.crossNic = 0;
  const auto never = findHostsLayout(hosts, settings);
  ASSERT_TRUE(never) << never.error().text();
  for (const auto& track : doorsOf(*never, hosts))
    for (const auto& [in, out] : track) EXPECT_EQ(in, out);
  settings.search.crossNic = 1;
  const auto always = findHostsLayout(hosts, settings);
  ASSERT_TRUE(always) << always.error().text();
  bool changes = false;
  for (const auto& track : doorsOf(*always, hosts))
    for (const auto& [in, out] : track) changes = changes || in != out;
  EXPECT_TRUE(changes) << "a ring that passes both NUMA nodes once ends elsewhere than it began";
}

/// What is no edge of the ring, as messages: by one net for each NUMA node, or by all.
TEST(HostsLayout, ThePolicySaysHowManyNetsServeANumaNode) {
  const topo::Document machine = hostWith({3});
  const std::vector<HostRanks> hosts = hostsOf({&machine, &machine}, {8});
  for (const int most : {1, 2, 3, 0, -1}) {
    Settings settings;
    settings.paths.netsPerGpu = most;
    const auto found = findHostsLayout(hosts, settings);
    ASSERT_TRUE(found) << found.error().text();
    std::set<int> used;
    for (int32_t rank = 1; rank < 7; ++rank) used.insert(found->layout.netsOf(Rank(rank), ChannelId(0)).out);
    EXPECT_EQ(used.size(), most > 0 ? static_cast<size_t>(most) : 3u) << most;
  }
}

TEST(HostsLayout, ManyRanksAndHostsAreSearchedOnce) {
  const topo::Document machine = hostWith({4, 4});
  const std::vector<HostRanks> hosts = hostsOf(std::vector<const topo::Document*>(64, &machine), {56, 56});
  const auto found = findHostsLayout(hosts, {});
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->searches, 1);
  EXPECT_EQ(found->layout.ranks(), 64 * 112);
  EXPECT_EQ(found->layout.nodes(), 64);
}

/// GPUs: every rail of two DGX, for the GPU that it is next to.
TEST(HostsLayout, GpusCrossByTheNetsThatTheSearchFound) {
  const Machine machine = test::machineOf("nvidia-dgxh100-h100x8");
  std::vector<HostRanks> hosts(2);
  for (int32_t h = 0; h < 2; ++h) {
    hosts[static_cast<size_t>(h)] = {&machine.document, machine.hash, {}};
    for (int32_t g = 0; g < 8; ++g) hosts[static_cast<size_t>(h)].ranks.push_back({h * 8 + g, g, -1, -1});
  }
  const auto found = findHostsLayout(hosts, {});
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->searches, 1);
  std::set<int> used;
  for (const auto& track : doorsOf(*found, hosts)) used.insert(track[0].second);
  EXPECT_EQ(used.size(), 8u);
  EXPECT_GT(found->layout.ringGBps(found->layout.tracks()), 0);
}

topo::Document statedRings(const std::string& channels, int count) {
  auto file = topo::parseXml("rings.xml", format("<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"{}\" "
                                                 "speedintra=\"1\" speedinter=\"1\" typeintra=\"SYS\" typeinter=\"PIX\" "
                                                 "samechannels=\"0\">{}</graph></graphs>",
                                                 count, channels));
  EXPECT_TRUE(file) << file.error().text();
  return *std::move(file);
}

// Dev n of the file is the n-th rank of each host; rings enter and leave by the nets that they begin and end with.
TEST(HostsLayout, AFileStatesTheRingsOfEveryHost) {
  const topo::Document machine = hostWith({2, 1});
  const std::vector<HostRanks> hosts = hostsOf({&machine, &machine}, {2, 1});
  const topo::Document file = statedRings(
      R"(<channel><net dev="2"/><gpu dev="0"/><gpu dev="2"/><gpu dev="1"/><net dev="2"/></channel>)"
      R"(<channel><net dev="0"/><gpu dev="1"/><gpu dev="0"/><gpu dev="2"/><net dev="1"/></channel>)",
      2);
  const auto found = findStatedLayout(hosts, file);
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->layout.rings(), (std::vector<std::vector<int32_t>>{{0, 2, 1, 3, 5, 4}, {1, 0, 2, 4, 3, 5}}));
  const auto doors = doorsOf(**found, hosts);
  EXPECT_EQ(doors, (std::vector<std::vector<std::pair<int, int>>>{{{2, 2}, {2, 2}}, {{0, 1}, {0, 1}}}));
}

TEST(HostsLayout, AFileForOtherNumbersOfRanksStatesNothing) {
  const topo::Document machine = hostWith({1});
  const topo::Document file = statedRings(R"(<channel><net dev="0"/><gpu dev="0"/><gpu dev="1"/><net dev="0"/></channel>)", 1);
  for (const int ranks : {1, 3}) {
    const auto found = findStatedLayout(hostsOf({&machine, &machine}, {ranks}), file);
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_FALSE(found->has_value());
  }
}

TEST(HostsLayout, AFileThatDoesNotCrossHostsIsRefused) {
  const topo::Document machine = hostWith({1});
  const std::vector<HostRanks> hosts = hostsOf({&machine, &machine}, {2});
  const auto refusal = [&](const std::string& channel) {
    const auto found = findStatedLayout(hosts, statedRings(channel, 1));
    return found ? std::string("accepted") : found.error().text();
  };
  EXPECT_NE(refusal(R"(<channel><gpu dev="0"/><gpu dev="1"/></channel>)").find("0 <net>; expected 2, as the communicator leaves this host"),
            std::string::npos);
  const std::string unknown = refusal(R"(<channel><net dev="7"/><gpu dev="0"/><gpu dev="1"/><net dev="0"/></channel>)");
  EXPECT_NE(unknown.find("the host of rank 0"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("dev=\"7\""), std::string::npos) << unknown;
}

TEST(HostsLayout, WhatDoesNotFitIsNamed) {
  const auto textOf = [](const topo::Document& machine, const std::vector<int>& ranks, auto&& change) {
    std::vector<HostRanks> hosts = hostsOf({&machine, &machine}, ranks);
    change(hosts);
    const auto found = findHostsLayout(hosts, {});
    return found ? std::string("found") : found.error().text();
  };
  const auto same = [](std::vector<HostRanks>&) {};
  EXPECT_NE(textOf(hostWith({0, 0}), {1, 1}, same).find("no network"), std::string::npos);
  EXPECT_NE(textOf(hostWith({1}), {1, 1}, same).find("numaid=\"1\""), std::string::npos);
  const auto mixed = [](std::vector<HostRanks>& hosts) { hosts[1].ranks[0].dev = 0; };
  EXPECT_NE(textOf(hostWith({1}), {2}, mixed).find("rank 2 computes with another kind"), std::string::npos);
  const auto twice = [](std::vector<HostRanks>& hosts) { hosts[1].ranks[0].rank = 1; };
  EXPECT_NE(textOf(hostWith({1}), {2}, twice).find("given twice"), std::string::npos);
  EXPECT_NE(textOf(hostWith({1}, "fast"), {2}, same).find("speed=\"fast\""), std::string::npos);
}

}  // namespace
}  // namespace tutti::machine::hosts_layout_test
