#include "comm/layouts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "comm/device_play.h"
#include "comm/said_network.h"
#include "comm/two_hosts.h"
#include "config/params.h"
#include "core/thread.h"
#include "observe/log.h"
#include "topo/host_devices.h"
#include "topo/xml.h"

namespace tutti::comm::layouts_test {
namespace {

struct Variable {
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  const char* name_;
};

/// A file that goes with the test.
struct File {
  explicit File(const std::string& text = "") : path(testing::TempDir() + "tutti_layouts_" + std::to_string(getpid()) + ".xml") {
    if (text.empty()) return;
    EXPECT_TRUE(topo::writeText(path, text).ok());
  }
  ~File() { unlink(path.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string text() const {
    std::stringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  }
  const std::string path;
};

std::vector<int32_t> ringOf(const connect::Layout& layout) {
  std::vector<int32_t> ring;
  const algo::LayoutView view = layout.view(Rank(0));
  for (int32_t i = 0; i < layout.ranks(); ++i) ring.push_back(view.ring.at(i).value);
  return ring;
}

Outcome outcomeOf(std::vector<Arrival> arrivals, int32_t rank = 0) {
  const auto ranks = static_cast<int32_t>(arrivals.size());
  Outcome outcome{*transport::local::Hub::make(ranks), {}, std::make_shared<const std::vector<Arrival>>(std::move(arrivals))};
  outcome.place.rank = Rank(rank);
  outcome.place.ranks = ranks;
  return outcome;
}

/// Four fake GPUs below two switches, of which 0 and 2 share one, and 1 and 3.
class OnGpus : public testing::Test {
 protected:
  static std::string machine() {
    std::string text =
        "<system version=\"1\"><cpu numaid=\"0\" affinity=\"1\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">";
    for (const int first : {0, 1}) {
      text += format("<pci busid=\"0000:0{}:00.0\" class=\"0x060400\" link_speed=\"8.0 GT/s PCIe\" link_width=\"16\">", first + 1);
      for (const int gpu : {first, first + 2})
        text += format(
            "<pci busid=\"0000:{:02x}:00.0\" class=\"0x030200\" link_speed=\"8.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{}\" "
            "sm=\"80\"/></pci>",
            0x1a + gpu, gpu);
      text += "</pci>";
    }
    return text + "</cpu></system>";
  }

  std::vector<Arrival> arrive(std::initializer_list<int32_t> gpus) {
    std::vector<Arrival> arrivals;
    EXPECT_TRUE(*play_.devices.useGpus());
    for (const int32_t gpu : gpus) {
      EXPECT_TRUE(play_.devices.at(gpu));
      const Status status = layouts_.describe(gpu, arrivals.emplace_back());
      EXPECT_TRUE(status.ok()) << status.text();
      EXPECT_EQ(arrivals.back().coreSet, availableCoreSet());
    }
    return arrivals;
  }
  std::vector<int32_t> ringOfRanks(std::vector<Arrival> arrivals) {
    const auto found = layouts_.find(outcomeOf(std::move(arrivals)), true, 0);
    EXPECT_TRUE(found) << found.error().text();
    return found ? ringOf(found->layout) : std::vector<int32_t>();
  }

  const File file_{machine()};
  const Variable topology_{"NCCL_TOPO_FILE", file_.path};
  play::Gpus play_{{.devices = 4}};
  Layouts layouts_{play_.devices};
};

TEST_F(OnGpus, NeighboursInTheRingShareASwitch) {
  const std::vector<Arrival> arrivals = arrive({0, 1, 2, 3});
  for (int32_t r = 0; r < 4; ++r) EXPECT_EQ(arrivals[static_cast<size_t>(r)].gpu, r);
  const std::vector<int32_t> ring = ringOfRanks(arrivals);
  ASSERT_EQ(ring.size(), 4u);
  const auto at = [&](int32_t rank) { return std::find(ring.begin(), ring.end(), rank) - ring.begin(); };
  EXPECT_EQ(std::abs(at(0) - at(2)) % 2, 1) << "GPUs 0 and 2 are neighbours";
  EXPECT_EQ(std::abs(at(1) - at(3)) % 2, 1);
  EXPECT_EQ(ringOfRanks(arrive({0, 2, 1, 3})), (std::vector<int32_t>{0, 1, 2, 3})) << "the order of ranks, where that is as good";
  EXPECT_EQ(ringOfRanks(arrive({3, 1})), (std::vector<int32_t>{0, 1})) << "a part of them, as a split makes";
}

TEST_F(OnGpus, AllRanksFindTheSame) {
  const std::vector<Arrival> arrivals = arrive({3, 0, 1, 2});
  const auto first = layouts_.find(outcomeOf(arrivals, 0), true, 0);
  ASSERT_TRUE(first);
  Layouts elsewhere(play_.devices);
  for (int32_t r = 0; r < 4; ++r) {
    const auto found = elsewhere.find(outcomeOf(arrivals, r), true, 0);
    ASSERT_TRUE(found);
    EXPECT_EQ(ringOf(found->layout), ringOf(first->layout));
  }
}

TEST_F(OnGpus, RanksThatDisagreeKeepTheirOrderAndSaySo) {
  std::vector<Arrival> arrivals = arrive({0, 1, 2, 3});
  arrivals[2].machine ^= 1;
  EXPECT_EQ(ringOfRanks(arrivals), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_NE(std::string(observe::lastErrorText()).find("ranks 0 and 2 see different machines"), std::string::npos)
      << observe::lastErrorText();
  arrivals = arrive({0, 1, 2, 3});
  arrivals[1].gpu = -1;
  EXPECT_EQ(ringOfRanks(arrivals), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_NE(std::string(observe::lastErrorText()).find("the GPU of rank 1 is not in the machine's topology"), std::string::npos);
  EXPECT_EQ(ringOfRanks(arrive({1, 1, 0})), (std::vector<int32_t>{0, 1, 2})) << "two ranks on one GPU";
}

TEST_F(OnGpus, OtherSettingsAreAnotherMachine) {
  const Arrival before = arrive({0})[0];
  const Variable level("NCCL_P2P_LEVEL", "PIX");
  EXPECT_NE(arrive({0})[0].machine, before.machine);
}

TEST_F(OnGpus, WhatTheUserNamesAndMakesNoSenseIsAnError) {
  {
    const Variable level("NCCL_P2P_LEVEL", "close");
    Arrival arrival;
    const Status status = layouts_.describe(0, arrival);
    EXPECT_EQ(status.code(), Code::InvalidUsage);
    EXPECT_NE(status.text().find("NCCL_P2P_LEVEL=\"close\""), std::string::npos) << status.text();
  }
  const Variable topology("NCCL_TOPO_FILE", "/no/such/machine.xml");
  Arrival arrival;
  const Status status = layouts_.describe(0, arrival);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.text().find("/no/such/machine.xml"), std::string::npos) << status.text();
}

TEST_F(OnGpus, WritesDownWhatItFound) {
  const std::vector<Arrival> arrivals = arrive({0, 1, 2, 3});
  const std::string topology = testing::TempDir() + "tutti_dump_" + std::to_string(getpid());
  const std::string graphs = topology + ".graphs";
  const Variable wanted("NCCL_TOPO_DUMP_FILE", topology);
  const Variable rank("NCCL_TOPO_DUMP_FILE_RANK", "0");
  const Variable wantedGraphs("NCCL_GRAPH_DUMP_FILE", graphs);
  ASSERT_TRUE(layouts_.find(outcomeOf(arrivals, 1), true, 0));
  EXPECT_NE(access(topology.c_str(), F_OK), 0) << "rank 1 is not asked to";
  ASSERT_TRUE(layouts_.find(outcomeOf(arrivals, 0), true, 0));
  const auto written = topo::readXml(topology);
  ASSERT_TRUE(written) << written.error().text();
  EXPECT_EQ(written->root.name, "system");
  EXPECT_EQ(*topo::gpuDevs(*written), (std::vector<int>{0, 1, 2, 3}));
  const auto sets = topo::readXml(graphs);
  ASSERT_TRUE(sets) << sets.error().text();
  EXPECT_EQ(sets->root.name, "graphs");
  {
    const Variable again("NCCL_GRAPH_FILE", graphs);  // what was written is taken back
    EXPECT_TRUE(layouts_.find(outcomeOf(arrive({0, 1, 2, 3}), 1), true, 0));
  }
  unlink(topology.c_str());
  unlink(graphs.c_str());
}

TEST_F(OnGpus, GraphsAreWrittenByTheRankThatIsAskedTo) {
  const std::vector<Arrival> arrivals = arrive({0, 1, 2, 3});
  const std::string graphs = testing::TempDir() + "tutti_dump_rank_" + std::to_string(getpid());
  const Variable wanted("NCCL_GRAPH_DUMP_FILE", graphs);
  const Variable rank("NCCL_GRAPH_DUMP_FILE_RANK", "2");
  config::resetForTest();  // numbers are read once
  ASSERT_TRUE(layouts_.find(outcomeOf(arrivals, 0), true, 0));
  EXPECT_NE(access(graphs.c_str(), F_OK), 0) << "rank 0 is not asked to";
  ASSERT_TRUE(layouts_.find(outcomeOf(arrivals, 2), true, 0));
  EXPECT_EQ(access(graphs.c_str(), F_OK), 0);
  unlink(graphs.c_str());
  unsetenv("NCCL_GRAPH_DUMP_FILE_RANK");
  config::resetForTest();
}

/// Rank 0 on one host, ranks 1 and 2 on another one like it, two nets each.
TEST_F(OnGpus, RanksOnSeveralHostsCrossAtTheirNets) {
  const auto site = layouts_.siteOf(SaidNetwork({saidNet("a", 5, 25'000), saidNet("b", 6, 25'000)}), true);
  ASSERT_TRUE(site) << site.error().text();
  ASSERT_NE(site->hash, 0u);
  {
    const auto elsewhere = layouts_.siteOf(SaidNetwork({saidNet("a", 8, 25'000), saidNet("b", 9, 25'000)}), true);
    ASSERT_TRUE(elsewhere);
    EXPECT_EQ(elsewhere->hash, site->hash) << "other GUIDs";
    const Variable level("NCCL_P2P_LEVEL", "PIX");
    const auto wishing = layouts_.siteOf(SaidNetwork({saidNet("a", 5, 25'000), saidNet("b", 6, 25'000)}), true);
    ASSERT_TRUE(wishing);
    EXPECT_NE(wishing->settings, site->settings);
  }
  auto sites = std::make_shared<Sites>();
  sites->hashOf = {site->hash, site->hash, site->hash};
  sites->machines.emplace(site->hash, *topo::parseXml("host", site->xml));
  TwoHosts hosts;
  const auto hub = hosts.introduce(0);
  Outcome outcome = outcomeOf(arrive({1, 0, 2}));
  outcome.hub = hub;
  outcome.sites = sites;
  const auto found = layouts_.find(outcome, true, 0);
  ASSERT_TRUE(found) << found.error().text();
  std::set<int32_t> nets;
  for (int32_t track = 0; track < found->layout.tracks(); ++track) nets.insert(found->layout.netsOf(Rank(0), ChannelId(track)).out);
  EXPECT_EQ(nets, (std::set<int32_t>{0, 1}));
  for (int32_t rank = 1; rank < 3; ++rank) {
    outcome.place.rank = Rank(rank);
    const auto same = layouts_.find(outcome, true, 0);
    ASSERT_TRUE(same);
    EXPECT_EQ(same->layout.rings(), found->layout.rings());
    for (int32_t track = 0; track < found->layout.tracks(); ++track)
      for (int32_t r = 0; r < 3; ++r)
        EXPECT_EQ(same->layout.netsOf(Rank(r), ChannelId(track)), found->layout.netsOf(Rank(r), ChannelId(track)));
  }
  outcome.place.rank = Rank(0);
  auto unknown = std::make_shared<Sites>(*sites);
  unknown->whyNot = "nobody knows";
  outcome.sites = unknown;
  const auto plain = layouts_.find(outcome, true, 0);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->layout.tracks(), 1);
  EXPECT_EQ(plain->layout.netsOf(Rank(0), ChannelId(0)), connect::NetUse());
  EXPECT_NE(std::string(observe::lastErrorText()).find("rings of 3 ranks follow the order of hosts: nobody knows"), std::string::npos)
      << observe::lastErrorText();
}

TEST(OnHost, AGraphFileStatesTheRings) {
  Devices none([]() -> Result<std::unique_ptr<driver::cuda::Api>> { return fail(Code::SystemError, "none"); }, [] { return nullptr; });
  Layouts layouts(none);
  std::string text = "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"2\" speedintra=\"1\" speedinter=\"1\" "
                     "typeintra=\"NVL\" typeinter=\"PIX\" samechannels=\"0\">";
  for (const char* const order : {"0213", "0321"}) {
    text += "<channel>";
    for (const char* dev = order; *dev != 0; ++dev) text += std::string("<gpu dev=\"") + *dev + "\"/>";
    text += "</channel>";
  }
  const File file(text + "</graph></graphs>");
  const Variable graphs("NCCL_GRAPH_FILE", file.path);
  std::vector<Arrival> arrivals(4);
  for (Arrival& arrival : arrivals) ASSERT_TRUE(layouts.describe(-1, arrival).ok());
  const auto found = layouts.find(outcomeOf(arrivals), false, 0);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->layout.rings(), (std::vector<std::vector<int32_t>>{{0, 2, 1, 3}, {0, 3, 2, 1}}));
  const auto expectOrder = [&](const std::vector<Arrival>& others, const char* cause) {
    const auto plain = layouts.find(outcomeOf(others), false, 0);
    ASSERT_TRUE(plain) << plain.error().text();
    EXPECT_EQ(plain->layout.tracks(), 1);
    EXPECT_NE(std::string(observe::lastErrorText()).find(cause), std::string::npos) << observe::lastErrorText();
  };
  arrivals[1].machine ^= 1;
  expectOrder(arrivals, "does not hold for 4 ranks on host devices: they have different files");
  // Parts of a split are of other sizes, and one rank has no rings: nothing to warn of.
  expectOrder({arrivals[0]}, "does not hold for 4 ranks");
  expectOrder({Arrival()}, "does not hold for 4 ranks");
  expectOrder({arrivals[0], arrivals[2], arrivals[3]}, "does not hold for 4 ranks");
}

TEST(OnHost, RanksOfANumaNodeAreNeighbours) {
  Devices none([]() -> Result<std::unique_ptr<driver::cuda::Api>> { return fail(Code::SystemError, "none"); }, [] { return nullptr; });
  Layouts layouts(none);
  std::vector<Arrival> arrivals(5);
  for (size_t r = 0; r < arrivals.size(); ++r) arrivals[r].numa = static_cast<int32_t>(r % 2);
  const auto found = layouts.find(outcomeOf(arrivals), false, 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(ringOf(found->layout), (std::vector<int32_t>{0, 2, 4, 1, 3}));
  const auto wanted = layouts.find(outcomeOf(arrivals), false, 1);
  ASSERT_TRUE(wanted);
  EXPECT_EQ(ringOf(wanted->layout), (std::vector<int32_t>{0, 1, 2, 3, 4})) << "TUTTI_NODE_RANKS decides alone";
  EXPECT_EQ(wanted->layout.nodes(), 5);
  Arrival arrival;
  ASSERT_TRUE(layouts.describe(-1, arrival).ok());
  EXPECT_NE(arrival.machine, 0u);
  EXPECT_EQ(arrival.gpu, -1);
}

/// NUMA nodes 0 and 2, and 1 and 3, share a socket, and ranks were bound to 0 to 3 in turn.
TEST(OnHost, TheRingPassesNumaNodesByTheirDistances) {
  const Variable topology("NCCL_TOPO_FILE", TUTTI_SOURCE_DIR "/tests/data/hosts/four_nodes.xml");
  Devices none([]() -> Result<std::unique_ptr<driver::cuda::Api>> { return fail(Code::SystemError, "none"); }, [] { return nullptr; });
  Layouts layouts(none);
  std::vector<Arrival> arrivals(8);
  for (size_t r = 0; r < arrivals.size(); ++r) {
    ASSERT_TRUE(layouts.describe(-1, arrivals[r]).ok());
    arrivals[r].numa = static_cast<int32_t>(r % 4);
  }
  const auto found = layouts.find(outcomeOf(arrivals), false, 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(ringOf(found->layout), (std::vector<int32_t>{0, 4, 1, 5, 3, 7, 2, 6}));
  {
    // What the ranks looked at comes back from what they write down.
    const File dump;
    const Variable wanted("NCCL_TOPO_DUMP_FILE", dump.path);
    ASSERT_TRUE(layouts.find(outcomeOf(arrivals), false, 0));
    const auto written = topo::readXml(dump.path);
    ASSERT_TRUE(written) << written.error().text();
    const auto view = topo::makeHostView(*written);
    ASSERT_TRUE(view) << view.error().text();
    EXPECT_EQ(view->system.count(topo::NodeKind::Host), 8);
  }
  {
    // Settings are in what the ranks compare, but the machine is the same.
    const File ofTwo("<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" speedintra=\"1\" speedinter=\"1\" "
                     "typeintra=\"SYS\" typeinter=\"SYS\" samechannels=\"0\"><channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel></graph>"
                     "</graphs>");
    const Variable graphs("NCCL_GRAPH_FILE", ofTwo.path);
    std::vector<Arrival> others(8);
    for (size_t r = 0; r < others.size(); ++r) {
      ASSERT_TRUE(layouts.describe(-1, others[r]).ok());
      others[r].numa = static_cast<int32_t>(r % 4);
    }
    ASSERT_NE(others[0].machine, arrivals[0].machine);
    const auto same = layouts.find(outcomeOf(others), false, 0);
    ASSERT_TRUE(same) << same.error().text();
    EXPECT_EQ(ringOf(same->layout), ringOf(found->layout));
  }
  arrivals[5].machine ^= 1;  // one sees another machine: only what all have said counts
  const auto differing = layouts.find(outcomeOf(arrivals), false, 0);
  ASSERT_TRUE(differing);
  EXPECT_EQ(ringOf(differing->layout), (std::vector<int32_t>{0, 4, 1, 5, 2, 6, 3, 7}));
}

}  // namespace
}  // namespace tutti::comm::layouts_test
