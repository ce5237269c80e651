#include "bootstrap/gatherer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <memory>
#include <random>
#include <string>

namespace tutti::bootstrap::gatherer_test {
namespace {

struct Message {
  int32_t from;
  int32_t to;
  std::vector<std::byte> bytes;
};

/// All processes of a communicator, and the messages between them.
struct Play {
  /// `hostOf`: the host of each process.
  explicit Play(const std::vector<int32_t>& hostOf) {
    Membership all;
    for (size_t p = 0; p < hostOf.size(); ++p) {
      all.hosts.resize(std::max(all.hosts.size(), static_cast<size_t>(hostOf[p]) + 1));
      all.hosts[static_cast<size_t>(hostOf[p])].processes.push_back(static_cast<int32_t>(p));
      all.processes.push_back({p, 0, hostOf[p], {static_cast<int32_t>(p)}, {}});
    }
    sent.resize(hostOf.size());
    peers.resize(hostOf.size());
    for (size_t p = 0; p < hostOf.size(); ++p) {
      memberships.push_back(std::make_unique<Membership>(all));
      memberships.back()->ownProcess = static_cast<int32_t>(p);
      memberships.back()->ownHost = hostOf[p];
      const auto from = static_cast<int32_t>(p);
      gatherers.push_back(std::make_unique<Gatherer>(*memberships.back(), 7, [this, from](int32_t to, std::vector<std::byte> bytes) {
        ++sent[static_cast<size_t>(from)];
        bytes.erase(bytes.begin(), bytes.begin() + 8);  // the number is the mesh's business
        wire.push_back({from, to, std::move(bytes)});
      }));
    }
  }

  static std::vector<std::byte> partOf(size_t process) { return std::vector<std::byte>(process % 5, static_cast<std::byte>(process)); }
  void start(size_t process) { gatherers[process]->start(partOf(process)); }
  /// Delivers a message of those under way; any may be the next.
  bool deliver(std::mt19937& random) {
    if (wire.empty()) return false;
    const size_t which = random() % wire.size();
    const Message message = std::move(wire[which]);
    wire.erase(wire.begin() + static_cast<std::ptrdiff_t>(which));
    EXPECT_TRUE(gatherers[static_cast<size_t>(message.to)]->take(message.from, message.bytes));
    return true;
  }

