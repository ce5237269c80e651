// What `tutti explain` says of every topology in the repository, and of machines that are known by a number alone.
#include "explain/explain.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "config/params.h"
#include "topo/data.h"
#include "tune/store.h"

namespace tutti::tool::explain_test {
namespace {

using Json = nlohmann::json;

ExplainOptions optionsOf(std::string_view operation, uint64_t bytes) {
  ExplainOptions options;
  options.operation = *bench::findOperation(operation);
  options.bytes = bytes;
  return options;
}

Json onTopology(const std::string& file, int nodes, std::string_view operation, uint64_t bytes) {
  ExplainOptions options = optionsOf(operation, bytes);
  options.topo.source.file = file;
  options.topo.facts.nodes = nodes;
  const auto text = explainTopology(options);
  if (!text && nodes > 1 && text.error().text().find("there is no network") != std::string::npos) return {};
  EXPECT_TRUE(text) << file << ": " << (text ? "" : text.error().text());
  return text ? Json::parse(*text) : Json();
}

void expectWhole(const Json& json, const std::string& what) {
  const double us = json["estimatedUs"];
  ASSERT_TRUE(std::isfinite(us) && us > 0) << what;
  double sum = 0;
  for (const auto& [key, part] : json["parts"].items()) sum += part.get<double>();
  EXPECT_NEAR(sum, us, us * 1e-9) << what;
  for (const Json& one : json["rejected"]) {
    EXPECT_FALSE(one["reason"].get<std::string>().empty()) << what;
    if (one.contains("estimatedUs")) {
      EXPECT_GE(one["estimatedUs"].get<double>() * 1.01, us) << what;  // less than that does not count
    }
  }
}

TEST(ExplainTopology, HasAnAnswerForEveryFile) {
  for (const std::string& name : topo::test::namesIn(topo::test::ownFolder(), ".xml")) {
    const std::string file = topo::test::ownFile(name);
    for (const int nodes : {1, 2, 4}) {
      double before = 0;
      for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{1} << 20, uint64_t{1} << 30}) {
        const Json json = onTopology(file, nodes, "all_reduce", bytes);
        const std::string what = format("{} {} {}", file, nodes, bytes);
        if (!json.is_object() && nodes > 1) continue;  // a machine without nets
        ASSERT_TRUE(json.is_object()) << what;
        if (json["ranks"] == 1) continue;
        ASSERT_NO_FATAL_FAILURE(expectWhole(json, what));
        EXPECT_GT(json["estimatedUs"].get<double>(), before) << what;
        before = json["estimatedUs"];
      }
    }
  }
}

TEST(ExplainTopology, FollowsTheChannels) {
  const std::string file = topo::test::ownFile("nvidia-dgxh100-h100x8");
  const Json one = onTopology(file, 1, "all_reduce", 1 << 30);
  const Json eight = onTopology(file, 8, "all_reduce", 1 << 30);
  EXPECT_EQ(eight["ranks"], 64);
  EXPECT_GT(eight["estimatedUs"].get<double>(), one["estimatedUs"].get<double>()) << "nets are slower than NVLink";
  EXPECT_EQ(one["protocol"], "Simple");
  EXPECT_EQ(onTopology(file, 1, "all_reduce", 8)["protocol"], "LL");
}

TEST(ExplainTopology, ShowsTheRingsOfChannelsThatDiffer) {
  const Json mesh = onTopology(topo::test::ownFile("nvidia-dgx1v-v100x8"), 1, "all_reduce", 64 << 20);
  ASSERT_TRUE(mesh["rings"].is_array());
  EXPECT_EQ(mesh["rings"].size(), mesh["tracks"].get<size_t>());
  EXPECT_GT(mesh["rings"].size(), 1u);
  for (const Json& ring : mesh["rings"]) EXPECT_EQ(ring.size(), 8u);
  const auto shown = showExplanation(mesh.dump());
  ASSERT_TRUE(shown) << shown.error().text();
  EXPECT_NE(shown->find("ring 0 3 2 1 5 6 7 4"), std::string::npos) << *shown;
  const Json equal = onTopology(topo::test::ownFile("nvidia-dgxh100-h100x8"), 1, "all_reduce", 64 << 20);
  EXPECT_EQ(equal["tracks"], 1);
  EXPECT_TRUE(equal["rings"].is_null());
}

TEST(ExplainTopology, RefusesWhatMakesNoSense) {
  ExplainOptions options = optionsOf("broadcast", 8);
  options.topo.source.file = topo::test::ownFile("nvidia-dgxh100-h100x8");
  options.root = 8;
  const auto root = explainTopology(options);
  ASSERT_FALSE(root);
  EXPECT_NE(root.error().text().find("root 8"), std::string::npos) << root.error().text();
  options.root = 0;
  options.topo.source.file = "/no/such.xml";
  EXPECT_FALSE(explainTopology(options));
  options.topo.source.file = topo::test::ownFile("nvidia-dgxh100-h100x8");
  options.topo.variables = {"NCCL_CROSS_NIC=7"};
  EXPECT_FALSE(explainTopology(options));
}

// The reason that the user can do something about, not the last one of the list.
TEST(ExplainTopology, NamesWhatForbidsEverything) {
  ASSERT_EQ(setenv("NCCL_PROTO", "^LL,LL128,Simple", 1), 0);
  ExplainOptions options = optionsOf("all_reduce", 1 << 20);
  options.topo.source.file = topo::test::ownFile("nvidia-dgxh100-h100x8");
  const auto text = explainTopology(options);
  ASSERT_EQ(unsetenv("NCCL_PROTO"), 0);
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().text().find("NCCL_PROTO=^LL,LL128,Simple forbids it"), std::string::npos) << text.error().text();
}

