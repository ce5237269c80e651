#include "transport/net/network.h"

#include <gtest/gtest.h>

#include <limits>

namespace tutti::transport::net::network_test {
namespace {

Properties sound() {
  Properties properties;
  properties.name = "nic0";
  properties.speedMbps = 100'000;
  properties.maxComms = 1024;
  properties.maxMessageBytes = 1 << 30;
  return properties;
}

TEST(Properties, ThoseOfARealDeviceAreAccepted) { EXPECT_TRUE(checkProperties(sound()).ok()); }

TEST(Properties, ThoseOfNoDeviceAreRefusedByName) {
  const auto refused = [](auto&& spoil) {
    Properties properties = sound();
    spoil(properties);
    const Status status = checkProperties(properties);
    return !status.ok() && status.code() == Code::InternalError &&
           (properties.name.empty() || status.text().find("nic0") != std::string::npos);
  };
  EXPECT_TRUE(refused([](Properties& p) { p.name.clear(); }));
  EXPECT_TRUE(refused([](Properties& p) { p.pciPath.assign(5000, 'x'); }));
  EXPECT_TRUE(refused([](Properties& p) { p.speedMbps = -1; }));
  EXPECT_TRUE(refused([](Properties& p) { p.latencyUs = std::numeric_limits<float>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](Properties& p) { p.latencyUs = -3; }));
  EXPECT_TRUE(refused([](Properties& p) { p.memoryKinds = 0; }));
  EXPECT_TRUE(refused([](Properties& p) { p.memoryKinds = 255; }));
  EXPECT_TRUE(refused([](Properties& p) { p.maxComms = 0; }));
  EXPECT_TRUE(refused([](Properties& p) { p.maxReceives = -4; }));
  EXPECT_TRUE(refused([](Properties& p) { p.numMembers = 5; }));
  EXPECT_TRUE(refused([](Properties& p) { p.offloadType = 77; }));
  EXPECT_TRUE(refused([](Properties& p) { p.maxMessageBytes = 63; })) << "a header would not fit";
}

}  // namespace
}  // namespace tutti::transport::net::network_test
