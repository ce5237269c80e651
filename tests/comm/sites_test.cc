#include "comm/sites.h"

#include <gtest/gtest.h>

#include <cstring>

#include "comm/round_mesh.h"
#include "core/format.h"
#include "core/hash.h"

namespace tutti::comm::sites_test {
namespace {

using play::RoundMesh;
using play::Rounds;

std::string machineNamed(const std::string& name) { return "<system version=\"1\">\n  <cpu numaid=\"" + name + "\"/>\n</system>\n"; }

/// A process for each site; `hosts` says where it is.
class Played {
 public:
  Played(std::vector<Site> sites, const std::vector<int32_t>& hosts) : rounds(sites.size()) {
    for (size_t p = 0; p < sites.size(); ++p) {
      auto roster = std::make_unique<bootstrap::Roster>();
      roster->ranks = static_cast<int32_t>(sites.size());
      for (size_t q = 0; q < sites.size(); ++q) {
        const int32_t host = hosts[q];
        roster->processOf.push_back(static_cast<int32_t>(q));
        roster->processes.push_back(
            {.token = q, .pid = 100 + static_cast<int32_t>(q), .host = host, .ranks = {static_cast<int32_t>(q)}, .addresses = {}});
        if (static_cast<size_t>(host) == roster->hosts.size()) roster->hosts.push_back({format("node{}", host), q, {}});
        roster->hosts[static_cast<size_t>(host)].processes.push_back(static_cast<int32_t>(q));
      }
      roster->ownProcess = static_cast<int32_t>(p);
      roster->ownHost = hosts[p];
      roster->mesh = std::make_shared<RoundMesh>(rounds, static_cast<int32_t>(p));
      rosters.push_back(std::move(roster));
    }
    own = std::move(sites);
  }

  /// What all processes come to: the same, or the test fails.
  std::shared_ptr<const Sites> exchange() {
    std::vector<std::unique_ptr<SitesExchange>> exchanges;
    for (size_t p = 0; p < own.size(); ++p) {
      exchanges.push_back(std::make_unique<SitesExchange>(*rosters[p], own[p]));
      const bool isLast = p + 1 == own.size();
      EXPECT_TRUE(isLast || !exchanges[p]->poll()) << "others are missing";
    }
    std::vector<std::shared_ptr<const Sites>> all(own.size());
    for (int turn = 0; turn < 3; ++turn) {
      for (size_t p = 0; p < own.size(); ++p) {
        const auto outcome = exchanges[p]->poll();
        if (outcome && *outcome) all[p] = **outcome;
      }
    }
    for (const auto& sites : all) {
      if (sites == nullptr) {
        ADD_FAILURE() << "an exchange does not end";
        return nullptr;
      }
      EXPECT_EQ(sites->whyNot, all[0]->whyNot);
      EXPECT_EQ(sites->hashOf, all[0]->hashOf);
      EXPECT_EQ(sites->machines.size(), all[0]->machines.size());
      for (const auto& [hash, machine] : sites->machines)
        EXPECT_EQ(topo::writeXml(machine.root), topo::writeXml(all[0]->machines.at(hash).root));
    }
    return all[0];
  }

