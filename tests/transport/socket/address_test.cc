#include "transport/socket/address.h"

#include <gtest/gtest.h>

namespace tutti::transport::socket::address_test {
namespace {

TEST(Address, ReadsBothFamiliesAndWritesThemBack) {
  const auto four = Address::parse("192.0.2.7", 80);
  ASSERT_TRUE(four);
  EXPECT_TRUE(four->isV4());
  EXPECT_EQ(four->port(), 80);
  EXPECT_EQ(four->text(), "192.0.2.7:80");
  const auto six = Address::parse("2001:db8::1", 65535);
  ASSERT_TRUE(six);
  EXPECT_TRUE(six->isV6());
  EXPECT_EQ(six->text(), "[2001:db8::1]:65535");
  EXPECT_EQ(six->length(), sizeof(sockaddr_in6));
}

TEST(Address, RefusesWhatIsNone) {
  for (const char* text : {"", "localhost", "1.2.3", "1.2.3.4.5", "[::1]", "::g", "1.2.3.4 "}) {
    const auto address = Address::parse(text, 1);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code(), Code::InvalidArgument);
  }
}

TEST(Address, CopiesASystemAddressAndRefusesOtherFamilies) {
  const auto six = Address::parse("fe80::1", 9);
  ASSERT_TRUE(six);
  EXPECT_TRUE(six->isLinkLocal());
  const auto copy = Address::of(six->raw(), six->length());
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->text(), six->text());
  EXPECT_FALSE(Address::of(six->raw(), sizeof(sockaddr_in) - 1)) << "cut short";
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_FALSE(Address::of(&other, sizeof other));
  EXPECT_FALSE(Address::of(nullptr, 0));
}

TEST(Address, CarriesAScopeOnlyForIPv6) {
  auto six = Address::parse("fe80::1", 9);
  auto four = Address::parse("192.0.2.7", 9);
  ASSERT_TRUE(six && four);
  six->setScope(3);
  four->setScope(3);
  EXPECT_EQ(six->scope(), 3U);
  EXPECT_EQ(four->scope(), 0U);
  four->setPort(10);
  EXPECT_EQ(four->text(), "192.0.2.7:10");
}

}  // namespace
}  // namespace tutti::transport::socket::address_test
