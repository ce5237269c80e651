#include "bootstrap/address.h"

#include <gtest/gtest.h>

namespace tutti::bootstrap::address_test {
namespace {

Address at(std::string_view text, uint16_t port = 0) {
  Address address = parseAddress(text).value_or(Address{});
  address.port = port;
  return address;
}

TEST(Address, ReadsAndWritesBothVersions) {
  EXPECT_EQ(describe(at("192.0.2.7", 4000)), "192.0.2.7:4000");
  EXPECT_EQ(describe(at("2001:db8::1", 65535)), "[2001:db8::1]:65535");
  for (const std::string_view bad : {"", "192.0.2", "192.0.2.256", "host", "[::1]", ":::", "1.2.3.4 "})
    EXPECT_FALSE(parseAddress(bad)) << bad;
}

TEST(Address, SurvivesTheSystemsForm) {
  for (const std::string_view text : {"10.1.2.3", "::1", "fe80::1", "2001:db8:1:2:3:4:5:6"}) {
    const Address address = at(text, 12345);
    const SocketAddress system = toSocketAddress(address);
    EXPECT_EQ(fromSocketAddress(reinterpret_cast<const sockaddr&>(system.storage)), address);
  }
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_FALSE(fromSocketAddress(other));
}

TEST(Address, KnowsWhatItMeans) {
  EXPECT_TRUE(isLoopback(at("127.3.2.1")));
  EXPECT_TRUE(isLoopback(at("::1")));
  EXPECT_FALSE(isLoopback(at("::2")));
  EXPECT_FALSE(isLoopback(at("128.0.0.1")));
  EXPECT_TRUE(isLinkLocal(at("169.254.0.1")));
  EXPECT_TRUE(isLinkLocal(at("fe80::1")));
  EXPECT_TRUE(isLinkLocal(at("febf::1")));
  EXPECT_FALSE(isLinkLocal(at("fec0::1")));
  EXPECT_FALSE(isLinkLocal(at("169.253.0.1")));
}

}  // namespace
}  // namespace tutti::bootstrap::address_test
