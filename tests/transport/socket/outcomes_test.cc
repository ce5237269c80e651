#include "transport/socket/outcomes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "joined.h"

namespace tutti::transport::socket::outcomes_test {
namespace {

using Kind = Outcomes::Kind;

std::string order(const Outcomes& outcomes, const std::vector<const char*>& ips) {
  std::vector<Address> addresses;
  for (const char* ip : ips) addresses.push_back(at(ip, 80));
  outcomes.order(addresses);
  std::string text;
  for (const Address& address : addresses) text += (text.empty() ? "" : " ") + address.text();
  return text;
}

TEST(Outcomes, WithoutAnyTheOrderStays) { EXPECT_EQ(order(Outcomes(), {"192.0.2.2", "192.0.2.1"}), "192.0.2.2:80 192.0.2.1:80"); }

/// Whatever the port: each listener has another one.
TEST(Outcomes, WhatWasNoUseComesLastUntilItIsTakenAgain) {
  Outcomes outcomes;
  outcomes.note(std::vector<Outcomes::Outcome>{{at("192.0.2.1", 1), Kind::Silent, ""},
                                               {at("192.0.2.2", 2), Kind::Failed, "Connection refused"},
                                               {at("192.0.2.3", 3), Kind::Taken, ""},
                                               {at("192.0.2.4", 4), Kind::Untried, ""}});
  const std::vector<const char*> all = {"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "2001:db8::1"};
  EXPECT_EQ(order(outcomes, all), "192.0.2.3:80 192.0.2.4:80 [2001:db8::1]:80 192.0.2.1:80 192.0.2.2:80");
  outcomes.note(std::vector<Outcomes::Outcome>{{at("192.0.2.2", 9), Kind::Taken, ""}, {at("192.0.2.3", 9), Kind::Failed, "gone"}});
  EXPECT_EQ(order(outcomes, all), "192.0.2.2:80 192.0.2.4:80 [2001:db8::1]:80 192.0.2.1:80 192.0.2.3:80");
}

}  // namespace
}  // namespace tutti::transport::socket::outcomes_test