  std::vector<std::unique_ptr<Membership>> memberships;
  std::vector<std::unique_ptr<Gatherer>> gatherers;
  std::deque<Message> wire;
  std::vector<int> sent;
  std::vector<int> peers;
};

std::vector<int32_t> spread(int32_t processes, int32_t hosts, std::mt19937& random) {
  std::vector<int32_t> hostOf;
  int32_t known = 0;
  for (int32_t p = 0; p < processes; ++p) {
    const bool isNew = known < hosts && (processes - p <= hosts - known || random() % 2 == 0);
    hostOf.push_back(isNew || known == 0 ? known++ : static_cast<int32_t>(random() % static_cast<uint32_t>(known)));
  }
  return hostOf;
}

TEST(Gatherer, EverybodyGetsAllPartsInAnyOrderOfThings) {
  std::mt19937 random(42);
  for (int32_t round = 0; round < 300; ++round) {
    const auto processes = static_cast<int32_t>(1 + random() % 40);
    const auto hosts = static_cast<int32_t>(1 + random() % static_cast<uint32_t>(processes));
    Play play(spread(processes, hosts, random));
    std::vector<size_t> order(static_cast<size_t>(processes));
    for (size_t p = 0; p < order.size(); ++p) order[p] = p;
    std::shuffle(order.begin(), order.end(), random);
    while (!order.empty() || !play.wire.empty()) {
      if (!order.empty() && (play.wire.empty() || random() % 3 == 0)) {
        play.start(order.back());
        order.pop_back();
      } else {
        play.deliver(random);
      }
    }
    for (const auto& gatherer : play.gatherers) {
      ASSERT_TRUE(gatherer->isComplete()) << processes << " processes on " << hosts;
      const Gathered result = gatherer->result();
      for (size_t p = 0; p < result.size(); ++p) ASSERT_EQ(result[p], Play::partOf(p));
    }
  }
}

TEST(Gatherer, MessagesOfAProcessGrowWithTheLogarithm) {
  for (const int32_t hosts : {1, 2, 16, 100, 512}) {
    std::mt19937 random(1);
    Play play(spread(512, hosts, random));
    for (size_t p = 0; p < 512; ++p) play.start(p);
    while (play.deliver(random)) {
    }
    for (const auto& gatherer : play.gatherers) ASSERT_TRUE(gatherer->isComplete());
    EXPECT_LE(*std::max_element(play.sent.begin(), play.sent.end()), 2 * std::bit_width(512U)) << hosts << " hosts";
  }
}

TEST(Gatherer, KnowsWhoIsMissing) {
  std::mt19937 random(3);
  Play play({0, 0, 0, 1, 1, 1});
  for (const size_t p : {0, 1, 2, 3, 5}) play.start(p);
  while (play.deliver(random)) {
  }
  EXPECT_EQ(play.gatherers[3]->missing(), std::vector<int32_t>{4}) << "the first of its host";
  EXPECT_TRUE(play.gatherers[3]->needs(4));
  EXPECT_FALSE(play.gatherers[3]->needs(5));
  EXPECT_TRUE(play.gatherers[0]->needs(3));
  play.start(4);
  while (play.deliver(random)) {
  }
  for (const auto& gatherer : play.gatherers) EXPECT_TRUE(gatherer->isComplete());
}

TEST(Gatherer, RefusesWhatMakesNoSense) {
  std::mt19937 random(5);
  Play play({0, 0, 1, 1});
  play.start(1);
  ASSERT_EQ(play.wire.size(), 1U);
  const Message good = play.wire.front();
  Gatherer& first = *play.gatherers[0];
  EXPECT_FALSE(first.take(2, good.bytes)) << "not from whom it could come";
  for (size_t size = 0; size < good.bytes.size(); ++size) EXPECT_FALSE(first.take(1, std::span(good.bytes).first(size))) << size;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(random() % 64);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() % 8 == 0 ? random() : random() % 3);
    Gatherer fresh(*play.memberships[0], 7, [](int32_t, const std::vector<std::byte>&) {});
    fresh.start({});
    (void)fresh.take(static_cast<int32_t>(random() % 4), bytes);
  }
  EXPECT_TRUE(first.take(1, good.bytes));
  EXPECT_FALSE(first.take(1, good.bytes)) << "once";
}

/// Process 0 would count its own part twice, and be complete without that of process 1; or never be complete, and wait for itself.
TEST(Gatherer, TakesExactlyThePartsThatTheSenderHas) {
  const auto messageWith = [](const std::vector<uint8_t>& of) {
    std::vector<std::byte> bytes = {std::byte{0}, std::byte{0}, static_cast<std::byte>(of.size()), {}, {}, {}};
    for (const uint8_t part : of) {
      bytes.push_back(static_cast<std::byte>(part));
      bytes.resize(bytes.size() + 7);  // the rest of its number, and no bytes
    }
    return bytes;
  };
  Play play({0, 0});
  Gatherer& early = *play.gatherers[0];
  for (const std::vector<uint8_t>& of : {std::vector<uint8_t>{0}, {}, {0, 1}, {1, 1}, {1, 0}})
    EXPECT_FALSE(early.take(1, messageWith(of))) << of.size();
  EXPECT_TRUE(early.take(1, messageWith({1})));
  play.start(0);
  EXPECT_TRUE(early.isComplete());
  EXPECT_TRUE(early.missing().empty());
}

}  // namespace
}  // namespace tutti::bootstrap::gatherer_test
