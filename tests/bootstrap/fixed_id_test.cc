#include "bootstrap/fixed_id.h"

#include <gtest/gtest.h>

#include "bootstrap/seal.h"

namespace tutti::bootstrap::fixed_id_test {
namespace {

TEST(FixedId, IsTheSameEverywhere) {
  ASSERT_TRUE(prepareCrypto().ok());
  const auto a = fixedId("192.0.2.1:5000", "secret");
  const auto b = fixedId("192.0.2.1:5000", "secret");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->encode(), b->encode());
  EXPECT_TRUE(a->isFixed);
  ASSERT_EQ(a->addresses.size(), 1U);
  EXPECT_EQ(describe(a->addresses[0]), "192.0.2.1:5000");
  EXPECT_NE(a->secret, fixedId("192.0.2.1:5000", "other")->secret);
  EXPECT_NE(a->secret, fixedId("192.0.2.1:5000", "")->secret);
  EXPECT_EQ(a->hash, fixedId("192.0.2.1:5000", "other")->hash) << "so that a wrong secret is told from a wrong address";
  EXPECT_NE(a->hash, fixedId("192.0.2.1:5001", "secret")->hash);
}

TEST(FixedId, ReadsHostsAndBothVersions) {
  EXPECT_EQ(describe(fixedId("[2001:db8::1]:80", "")->addresses[0]), "[2001:db8::1]:80");
  const auto local = fixedId("localhost:81", "");
  ASSERT_TRUE(local) << local.error().text();
  EXPECT_TRUE(isLoopback(local->addresses[0]));
  EXPECT_EQ(local->addresses[0].port, 81);
}

TEST(FixedId, RefusesWhatReadsOtherwise) {
  for (const std::string bad :
       {"", ":", "host", "host:", "host:0", "host:65536", "host:12x", "2001:db8::1:80", "[::1]80", "[::1:80", "::1]:80", ":80", "[]:80"}) {
    const auto refused = fixedId(bad, "");
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code(), Code::InvalidArgument) << bad;
    EXPECT_NE(refused.error().text().find("NCCL_COMM_ID"), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::bootstrap::fixed_id_test
