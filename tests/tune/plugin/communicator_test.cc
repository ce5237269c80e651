// A tuner in the live library: what it wants is what runs, results stay right, and tuttiExplain says who chose.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "plan/device_planner.h"
#include "tune/plugin/tuner.h"
#include "tutti.h"

namespace {

using nlohmann::json;

constexpr int kRanks = 4;

class Tuned : public testing::Test {
 protected:
  // Variables are read once in a process.
  static void SetUpTestSuite() {
    setenv("TUTTI_DEVICE", "host", 1);
    setenv("NCCL_TUNER_PLUGIN", "example", 1);
    setenv("TUNER_EXAMPLE", "allreduce 0 4096 tree simple 2; allreduce 4097 0 ring simple 5; allgather 0 0 nvls simple 1", 1);
  }
  void SetUp() override { ASSERT_EQ(ncclCommInitAll(comms, kRanks, nullptr), ncclSuccess) << ncclGetLastError(nullptr); }
  void TearDown() override {
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  json explain(const char* collective, size_t count) {
    char text[16000];
    EXPECT_EQ(tuttiExplain(comms[1], collective, count, ncclFloat, ncclSum, 0, text, sizeof text, nullptr), ncclSuccess);
    return json::parse(text);
  }
  ncclComm_t comms[kRanks] = {};
};

TEST_F(Tuned, ItsWishIsWhatIsChosen) {
  const json small = explain("all_reduce", 100);
  EXPECT_EQ(small["algorithm"], "tree");
  EXPECT_EQ(small["channels"], 2);
  EXPECT_EQ(small["tuner"], "Example: Tree Simple, 2 channels");
  const json large = explain("all_reduce", 100'000);
  EXPECT_EQ(large["algorithm"], "ring");
  EXPECT_EQ(large["channels"], 5);
  bool isTold = false;
  for (const json& one : large["rejected"]) isTold = isTold || one["reason"].get<std::string>().find("Example: Ring") != std::string::npos;
  EXPECT_TRUE(isTold) << large.dump();
  const json gather = explain("all_gather", 100);
  EXPECT_EQ(gather["tuner"], "Example: no wish") << "NVLS is not there";
  EXPECT_TRUE(explain("all_to_all", 100)["tuner"].is_null()) << "of this it is never asked";
}

TEST_F(Tuned, ResultsStayRight) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{1001}, size_t{300'007}}) {
    std::vector<std::vector<float>> out(kRanks, std::vector<float>(count + 1, -1));
    std::vector<std::thread> ranks;
    for (int r = 0; r < kRanks; ++r) {
      ranks.emplace_back([&, r] {
        const std::vector<float> in(count, static_cast<float>(r + 1));
        EXPECT_EQ(ncclAllReduce(in.data(), out[static_cast<size_t>(r)].data(), count, ncclFloat, ncclSum, comms[r], nullptr), ncclSuccess)
            << ncclGetLastError(nullptr);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const auto& values : out) {
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], 10) << i << " of " << count;
      EXPECT_EQ(values[count], -1) << "behind the end";
    }
  }
}

TEST_F(Tuned, SimulationGoesByIt) {
  std::vector<float> buffer(200);
  float us[2] = {};
  for (int i = 0; i < 2; ++i) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclAllReduce(buffer.data(), buffer.data(), i == 0 ? 1 : 200, ncclFloat, ncclSum, comms[0], nullptr), ncclSuccess);
    ASSERT_EQ(ncclGroupSimulateEnd(&info), ncclSuccess);
    us[i] = info.estimatedTime;
  }
  EXPECT_FLOAT_EQ(us[1], explain("all_reduce", 200)["estimatedUs"].get<float>());
}

// The planner of GPUs, with the same tuner: protocols count there.
TEST(TunedDevices, ItsWishIsWhatIsChosen) {
  namespace tune = tutti::tune;
  namespace plan = tutti::plan;
  setenv("TUNER_EXAMPLE", "allreduce 0 0 tree ll128 6; reducescatter 0 0 pat simple 0", 1);
  tune::plugin::Libraries libraries;
  const tutti::connect::Layout layout = tutti::connect::Layout::natural(4);
  plan::DeviceSettings settings;
  settings.mostBlocks.fill(132);
  settings.hasWindows = settings.hasLines = true;
  settings.tuner = libraries.open("example", {}, {1, 4, 1});
  ASSERT_NE(settings.tuner, nullptr);
  for (int32_t rank = 0; rank < 4; ++rank) {
    plan::DevicePlanner planner(layout, tutti::Rank(rank), settings);
    plan::Shape shape;
    shape.count = 1 << 20;
    const auto tree = planner.summarize(shape);
    ASSERT_TRUE(tree) << tree.error().text();
    EXPECT_TRUE(tree->algorithm == "tree" || tree->algorithm == "chain") << tree->algorithm << ": NCCL's trees are chains inside a host";
    EXPECT_EQ(tree->protocol, "LL128");
    EXPECT_EQ(tree->channels * tree->lanes, (6 + tree->lanes - 1) / tree->lanes * tree->lanes) << "blocks, in whole channels";
    EXPECT_EQ(tree->tuner, "Example: Tree LL128, 6 channels");
    shape.collective = tutti::Collective::ReduceScatter;
    const auto pat = planner.summarize(shape);
    ASSERT_TRUE(pat) << pat.error().text();
    EXPECT_EQ(pat->algorithm, "pat");
    EXPECT_EQ(pat->kernel, "simple");
    const auto made = planner.makePlan(shape);
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_EQ((*made)->algorithm, "pat");
  }
  // What the user forbids, a tuner does not get.
  settings.protocols = *tune::Filter::parse("NCCL_PROTO", "Simple", tune::ncclProtocolNames());
  settings.maxChannels = 3;
  plan::DevicePlanner bounded(layout, tutti::Rank(0), settings);
  plan::Shape shape;
  shape.count = 1 << 20;
  const auto simple = bounded.summarize(shape);
  ASSERT_TRUE(simple) << simple.error().text();
  EXPECT_EQ(simple->protocol, "Simple");
  EXPECT_LE(simple->channels * simple->lanes, 3);
}

}  // namespace