TEST(ExplainGpus, KnowsEveryCollective) {
  for (const bench::Operation& operation : bench::operations()) {
    for (const int gpus : {2, 8}) {
      ExplainOptions options = optionsOf(operation.name, 1 << 20);
      options.gpus = gpus;
      const auto text = explainGpus(options, 0);
      ASSERT_TRUE(text) << operation.name << ": " << text.error().text();
      expectWhole(Json::parse(*text), std::string(operation.name));
    }
  }
  ExplainOptions tooMany = optionsOf("all_reduce", 8);
  tooMany.gpus = 1000;
  EXPECT_FALSE(explainGpus(tooMany, 0));
}

TEST(ExplainGpus, TakesWhatVariablesSayOfBlocksAndClusters) {
  ExplainOptions options = optionsOf("all_reduce", 512 << 20);
  options.gpus = 2;
  const auto channelsWith = [&options](const char* name, const char* value) {
    EXPECT_EQ(setenv(name, value, 1), 0);
    config::resetForTest();
    const auto text = explainGpus(options, 0);
    EXPECT_EQ(unsetenv(name), 0);
    config::resetForTest();
    EXPECT_TRUE(text) << text.error().text();
    return text ? Json::parse(*text)["channels"].get<int>() : 0;
  };
  EXPECT_EQ(channelsWith("NCCL_MAX_CTAS", "8"), 8);
  EXPECT_EQ(channelsWith("NCCL_CGA_CLUSTER_SIZE", "4"), 32);
  EXPECT_EQ(channelsWith("NCCL_CGA_CLUSTER_SIZE", "0"), 64) << "without clusters it takes more";
  EXPECT_EQ(channelsWith("NCCL_CTA_POLICY", "1"), 24);
}

TEST(ExplainGpus, HasNoLinesThroughHostMemory) {
  ExplainOptions options = optionsOf("all_reduce", 1 << 20);
  options.gpus = 2;
  const auto direct = explainGpus(options, 0);
  ASSERT_EQ(setenv("NCCL_P2P_DISABLE", "1", 1), 0);
  config::resetForTest();
  const auto throughHost = explainGpus(options, 0);
  ASSERT_EQ(unsetenv("NCCL_P2P_DISABLE"), 0);
  config::resetForTest();
  ASSERT_TRUE(direct && throughHost);
  EXPECT_EQ(Json::parse(*direct)["protocol"], "LL128") << *direct;
  EXPECT_NE(Json::parse(*throughHost)["protocol"], "LL128") << *throughHost;
  EXPECT_NE(throughHost->find("needs lines of 128 bytes"), std::string::npos) << *throughHost;
}

TEST(ExplainGpus, TakesWhatWasMeasuredOnThisMachine) {
  char folder[] = "/tmp/tutti_explain_" "XX" "XX" "XX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  tune::Platform kept;
  kept.name = "measured here";
  kept.source = "a test";
  kept.key = tune::machineKey();
  kept.devices = tune::deviceMachine();
  for (tune::KernelCost& cost : kept.devices->kernels) cost.startUs += 1000;
  kept.devices->lone.startUs += 1000;
  ASSERT_TRUE(tune::writeStored(folder, kept).ok());
  ExplainOptions options = optionsOf("all_reduce", 1 << 20);
  options.gpus = 2;
  const auto before = explainGpus(options, 2);
  ASSERT_EQ(setenv("TUTTI_CACHE_DIR", folder, 1), 0);
  const auto after = explainGpus(options, 2);
  const auto another = explainGpus(options, 1);
  ASSERT_EQ(setenv("TUTTI_CACHE_DIR", "none", 1), 0);
  (void)std::remove(tune::storedPath(folder, kept.key).c_str());
  (void)std::remove(folder);
  ASSERT_TRUE(before && after && another);
  EXPECT_EQ(Json::parse(*before)["constants"], "hopper-nvlink");
  EXPECT_EQ(Json::parse(*after)["constants"], "measured here");
  EXPECT_GT(Json::parse(*after)["estimatedUs"].get<double>(), 1000);
  EXPECT_EQ(Json::parse(*another)["constants"], "hopper-nvlink") << "a machine of one GPU has not measured two";
}

TEST(ExplainHost, IsWhatTheLibrarySays) {
  for (const bench::Operation& operation : bench::operations()) {
    ExplainOptions options = optionsOf(operation.name, 64 << 10);
    options.ranks = 3;
    const auto text = explainHost(options);
    ASSERT_TRUE(text) << operation.name << ": " << text.error().text();
    const Json json = Json::parse(*text);
    expectWhole(json, std::string(operation.name));
    EXPECT_EQ(json["ranks"], 3);
    EXPECT_TRUE(json["kernel"].is_null());
    const auto shown = showExplanation(*text);
    ASSERT_TRUE(shown) << shown.error().text();
    EXPECT_NE(shown->find("chosen"), std::string::npos);
  }
}

TEST(ShowExplanation, RefusesWhatIsNone) {
  for (const char* text : {"", "{}", "[]", "null", R"({"parts":{},"rejected":7})"}) EXPECT_FALSE(showExplanation(text)) << text;
}

TEST(CountOf, IsThatOfTheCall) {
  EXPECT_EQ(countOf(optionsOf("all_reduce", 4096), 4), 1024u);
  EXPECT_EQ(countOf(optionsOf("all_gather", 4096), 4), 256u);
  EXPECT_EQ(countOf(optionsOf("all_reduce", 0), 4), 1u);
}

}  // namespace
}  // namespace tutti::tool::explain_test
