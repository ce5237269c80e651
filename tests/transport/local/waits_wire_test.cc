#include "transport/local/waits_wire.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace tutti::transport::local::waits_wire_test {
namespace {

RankWait sampleWait() {
  RankWait wait;
  ChainWait& chain = wait.chains.emplace_back();
  chain.call = {Collective::Reduce, DataType::F16, 3, 5, 77, 12, true};
  chain.following = 4;
  chain.slice = 1, chain.slices = 2, chain.step = 3, chain.steps = 9;
  chain.words = "waits for rank 2";
  LaneWait& lane = chain.lanes.emplace_back();
  lane.awaits = {Rank(2)};
  lane.partners = {Rank(2), Rank(7)};
  lane.ownLane = 1;
  lane.mayMove = true;
  chain.lanes.emplace_back().finished = true;
  wait.begunCollectives = 13;
  wait.sent = {1, 0, 2};
  wait.received = {0, 9, 0};
  return wait;
}

std::span<const char> spanOf(const std::string& bytes) { return {bytes.data(), bytes.size()}; }

TEST(WaitsWire, AWaitComesBackAsItWas) {
  const auto back = decodeWait(spanOf(encodeWait(sampleWait())));
  ASSERT_TRUE(back);
  ASSERT_EQ(back->chains.size(), 1U);
  const ChainWait& chain = back->chains[0];
  EXPECT_EQ(chain.call, sampleWait().chains[0].call);
  EXPECT_EQ(chain.following, 4U);
  EXPECT_EQ(chain.steps, 9U);
  EXPECT_EQ(chain.words, "waits for rank 2");
  ASSERT_EQ(chain.lanes.size(), 2U);
  EXPECT_EQ(chain.lanes[0].partners, (std::vector<Rank>{Rank(2), Rank(7)}));
  EXPECT_TRUE(chain.lanes[0].mayMove && chain.lanes[1].finished && !chain.lanes[0].finished);
  EXPECT_EQ(back->begunCollectives, 13U);
  EXPECT_EQ(back->received, (std::vector<uint64_t>{0, 9, 0}));
}

TEST(WaitsWire, AVerdictComesBackWithoutWhatTheSearchNeeds) {
  Verdict verdict;
  verdict.ending = Ending::Departed;
  verdict.cause = error(Code::RemoteError, "rank 3 is gone");
  verdict.rank = Rank(1);
  verdict.waitedMs = 250;
  verdict.call = sampleWait().chains[0].call;
  verdict.mismatch = {{Rank(0), *verdict.call}};
  verdict.missing = {Rank(3)};
  verdict.ranks = {{RankReport::State::Waiting, 5, sampleWait()}, {}};
  verdict.suspects = {{Rank(3), {"node7", "socket 10.0.0.3"}}};
  const auto back = decodeVerdict(spanOf(encodeVerdict(verdict)));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->ending, Ending::Departed);
  ASSERT_EQ(back->suspects.size(), 1U);
  EXPECT_EQ(back->suspects[0].rank, Rank(3));
  EXPECT_EQ(back->suspects[0].way.host, "node7");
  EXPECT_EQ(back->suspects[0].way.link, "socket 10.0.0.3");
  EXPECT_EQ(back->cause.text(), "rank 3 is gone");
  EXPECT_EQ(back->cause.code(), Code::RemoteError);
  EXPECT_EQ(back->waitedMs, 250);
  EXPECT_EQ(back->call, verdict.call);
  EXPECT_EQ(back->missing, verdict.missing);
  ASSERT_EQ(back->ranks.size(), 2U);
  EXPECT_EQ(back->ranks[0].wait.chains[0].words, "waits for rank 2");
  EXPECT_TRUE(back->ranks[0].wait.chains[0].lanes.empty());
}

TEST(WaitsWire, EveryTruncationIsRefused) {
  const std::string whole = encodeWait(sampleWait());
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(decodeWait({whole.data(), size})) << size;
}

/// Damaged bytes give nothing or something, never a fault (run under the sanitizers) and never a value that no enumeration has.
TEST(WaitsWire, DamageIsHarmless) {
  std::mt19937_64 random(7);
  Verdict verdict;
  verdict.cause = error(Code::RemoteError, "why");
  verdict.ranks = {{RankReport::State::Waiting, 5, sampleWait()}};
  verdict.suspects = {{Rank(0), {"host", "link"}}};
  const std::string wait = encodeWait(sampleWait()), whole = encodeVerdict(verdict);
  for (int i = 0; i < 20000; ++i) {
    std::string a = wait, b = whole;
    for (int k = 0; k < 3; ++k) {
      a[random() % a.size()] = static_cast<char>(random());
      b[random() % b.size()] = static_cast<char>(random());
    }
    if (const auto back = decodeWait(spanOf(a))) {
      for (const ChainWait& chain : back->chains) EXPECT_LT(static_cast<int>(chain.call.collective), kNumCollectives + 2);
    }
    if (const auto back = decodeVerdict(spanOf(b))) {
      EXPECT_LT(static_cast<int>(back->ending), 4);
    }
  }
}

TEST(WaitsWire, RanksAndLanesThatAreNotThereAreFound) {
  RankWait good;
  good.sent = {0, 0, 0};
  ChainWait chain;
  chain.call.root = 2;
  LaneWait lane;
  lane.awaits = {Rank(2)};
  lane.ownLane = 0;
  chain.lanes = {lane};
  good.chains = {chain};
  EXPECT_TRUE(isWaitAmong(3, good));
  EXPECT_FALSE(isWaitAmong(2, good));
  for (const auto& spoil : std::vector<std::function<void(RankWait&)>>{
           [](RankWait& w) { w.sent.pop_back(); }, [](RankWait& w) { w.received = {1}; }, [](RankWait& w) { w.chains[0].call.root = 3; },
           [](RankWait& w) { w.chains[0].lanes[0].awaits[0] = Rank(-1); }, [](RankWait& w) { w.chains[0].lanes[0].partners = {Rank(7)}; },
           [](RankWait& w) { w.chains[0].lanes[0].ownLane = 1; }}) {
    RankWait bad = good;
    spoil(bad);
    EXPECT_FALSE(isWaitAmong(3, bad));
  }
}

}  // namespace
}  // namespace tutti::transport::local::waits_wire_test
