// What ncclConfig_t and the environment come to: every option that a communicator takes from them, and which of the two wins.
#include "api/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include "config/params.h"

namespace tutti::api::config_test {
namespace {

/// Variables of one read, gone with the scope.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> values) {
    for (const auto& [name, value] : values) {
      setenv(name, value, 1);
      names_.push_back(name);
    }
    config::resetForTest();
  }
  ~Environment() {
    for (const char* const name : names_) unsetenv(name);
    config::resetForTest();
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<const char*> names_;
};

comm::Config read(const ncclConfig_t* config, const comm::Config* inherited = nullptr) {
  const auto result = readConfig(config, inherited);
  EXPECT_TRUE(result) << (result ? "" : result.error().text());
  return result ? *result : comm::Config();
}

TEST(Config, NothingSaidLeavesEveryDefault) {
  const ncclConfig_t empty = NCCL_CONFIG_INITIALIZER;
  for (const ncclConfig_t* const config : {&empty, static_cast<const ncclConfig_t*>(nullptr)}) {
    const comm::Config is = read(config);
    EXPECT_EQ(is.clusterBlocks, -1) << "as the library likes";
    EXPECT_EQ(is.minCtas, comm::Config().minCtas);
    EXPECT_EQ(is.maxCtas, comm::Config().maxCtas);
    EXPECT_EQ(is.ctaPolicy, NCCL_CTA_POLICY_DEFAULT);
    EXPECT_TRUE(is.blocking);
    EXPECT_FALSE(is.splitShare);
    EXPECT_FALSE(is.shrinkShare);
  }
}

TEST(Config, FieldsArrive) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.cgaClusterSize = 2;
  config.minCTAs = 3;
  config.maxCTAs = 5;
  config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  config.blocking = 0;
  config.splitShare = config.shrinkShare = 1;
  config.commName = "a name";
  config.trafficClass = 7;
  const comm::Config is = read(&config);
  EXPECT_EQ(is.clusterBlocks, 2);
  EXPECT_EQ(is.minCtas, 3);
  EXPECT_EQ(is.maxCtas, 5);
  EXPECT_EQ(is.ctaPolicy, NCCL_CTA_POLICY_EFFICIENCY);
  EXPECT_FALSE(is.blocking);
  EXPECT_TRUE(is.splitShare);
  EXPECT_TRUE(is.shrinkShare);
  EXPECT_EQ(is.name, "a name");
  EXPECT_EQ(is.trafficClass, 7);
}

TEST(Config, TheEnvironmentWins) {
  const Environment variables({{"NCCL_CGA_CLUSTER_SIZE", "8"},
                               {"NCCL_MIN_CTAS", "2"},
                               {"NCCL_MAX_CTAS", "6"},
                               {"NCCL_CTA_POLICY", "2"},
                               {"NCCL_COMM_BLOCKING", "0"},
                               {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "1"},
                               {"NCCL_COMM_SHRINK_SHARE_RESOURCES", "1"}});
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.cgaClusterSize = 2;
  config.minCTAs = 3;
  config.maxCTAs = 5;
  for (const ncclConfig_t* const from : {static_cast<const ncclConfig_t*>(&config), static_cast<const ncclConfig_t*>(nullptr)}) {
    const comm::Config is = read(from);
    EXPECT_EQ(is.clusterBlocks, 8);
    EXPECT_EQ(is.minCtas, 2);
    EXPECT_EQ(is.maxCtas, 6);
    EXPECT_EQ(is.ctaPolicy, NCCL_CTA_POLICY_ZERO);
    EXPECT_FALSE(is.blocking);
    EXPECT_TRUE(is.splitShare);
    EXPECT_TRUE(is.shrinkShare);
  }
}

TEST(Config, ClustersCanBeForbidden) {
  const Environment variables({{"NCCL_CGA_CLUSTER_SIZE", "0"}});
  EXPECT_EQ(read(nullptr).clusterBlocks, 0);
}

TEST(Config, VariablesOutOfRangeLeaveTheField) {
  const Environment variables({{"NCCL_CGA_CLUSTER_SIZE", "9"}, {"NCCL_MAX_CTAS", "0"}, {"NCCL_CTA_POLICY", "17"}});
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.cgaClusterSize = 4;
  config.maxCTAs = 12;
  const comm::Config is = read(&config);
  EXPECT_EQ(is.clusterBlocks, 4);
  EXPECT_EQ(is.maxCtas, 12);
  EXPECT_EQ(is.ctaPolicy, NCCL_CTA_POLICY_DEFAULT);
}

TEST(Config, AChildWithoutOneHasItsParents) {
  comm::Config parent;
  parent.clusterBlocks = 1;
  parent.maxCtas = 9;
  parent.name = "the parent";
  const comm::Config is = read(nullptr, &parent);
  EXPECT_EQ(is.clusterBlocks, 1);
  EXPECT_EQ(is.maxCtas, 9);
  EXPECT_EQ(is.name, "the parent");
  const ncclConfig_t own = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(read(&own, &parent).clusterBlocks, -1) << "a config of its own takes nothing over";
}

}  // namespace
}  // namespace tutti::api::config_test
