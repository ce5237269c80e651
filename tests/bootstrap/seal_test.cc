#include "bootstrap/seal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace tutti::bootstrap::seal_test {
namespace {

std::span<std::byte> bodyOf(std::vector<std::byte>& frame) { return std::span(frame).subspan(kLengthBytes); }

std::vector<std::byte> bytesOf(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

class Seal : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(prepareCrypto().ok());
    fillRandom(secret);
    fillRandom(greeting.nonce);
    fillRandom(nonce);
    greeting.purpose = Purpose::Mesh;
    greeting.topic = 99;
  }
  Secret secret{};
  Greeting greeting;
  Nonce nonce{};
};

TEST_F(Seal, AGreetingSurvivesItsBytesAndNothingElseIsOne) {
  const auto bytes = greeting.encode();
  const auto again = Greeting::decode(bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->purpose, greeting.purpose);
  EXPECT_EQ(again->topic, greeting.topic);
  EXPECT_EQ(again->nonce, greeting.nonce);
  for (size_t i = 0; i < 8; ++i) {
    auto other = bytes;
    other[i] ^= std::byte{0x40};
    EXPECT_FALSE(Greeting::decode(other)) << "magic and purpose, byte " << i;
  }
}

TEST_F(Seal, AProofIsGoodForOneSecretSideAndConnection) {
  const Proof proof = prove(secret, Side::Connector, greeting, nonce);
  EXPECT_TRUE(equal(proof, prove(secret, Side::Connector, greeting, nonce)));
  EXPECT_FALSE(equal(proof, prove(secret, Side::Acceptor, greeting, nonce))) << "it cannot be sent back";
  Secret other = secret;
  other[31] ^= 1;
  EXPECT_FALSE(equal(proof, prove(other, Side::Connector, greeting, nonce)));
  Greeting changed = greeting;
  changed.purpose = Purpose::Root;
  EXPECT_FALSE(equal(proof, prove(secret, Side::Connector, changed, nonce)));
  changed = greeting;
  changed.topic ^= 1;
  EXPECT_FALSE(equal(proof, prove(secret, Side::Connector, changed, nonce)));
  changed = greeting;
  changed.nonce[0] ^= 1;
  EXPECT_FALSE(equal(proof, prove(secret, Side::Connector, changed, nonce)));
  Nonce later = nonce;
  later[5] ^= 1;
  EXPECT_FALSE(equal(proof, prove(secret, Side::Connector, greeting, later)));
}

TEST_F(Seal, TheTwoSidesAgreeOnTwoKeys) {
  const SessionKeys connector = deriveKeys(secret, Side::Connector, greeting, nonce);
  const SessionKeys acceptor = deriveKeys(secret, Side::Acceptor, greeting, nonce);
  EXPECT_EQ(connector.sends, acceptor.receives);
  EXPECT_EQ(connector.receives, acceptor.sends);
  EXPECT_NE(connector.sends, connector.receives);
}

TEST_F(Seal, FramesAreReadOnceInOrderAndUnchanged) {
  Sealer sealer(secret);
  Opener opener(secret);
  std::vector<std::byte> first = sealer.seal(3, bytesOf("first"));
  std::vector<std::byte> second = sealer.seal(4, {});
  EXPECT_EQ(Opener::lengthOf(std::span(first).first<kLengthBytes>()), first.size() - kLengthBytes);
  EXPECT_EQ(std::search(first.begin(), first.end(), bytesOf("first").begin(), bytesOf("first").begin() + 5), first.end()) << "not in clear";
  {
    auto copy = second;
    EXPECT_FALSE(opener.open(bodyOf(copy))) << "not the next one";
  }
  const auto again = first;
  const auto frame = opener.open(bodyOf(first));
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, 3);
  EXPECT_EQ(std::vector(frame->payload.begin(), frame->payload.end()), bytesOf("first"));
  {
    auto copy = again;
    EXPECT_FALSE(opener.open(bodyOf(copy))) << "repeated";
  }
  for (size_t i = kLengthBytes; i < second.size(); ++i) {
    auto copy = second;
    copy[i] ^= std::byte{1};
    EXPECT_FALSE(opener.open(bodyOf(copy))) << "changed at " << i;
  }
  for (size_t size = 0; size + kLengthBytes < second.size(); ++size) {
    auto copy = second;
    EXPECT_FALSE(opener.open(bodyOf(copy).first(size))) << "cut to " << size;
  }
  const auto last = opener.open(bodyOf(second));
  ASSERT_TRUE(last);
  EXPECT_TRUE(last->payload.empty());
}

TEST_F(Seal, LengthsOutOfRangeAreRefused) {
  const auto lengthOf = [](uint32_t length) {
    std::array<std::byte, kLengthBytes> head;
    std::memcpy(head.data(), &length, sizeof length);
    return Opener::lengthOf(head);
  };
  EXPECT_FALSE(lengthOf(0));
  EXPECT_FALSE(lengthOf(kTagBytes));
  EXPECT_TRUE(lengthOf(kTagBytes + 1));
  EXPECT_TRUE(lengthOf(kMostFrameBytes));
  EXPECT_FALSE(lengthOf(kMostFrameBytes + 1));
  EXPECT_FALSE(lengthOf(UINT32_MAX));
}

TEST_F(Seal, HashesDependOnTheirPurpose) {
  EXPECT_NE(hashNumber("a", bytesOf("x")), hashNumber("b", bytesOf("x")));
  EXPECT_NE(hashNumber("a", bytesOf("x")), hashNumber("a", bytesOf("y")));
  EXPECT_NE(hashNumber("ab", bytesOf("c")), hashNumber("a", bytesOf("bc"))) << "where one ends and the other begins counts";
  EXPECT_EQ(hashNumber("a", bytesOf("x")), hashNumber("a", bytesOf("x")));
}

}  // namespace
}  // namespace tutti::bootstrap::seal_test
