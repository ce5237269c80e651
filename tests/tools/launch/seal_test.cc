#include "launch/seal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "launch/wire.h"

namespace tutti::launch::seal_test {
namespace {

struct SealTest : testing::Test {
  void SetUp() override { ASSERT_TRUE(startSeals().ok()); }
  const wire::Request request = {3, 8};
};

TEST_F(SealTest, OpensWithTheSameKeyAndNumberOnly) {
  const Key key = keyOf("job", "");
  const Key session = sessionKey(key, drawNonce(), drawNonce());
  auto sealed = wire::sealed(session, wire::kRequest, request);
  wire::Request opened;
  ASSERT_TRUE(wire::unsealed(session, wire::kRequest, sealed, opened));
  EXPECT_EQ(opened.rank, 3U);
  EXPECT_EQ(opened.ranks, 8U);
  EXPECT_FALSE(wire::unsealed(session, wire::kThanks, sealed, opened));
  EXPECT_FALSE(wire::unsealed(sessionKey(key, drawNonce(), drawNonce()), wire::kRequest, sealed, opened));
  for (size_t i = 0; i < sealed.size(); ++i) {
    sealed[i] ^= std::byte{1};
    EXPECT_FALSE(wire::unsealed(session, wire::kRequest, sealed, opened)) << i;
    sealed[i] ^= std::byte{1};
  }
  EXPECT_FALSE(wire::unsealed(session, wire::kRequest, std::span(sealed).first(sealed.size() - 1), opened));
}

TEST_F(SealTest, JobsAndSecretsHaveTheirOwnKeys) {
  std::set<Key> keys;
  for (const char* job : {"", "a", "b", "ab"}) {
    for (const char* secret : {"", "a", "b", "ab"}) keys.insert(keyOf(job, secret));
  }
  EXPECT_EQ(keys.size(), 16U);
  EXPECT_EQ(keyOf("a", "b"), keyOf("a", "b"));
  EXPECT_NE(publicHash(keyOf("a", "")), publicHash(keyOf("b", "")));
}

TEST_F(SealTest, WhatIsSealedCannotBeRead) {
  const Key session = sessionKey(keyOf("job", "secret"), drawNonce(), drawNonce());
  wire::Answer answer;
  std::memset(&answer.id, 'x', sizeof answer.id);
  const auto sealed = wire::sealed(session, wire::kAnswer, answer);
  const std::string text(reinterpret_cast<const char*>(sealed.data()), sealed.size());
  EXPECT_EQ(text.find("xxxx"), std::string::npos);
}

}  // namespace
}  // namespace tutti::launch::seal_test
