#include "machine/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

namespace tutti::machine::settings_test {
namespace {

struct Variable {
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  const char* name_;
};

TEST(Settings, SayWhatVariablesMean) {
  const auto plain = readSettings();
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_FALSE(plain->paths.p2pLevel.has_value());
  EXPECT_EQ(plain->hash, readSettings()->hash);
  const Variable level("NCCL_P2P_LEVEL", "PIX");
  const auto with = readSettings();
  ASSERT_TRUE(with) << with.error().text();
  EXPECT_EQ(with->paths.p2pLevel, topo::PathType::Pix);
  EXPECT_NE(with->hash, plain->hash);
}

// Hosts that only mean different things by GPUs have the same nets for ranks without.
TEST(Settings, HostDevicesCompareWhatTheyObey) {
  const uint64_t plain = readSettings()->hostHash;
  for (const auto& [name, value] : {std::pair{"NCCL_P2P_LEVEL", "PIX"}, {"NCCL_NET_GDR_LEVEL", "SYS"}, {"NCCL_PXN_DISABLE", "1"}}) {
    const Variable ofGpus(name, value);
    EXPECT_EQ(readSettings()->hostHash, plain) << name;
  }
  const Variable ofNets("NCCL_NETDEVS_POLICY", "MAX:3");
  EXPECT_NE(readSettings()->hostHash, plain);
}

TEST(Settings, RefuseWhatMakesNoSense) {
  {
    const Variable level("NCCL_NET_GDR_LEVEL", "nearby");
    const auto settings = readSettings();
    ASSERT_FALSE(settings);
    EXPECT_NE(settings.error().text().find("NCCL_NET_GDR_LEVEL=\"nearby\"; expected"), std::string::npos) << settings.error().text();
  }
  const Variable graphs("NCCL_GRAPH_FILE", "/no/such/graphs.xml");
  const auto settings = readSettings();
  ASSERT_FALSE(settings);
  EXPECT_NE(settings.error().text().find("/no/such/graphs.xml"), std::string::npos) << settings.error().text();
}

}  // namespace
}  // namespace tutti::machine::settings_test