  Rounds rounds;
  std::vector<std::unique_ptr<bootstrap::Roster>> rosters;
  std::vector<Site> own;
};

TEST(Sites, HostsThatAreAlikeSendNoXml) {
  const Site site = siteOf(machineNamed("0"), 5);
  Played played({site, site, site, site, site}, {0, 0, 1, 2, 2});
  const auto sites = played.exchange();
  ASSERT_TRUE(sites);
  EXPECT_EQ(sites->whyNot, "");
  EXPECT_EQ(sites->machines.size(), 1u);
  ASSERT_NE(sites->machineOf(3), nullptr);
  EXPECT_EQ(topo::writeXml(sites->machineOf(3)->root), site.xml);
  ASSERT_EQ(played.rounds.rounds.size(), 1u);
  for (const auto& part : played.rounds.rounds[0].parts) EXPECT_EQ(part.size(), 24u);
}

TEST(Sites, EachXmlIsSentOnce) {
  const Site one = siteOf(machineNamed("0"), 5);
  const Site two = siteOf(machineNamed("1"), 5);
  const Site three = siteOf(machineNamed("2"), 5);
  Played played({one, one, two, three, two}, {0, 0, 1, 2, 3});
  const auto sites = played.exchange();
  ASSERT_TRUE(sites);
  EXPECT_EQ(sites->whyNot, "");
  EXPECT_EQ(sites->machines.size(), 3u);
  EXPECT_EQ(topo::writeXml(sites->machineOf(4)->root), two.xml);
  EXPECT_EQ(topo::writeXml(sites->machineOf(3)->root), three.xml);
  ASSERT_EQ(played.rounds.rounds.size(), 2u);
  const std::vector<size_t> wanted = {one.xml.size(), 0, two.xml.size(), three.xml.size(), 0};
  for (size_t p = 0; p < 5; ++p) EXPECT_EQ(played.rounds.rounds[1].parts[p].size(), wanted[p]) << p;
}

TEST(Sites, WhyTheyCannotBeFollowedIsTheSameEverywhere) {
  const Site site = siteOf(machineNamed("0"), 5);
  const Site other = siteOf(machineNamed("1"), 5);
  const auto why = [](std::vector<Site> sites, const std::vector<int32_t>& hosts) {
    Played played(std::move(sites), hosts);
    const auto found = played.exchange();
    EXPECT_EQ(played.rounds.rounds.size(), 1u) << "nothing more is sent";
    return found ? found->whyNot : "";
  };
  EXPECT_NE(why({site, siteOf("", 5), site}, {0, 1, 2}).find("rank 1 (process 101 on node1) could not find out"), std::string::npos);
  EXPECT_NE(why({site, siteOf(std::string(kMostSiteBytes + 1, ' '), 5)}, {0, 1}).find("rank 1"), std::string::npos);
  EXPECT_NE(why({site, site, siteOf(machineNamed("0"), 6)}, {0, 1, 2}).find("rank 2 (process 102 on node2) have other settings"),
            std::string::npos);
  EXPECT_NE(why({site, site, other}, {0, 1, 1}).find("are on one host and see different machines or nets"), std::string::npos);
}

/// The mesh refuses what is longer in the process that gives it, and only there: all have to see it before.
TEST(Sites, WhatIsTooLongForSoManyProcessesIsNotSent) {
  std::string text = machineNamed("0");
  text.insert(text.size() - std::strlen("</system>\n"), 900'000, ' ');
  const Site longOne = siteOf(std::move(text), 5);
  ASSERT_NE(longOne.hash, 0u);
  std::vector<int32_t> hosts;
  for (int32_t host = 0; host < 40; ++host) hosts.push_back(host);  // 32 MiB / 40 are 838860 bytes
  Played alike(std::vector<Site>(40, longOne), hosts);
  const auto same = alike.exchange();
  ASSERT_TRUE(same);
  EXPECT_EQ(same->whyNot, "") << "nothing is sent";
  std::vector<Site> sites(40, longOne);
  sites.front() = siteOf(machineNamed("1"), 5);
  Played played(std::move(sites), hosts);
  const auto found = played.exchange();
  ASSERT_TRUE(found);
  EXPECT_NE(found->whyNot.find("the topology of rank 1 (process 101 on node1) has 9000"), std::string::npos) << found->whyNot;
  EXPECT_EQ(played.rounds.rounds.size(), 1u) << "nothing more is sent";
}

TEST(Sites, WhatAStrangerSendsIsLookedAt) {
  const Site one = siteOf(machineNamed("0"), 5);
  const Site two = siteOf(machineNamed("1"), 5);
  const auto why = [&](size_t round, const std::string& instead) {
    Played played({one, two, one}, {0, 1, 2});
    played.rounds.spoil = [&](size_t number, int32_t process, std::vector<std::byte>& part) {
      if (number != round || process != 1) return;
      part.resize(instead.size());
      std::memcpy(part.data(), instead.data(), instead.size());
    };
    const auto found = played.exchange();
    return found ? found->whyNot : "";
  };
  EXPECT_NE(why(1, "<system").find("rank 1 (process 101 on node1) sent a topology that makes no sense"), std::string::npos);
  EXPECT_NE(why(1, "").find("sent a topology that makes no sense"), std::string::npos);
  EXPECT_NE(why(1, machineNamed("7")).find("sent another topology than the one it had announced"), std::string::npos);
  EXPECT_NE(why(0, "short").find("rank 1 (process 101 on node1) could not find out"), std::string::npos);
}

}  // namespace
}  // namespace tutti::comm::sites_test
