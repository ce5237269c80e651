#include "progress/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "linked.h"

namespace tutti::progress::engine_test {
namespace {

std::vector<std::byte> pattern(uint64_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  std::mt19937_64 random(seed);
  for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i % 64 == 0 ? random() : i * 7 + seed);
  return data;
}

class EngineOver : public testing::TestWithParam<const char*> {};

TEST_P(EngineOver, MovesASlotFromOnePipeToAnother) {
  Pair pair(GetParam());
  Link* const link = pair.link();
  ASSERT_NE(link, nullptr);
  const auto data = pattern(1000, 1);
  link->push(data.data(), 8, 77);
  link->push(data.data(), 1000, 78);
  ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); })) << pair.from->status().text() << pair.to->status().text();
  EXPECT_EQ(link->recv.head().signature, 77U);
  EXPECT_EQ(link->recv.head().bytes, 8U);
  EXPECT_EQ(std::memcmp(link->recv.payload(), data.data(), 8), 0);
  link->recv.release();
  ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
  EXPECT_EQ(link->recv.head().signature, 78U);
  ASSERT_EQ(link->recv.head().bytes, 1000U);
  EXPECT_EQ(std::memcmp(link->recv.payload(), data.data(), 1000), 0);
}

/// A long message comes into a head that had a short one's bytes: whether its slot is fresh has nothing to do with them.
TEST_P(EngineOver, SlotsOfLongMessagesAreFreshWhateverTheirHeadsHeld) {
  Pair pair(GetParam());
  Link* const link = pair.link();
  ASSERT_NE(link, nullptr);
  const std::vector<std::byte> data(1000, std::byte{0xff});
  for (const uint64_t bytes : {uint64_t{64}, uint64_t{1000}}) {
    for (uint64_t i = 0; i < 100; ++i) {
      link->push(data.data(), bytes, i);
      ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); }));
      EXPECT_EQ(link->recv.head().isFresh(), bytes > 64) << i;
      link->recv.release();
    }
  }
}

/// Random sizes from nothing to 8 MiB, staged and by reference, in order and unharmed.
TEST_P(EngineOver, CarriesEveryByteInOrder) {
  constexpr int kMessages = 300;
  constexpr uint64_t kMost = 8 << 20;
  Pair pair(GetParam());
  Link* const link = pair.link();
  ASSERT_NE(link, nullptr);
  std::mt19937_64 random(20261121);
  std::vector<uint64_t> sizes;
  for (int i = 0; i < kMessages; ++i) {
    const auto bits = static_cast<int>(random() % 24);
    sizes.push_back(i % 50 == 49 ? kMost : random() % ((uint64_t{1} << bits) + 1));
  }
  const auto source = pattern(kMost + kMessages, 5);
  int sent = 0;
  int received = 0;
  while (received < kMessages) {
    while (sent < kMessages && link->send.ready(sizes[static_cast<size_t>(sent)])) {
      const uint64_t bytes = sizes[static_cast<size_t>(sent)];
      const std::byte* data = source.data() + sent;
      if (bytes > Link::kSlotBytes) {
        link->pushReference(data, bytes, static_cast<uint64_t>(sent));
      } else {
        link->push(data, bytes, static_cast<uint64_t>(sent));
      }
      ++sent;
    }
    ASSERT_TRUE(pair.driveUntil([&] { return link->recv.ready(); })) << received << " " << pair.to->status().text();
    const SlotHead& head = link->recv.head();
    ASSERT_EQ(head.signature, static_cast<uint64_t>(received));
    ASSERT_EQ(head.bytes, sizes[static_cast<size_t>(received)]);
    ASSERT_EQ(std::memcmp(link->recv.payload(), source.data() + received, head.bytes), 0) << received;
    link->recv.release();
    ++received;
  }
  ASSERT_TRUE(pair.driveUntil([&] { return link->send.drained(); }));
}

/// Has something to say, and looks whether passes are made meanwhile.
class SpeakingNetwork final : public transport::net::Network {
 public:
  std::string_view name() const override { return "Speaking"; }
  int32_t devices() const override { return 1; }
  Result<transport::net::Properties> properties(int32_t) const override { return transport::net::Properties{}; }
  Result<std::unique_ptr<transport::net::Listener>> listen(int32_t) override { return fail(Code::InternalError, "not asked for"); }
  Result<std::unique_ptr<transport::net::Connecting>> connect(int32_t, const transport::net::Handle&) override {
    return fail(Code::InternalError, "not asked for");
  }
  void speak() override {
    if (engine == nullptr || spoke) return;
    const uint64_t before = engine.load()->passes();
    std::thread([&] { (void)engine.load()->progress(); }).join();
    passes = engine.load()->passes() - before;
    spoke = true;
  }

  std::atomic<Engine*> engine{nullptr};
  std::atomic<bool> spoke{false};
  std::atomic<uint64_t> passes{0};
};

TEST(EngineThread, LetsTheNetworkSpeakOutsideOfPasses) {
  auto owner = std::make_unique<SpeakingNetwork>();
  SpeakingNetwork& network = *owner;
  const auto engine = makeEngine(std::move(owner));
  ASSERT_NE(engine, nullptr);
  network.engine = engine.get();
  engine->kick();
  ASSERT_TRUE(driveUntil([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, [&] { return network.spoke.load(); }));
  EXPECT_GE(network.passes, 1U) << "another thread can make one";
}

INSTANTIATE_TEST_SUITE_P(Families, EngineOver, testing::Values("127.0.0.1", "::1"));

}  // namespace
}  // namespace tutti::progress::engine_test
