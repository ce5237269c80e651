#include "plan/explanation.h"

#include <nlohmann/json.hpp>

#include "device_world.h"

namespace tutti::plan::explanation_test {
namespace {

using Json = nlohmann::json;

std::set<std::pair<std::string, std::string>> namesOf(const Summary& chosen, const std::vector<Rejected>& rejected) {
  std::set<std::pair<std::string, std::string>> all = {{std::string(chosen.algorithm), std::string(chosen.kernel)}};
  for (const Rejected& one : rejected) {
    EXPECT_TRUE(all.insert({one.algorithm, one.kernel}).second) << one.algorithm << " twice";
    EXPECT_FALSE(one.reason.empty()) << one.algorithm;
  }
  return all;
}

std::string reasonOf(const std::vector<Rejected>& rejected, std::string_view algorithm, std::string_view kernel = "") {
  for (const Rejected& one : rejected)
    if (one.algorithm == algorithm && (kernel.empty() || one.kernel == kernel)) return one.reason;
  return "not there";
}

/// What threads of a host would get.
Summary onHost(const Shape& shape, Settings settings, std::vector<Rejected>& rejected) {
  const auto hub = *transport::local::Hub::make(4);
  const connect::Layout layout = connect::Layout::natural(4);
  connect::Connections connections(*hub, Rank(0));
  Planner planner(layout, connections, Rank(0), settings);
  const auto summary = planner.summarize(shape, &rejected);
  EXPECT_TRUE(summary) << (summary ? "" : summary.error().text());
  return summary ? *summary : Summary();
}

TEST(Explanation, HasEveryAlgorithmOnceWithAReason) {
  for (const Collective collective : kCalls) {
    std::vector<Rejected> rejected;
    const Summary chosen = onHost(shapeOf(collective, 100000), {}, rejected);
    size_t there = 0;
    for (const exec::record::Algorithm& a : exec::record::algorithms()) there += a.traits.collective == collective ? 1 : 0;
    EXPECT_EQ(namesOf(chosen, rejected).size(), there) << name(collective);
    EXPECT_NEAR(chosen.cost.sum(), chosen.estimatedUs, 1e-9);
    for (const Rejected& one : rejected) {
      if (one.reason.starts_with("makes ranks that only give wait") || one.reason.starts_with("is for ranks of several hosts"))
        continue;  // it has no estimate
      EXPECT_GE(one.estimatedUs, chosen.estimatedUs);
      EXPECT_TRUE(one.reason.starts_with("slower by") || one.reason.starts_with("no faster")) << one.reason;
    }
  }
}

TEST(Explanation, SaysWhatForbids) {
  Settings settings;
  settings.restrictions.nccl = filterOf("NCCL_ALGO", "allreduce:ring");
  std::vector<Rejected> rejected;
  EXPECT_EQ(onHost(shapeOf(Collective::AllReduce, 1), settings, rejected).algorithm, "ring");
  EXPECT_EQ(reasonOf(rejected, "oneshot"), "NCCL_ALGO=allreduce:ring forbids it");
  rejected.clear();
  settings = {};
  settings.spansHosts = true;
  (void)onHost(shapeOf(Collective::AllReduce, 1), settings, rejected);
  EXPECT_NE(reasonOf(rejected, "oneshot").find("several hosts"), std::string::npos);
  rejected.clear();
  settings = {};
  settings.deterministic = true;
  (void)onHost(shapeOf(Collective::AllReduce, 1), settings, rejected);
  EXPECT_NE(reasonOf(rejected, "ring").find("TUTTI_DETERMINISTIC"), std::string::npos) << reasonOf(rejected, "ring");
}

TEST(Explanation, OfDevicesHasEveryKernelToo) {
  DeviceSettings settings = settingsFor(4);
  settings.hasBulk = settings.hasLines = false;
  settings.protocols = filterOf("NCCL_PROTO", "^LL");
  const connect::Layout layout = connect::Layout::natural(4);
  DevicePlanner planner(layout, Rank(0), settings);
  std::vector<Rejected> rejected;
  const auto chosen = planner.summarize(shapeOf(Collective::AllReduce, 1 << 20), &rejected);
  ASSERT_TRUE(chosen) << chosen.error().text();
  EXPECT_EQ(chosen->protocol, "Simple");
  EXPECT_GE(namesOf(*chosen, rejected).size(), 12u);
  EXPECT_EQ(reasonOf(rejected, "ring", "cells"), "NCCL_PROTO=^LL forbids it");
  EXPECT_NE(reasonOf(rejected, "ring", "lines").find("128 bytes"), std::string::npos);
  EXPECT_EQ(reasonOf(rejected, "ring", "bulk"), "TUTTI_BULK=0, a GPU or the size of slots forbids it");
  EXPECT_NEAR(chosen->cost.sum(), chosen->estimatedUs, 1e-9);
}

TEST(Explanation, TheStreamingKernelMovesUnlessItIsAskedToCombine) {
  const connect::Layout layout = connect::Layout::natural(2);
  const auto reasonOfBulk = [&](const DeviceSettings& settings, Collective collective) {
    DevicePlanner planner(layout, Rank(0), settings);
    std::vector<Rejected> rejected;
    const auto chosen = planner.summarize(shapeOf(collective, 32 << 20), &rejected);
    EXPECT_TRUE(chosen) << chosen.error().text();
    return chosen && chosen->kernel == "bulk" ? std::string("chosen") : reasonOf(rejected, "ring", "bulk");
  };
  DeviceSettings settings = settingsFor(2);
  settings.maxChannels = 8;
  EXPECT_NE(reasonOfBulk(settings, Collective::AllReduce).find("moves data"), std::string::npos);
  EXPECT_EQ(reasonOfBulk(settings, Collective::AllGather), "chosen");  // 8 blocks do not fill a link otherwise
  settings.hasSimple = false;
  EXPECT_EQ(reasonOfBulk(settings, Collective::AllReduce), "chosen");
  settings.hasBulk = false;
  EXPECT_EQ(reasonOfBulk(settings, Collective::AllGather), "TUTTI_BULK=0, a GPU or the size of slots forbids it");
}

TEST(Explanation, IsJsonWhateverNamesHold) {
  Explanation explanation;
  explanation.collective = "all_reduce";
  explanation.constants = "a \"quoted\" \xff name";
  explanation.chosen.algorithm = "ring";
  explanation.chosen.cost.hopsUs = 2;
  explanation.rejected.push_back({"tree", "", "", 0, -1, "because"});
  explanation.rejected.push_back({"ring", "cells", "LL", 3, 7, "slower"});
  const Json json = Json::parse(toJson(explanation));
  EXPECT_EQ(json["algorithm"], "ring");
  EXPECT_TRUE(json["kernel"].is_null());
  EXPECT_EQ(json["parts"]["hopsUs"], 2);
  EXPECT_FALSE(json["rejected"][0].contains("estimatedUs"));
  EXPECT_EQ(json["rejected"][1]["channels"], 3);
}

}  // namespace
}  // namespace tutti::plan::explanation_test
