#include "transport/socket/handshake.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti::transport::socket::handshake_test {
namespace {

Address at(const char* ip, uint16_t port) {
  const auto address = Address::parse(ip, port);
  EXPECT_TRUE(address) << ip;
  return address ? *address : Address();
}

Invitation sample() {
  Invitation invitation;
  invitation.listenId = 0x1122334455667788;
  fillRandom(invitation.key);
  invitation.streams = {.threads = 2, .socketsPerThread = 8};
  invitation.addresses = {at("192.0.2.7", 4711), at("2001:db8::1", 4712), at("127.0.0.1", 4713)};
  return invitation;
}

TEST(Handle, SaysWhatWasPutIn) {
  ASSERT_TRUE(setUpCrypto().ok());
  const Invitation before = sample();
  const auto after = decode(encode(before));
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_EQ(after->listenId, before.listenId);
  EXPECT_EQ(after->key, before.key);
  EXPECT_EQ(after->streams.threads, 2);
  EXPECT_EQ(after->streams.socketsPerThread, 8);
  ASSERT_EQ(after->addresses.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(after->addresses[i].text(), before.addresses[i].text());
}

TEST(Handle, HoldsAsManyAddressesAsFitAndTheFirstOnes) {
  Invitation four = sample();
  four.addresses.assign(30, at("192.0.2.7", 1));
  EXPECT_EQ(decode(encode(four))->addresses.size(), 11U);
  Invitation six = sample();
  six.addresses.assign(30, at("2001:db8::7", 1));
  EXPECT_EQ(decode(encode(six))->addresses.size(), 4U);
}

TEST(Handle, RefusesOtherBytes) {
  std::mt19937 random(7);
  net::Handle zero;
  EXPECT_FALSE(decode(zero));
  const net::Handle good = encode(sample());
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    net::Handle bad = good;
    bad.bytes[random() % bad.bytes.size()] = static_cast<std::byte>(random());
    bad.bytes[random() % bad.bytes.size()] = static_cast<std::byte>(random());
    const auto decoded = decode(bad);  // must not read beyond the handle, whatever it says
    refused += decoded ? 0 : 1;
    if (decoded) {
      EXPECT_LE(decoded->addresses.size(), 11U);
      EXPECT_LE(decoded->streams.data(), 64);
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Proof, DependsOnEverythingThatWasSaid) {
  ASSERT_TRUE(setUpCrypto().ok());
  Key key{};
  Hello hello;
  Nonce nonce{};
  fillRandom(key);
  fillRandom(nonce);
  const Proof proof = proveConnector(key, hello, nonce);
  EXPECT_TRUE(equal(proof, proveConnector(key, hello, nonce)));
  EXPECT_FALSE(equal(proof, proveListener(key, hello, nonce))) << "a proof cannot be sent back";
  Key otherKey = key;
  otherKey[31] ^= 1;
  EXPECT_FALSE(equal(proof, proveConnector(otherKey, hello, nonce)));
  Nonce otherNonce = nonce;
  otherNonce[0] ^= 1;
  EXPECT_FALSE(equal(proof, proveConnector(key, hello, otherNonce)));
  for (size_t i = 0; i < sizeof hello; ++i) {
    Hello other = hello;
    reinterpret_cast<uint8_t*>(&other)[i] ^= 1;
    EXPECT_FALSE(equal(proof, proveConnector(key, other, nonce))) << i;
  }
}

TEST(Key, IsGoneWhenForgotten) {
  Key key{};
  fillRandom(key);
  forget(key);
  EXPECT_EQ(key, Key{});
}

}  // namespace
}  // namespace tutti::transport::socket::handshake_test
