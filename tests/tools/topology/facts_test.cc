// Every topology with expected facts must come to those facts, in every run that they state.
#include "topology/facts.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "topo/data.h"
#include "topo/settings.h"

namespace tutti::tool::facts_test {
namespace {

using Json = nlohmann::ordered_json;

std::vector<int> parseDevs(const std::string& list) {
  std::vector<int> devs;
  for (const char* at = list.c_str(); *at != '\0';) {
    char* end = nullptr;
    devs.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = *end == ',' ? end + 1 : end;
  }
  return devs;
}

FactsOptions optionsOf(const Json& run) {
  FactsOptions options{.nodes = run["nodes"], .isCollNet = run["collnet"], .isClique = run["mnnvl"], .gpus = {}, .settings = {}};
  if (run.contains("gpuSubset")) options.gpus = parseDevs(run["gpuSubset"]);
  options.settings.driverP2p = run["nvmlP2pOk"];
  if (run.contains("environment")) {
    for (const auto& [name, value] : run["environment"].items()) {
      EXPECT_TRUE(topo::applyPathVariable(name, value.get<std::string>(), options.settings).ok());
    }
  }
  return options;
}

/// The reference takes bandwidth from its links while it searches and gives it back, in float: what it then states of virtual links of
/// 5000 GB/s has drifted by up to a thousandth.
bool areSameNumber(double ours, double theirs) {
  return ours == theirs || (ours == topo::kLocalGBps && theirs > ours && theirs < ours * 1.002);
}

/// The first few places at which ours lacks or contradicts theirs, or has what they do not.
void compare(const Json& ours, const Json& theirs, const std::string& place, std::vector<std::string>& found) {
  if (found.size() >= 5 || ours == theirs) return;
  if (ours.is_number() && theirs.is_number() && areSameNumber(ours.get<double>(), theirs.get<double>())) return;
  if (ours.is_object() && theirs.is_object()) {
    for (const auto& [key, value] : theirs.items()) {
      if (ours.contains(key)) {
        compare(ours[key], value, place + "." + key, found);
      } else {
        found.push_back(place + "." + key + ": missing, expected " + value.dump());
      }
    }
    for (const auto& [key, value] : ours.items()) {
      if (!theirs.contains(key)) found.push_back(place + "." + key + ": not expected, is " + value.dump());
    }
  } else if (ours.is_array() && theirs.is_array() && ours.size() == theirs.size()) {
    for (size_t i = 0; i < ours.size(); ++i) compare(ours[i], theirs[i], place + "[" + std::to_string(i) + "]", found);
  } else {
    found.push_back(place + ": is " + ours.dump() + ", expected " + theirs.dump());
  }
}

std::vector<std::string> compareRun(const topo::Document& machine, const Json& run) {
  const FactsOptions options = optionsOf(run);
  const auto view = viewOf(machine, options);
  if (!view) return {view.error().text()};
  // Through text, as the reference's numbers went, so that 24 and 24.0 are one.
  const Json ours = Json::parse(factsOf(*view, options).dump());
  std::vector<std::string> found;
  if (run.contains("system")) {
    for (const auto& [part, value] : run["system"].items()) compare(ours["system"][part], value, "system." + part, found);
  }
  for (const char* part : {"paths", "gdr"}) {
    if (run.contains(part)) compare(ours[part], run[part], part, found);
  }
  if (run.contains("topoFlags")) {
    for (const char* flag : {"splitNvLink", "allNvLink"}) compare(ours["topoFlags"][flag], run["topoFlags"][flag], flag, found);
  }
  if (run.contains("localNets_channels0to7")) {
    compare(ours["localNets_channels0to7"], run["localNets_channels0to7"], "localNets_channels0to7", found);
  }
  return found;
}

class Facts : public testing::TestWithParam<std::string> {};

TEST_P(Facts, AreThoseOfTheReferenceInEveryRun) {
  std::ifstream file(GetParam() + ".json");
  const Json expected = Json::parse(file);
  std::string xml = GetParam() + ".xml";
  xml.erase(xml.rfind("/expected"), std::string("/expected").size());
  const auto machine = topo::readXml(xml);
  ASSERT_TRUE(machine.has_value()) << machine.error().text();
  if (!expected.contains("runs")) {
    // The reference refuses it; we read it, and find every GPU.
    const auto view = viewOf(*machine, {});
    ASSERT_TRUE(view.has_value()) << view.error().text();
    EXPECT_GT(view->system.count(topo::NodeKind::Gpu), 0);
    return;
  }
  ASSERT_FALSE(expected["runs"].empty());
  for (const auto& [name, run] : expected["runs"].items()) {
    for (const std::string& difference : compareRun(*machine, run)) ADD_FAILURE() << name << ": " << difference;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Facts, testing::ValuesIn(topo::test::filesOf("/expected", ".json")),
                         [](const auto& file) { return topo::test::testName(file.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Facts);

TEST(DataSet, SaysWhatIsSkipped) {
  if (topo::test::hasDataSet()) return;
  std::printf("the data set is not at %s: only the topologies of this repository were compared\n", topo::test::dataFolder().c_str());
}

TEST(Comparison, SeesAnyDifference) {
  std::vector<std::string> found;
  compare(Json::parse(R"({"a": [1, {"b": 24.0}]})"), Json::parse(R"({"a": [1, {"b": 24}]})"), "", found);
  EXPECT_TRUE(found.empty());
  compare(Json::parse(R"({"a": [1, {"b": 24.1}], "c": 1})"), Json::parse(R"({"a": [1, {"b": 24}], "d": 1})"), "", found);
  EXPECT_EQ(found.size(), 3u);
}

}  // namespace
}  // namespace tutti::tool::facts_test
