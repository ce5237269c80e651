#include "comm/courier.h"

#include <random>

#include "two_hosts.h"

namespace tutti::comm::courier_test {
namespace {

TEST(Courier, AMessageForAHubThatIsNotThereYetWaitsForIt) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0);
  left->depart(Rank(0), 5);
  (void)hosts.deliver();
  const auto right = hosts.makeHub(1);
  EXPECT_FALSE(right->departed(Rank(0)));
  hosts.courier(1).introduce(right);
  EXPECT_EQ(right->departed(Rank(0)), 5U);
}

TEST(Courier, FailuresGoToEveryProcessThatCanBeReached) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0);
  left->failAll(error(Code::SystemError, "no memory"));
  auto letters = hosts.post.takeAll();
  ASSERT_EQ(letters.size(), 3U);
  EXPECT_EQ(letters[0].to + letters[1].to, 1 + 2);
  EXPECT_EQ(letters[2].to, 1) << "how far its ranks had come, to one of the host";
  left->failAll(error(Code::SystemError, "again"));
  EXPECT_TRUE(hosts.post.takeAll().empty()) << "that is no news";
  hosts.post.gone = {1};
  left->remote()->failed(error(Code::SystemError, "no memory"));
  letters = hosts.post.takeAll();
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(letters.front().to, 2);
}

TEST(Courier, OtherNewsForAHostGoToOneProcessThatCanBeReached) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0);
  left->depart(Rank(0), 5);
  auto letters = hosts.post.takeAll();
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(letters.front().to, 1);
  hosts.post.gone = {1};
  left->depart(Rank(0), 6);
  letters = hosts.post.takeAll();
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(letters.front().to, 2) << "the next of that host";
}

TEST(Courier, WhatComesForAHubThatIsGoneGoesToTheNextProcessOfItsHost) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0);
  hosts.courier(1).dismiss(TwoHosts::kHub);
  left->depart(Rank(0), 5);
  const std::vector<std::byte> said = hosts.post.letters.front().message;
  const auto passedOn = hosts.deliver();
  ASSERT_EQ(passedOn.size(), 1U);
  EXPECT_EQ(passedOn.front().to, 2);
  EXPECT_EQ(passedOn.front().message, said);
}

TEST(Courier, WithoutANextOneItEndsThere) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0);
  hosts.courier(1).dismiss(TwoHosts::kHub);
  hosts.post.gone = {2};
  left->failAll(error(Code::SystemError, "no memory"));
  EXPECT_TRUE(hosts.deliver().empty());
}

/// The mesh lets nobody in who does not know the key; what comes is still not believed to be whole.
TEST(Courier, DamagedMessagesDoNothing) {
  TwoHosts hosts;
  const auto left = hosts.introduce(0), right = hosts.introduce(1);
  right->failAll(error(Code::SystemError, "words"));
  right->depart(Rank(1), 3);
  std::vector<std::vector<std::byte>> samples;
  for (const Letter& letter : hosts.post.takeAll())
    if (letter.to == 0) samples.push_back(letter.message);
  ASSERT_GE(samples.size(), 2U);
  const auto third = hosts.makeHub(0);
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> message = samples[random() % samples.size()];
    message.resize(random() % (message.size() + 1));
    for (size_t i = 16; i < message.size(); ++i)
      if (random() % 8 == 0) message[i] = static_cast<std::byte>(random());
    hosts.courier(0).hear(1, message);
  }
  for (uint32_t news = 0; news < 256; ++news) {
    std::vector<std::byte> bare(16);
    const uint64_t id = TwoHosts::kHub;
    std::memcpy(bare.data(), &id, sizeof id);
    bare[8] = static_cast<std::byte>(news);
    hosts.courier(0).hear(1, bare);
  }
  EXPECT_FALSE(third->latch(Rank(0)).tripped()) << "another hub";
  EXPECT_FALSE(left->departed(Rank(0))) << "no message can say that of a rank of this host";
}

}  // namespace
}  // namespace tutti::comm::courier_test
