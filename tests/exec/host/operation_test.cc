#include "exec/host/operation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>

#include "core/allocations.h"
#include "interleaved.h"

namespace tutti::exec::host::operation_test {
namespace {

class AllReduceByHand : public testing::TestWithParam<std::tuple<const char*, int32_t, int32_t>> {};

TEST_P(AllReduceByHand, GivesTheSumInAnyOrderOfDriving) {
  const auto [algorithm, ranks, channels] = GetParam();
  plan::Settings settings = settingsOf(2, 256, algorithm);
  settings.channels = channels;
  PlannedRanks planned(ranks, settings);
  for (const size_t count : {1U, 5U, 64U, 65U, 1000U, 5000U}) {
    const Buffers in = filled(ranks, count);
    const auto expected = sumOfNumbers(ranks, count);
    const plan::Shape shape = shapeOf(Collective::AllReduce, DataType::I32, count);
    for (const bool backwards : {false, true}) {
      Buffers out = empty(ranks, count);
      Interleaved all;
      std::vector<size_t> order;
      for (int32_t r = 0; r < ranks; ++r) {
        const auto i = static_cast<size_t>(r);
        all.add(planned.call(r, shape, in[i].data(), out[i].data()));
        order.insert(backwards ? order.begin() : order.end(), i);
      }
      ASSERT_TRUE(all.run(order)) << algorithm << " of " << count << ": rank 0 " << all[0].describeWait();
      for (const auto& result : out) ASSERT_EQ(result, expected) << algorithm << " of " << count;
      for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(all[i].describeWait(), "is finished");
    }
  }
}

TEST_P(AllReduceByHand, WorksInPlace) {
  const auto [algorithm, ranks, channels] = GetParam();
  plan::Settings settings = settingsOf(2, 128, algorithm);
  settings.channels = channels;
  PlannedRanks planned(ranks, settings);
  const size_t count = 3000;
  Buffers buffers = filled(ranks, count);
  Interleaved all;
  for (int32_t r = 0; r < ranks; ++r) {
    auto& buffer = buffers[static_cast<size_t>(r)];
    all.add(planned.call(r, shapeOf(Collective::AllReduce, DataType::I32, count), buffer.data(), buffer.data()));
  }
  ASSERT_TRUE(all.run());
  const auto expected = sumOfNumbers(ranks, count);
  for (const auto& result : buffers) EXPECT_EQ(result, expected);
}

INSTANTIATE_TEST_SUITE_P(Operation, AllReduceByHand,
                         testing::Combine(testing::Values("ring", "tree", "oneshot"), testing::Values(1, 2, 3, 4, 7),
                                          testing::Values(1, 2)));

TEST(Operation, RunsEveryOtherCollective) {
  constexpr int32_t kRanks = 3;
  constexpr size_t kCount = 700;
  constexpr int32_t kRoot = 1;
  const Buffers small = filled(kRanks, kCount);
  const Buffers large = filled(kRanks, kCount * kRanks);
  for (const Collective collective : {Collective::Broadcast, Collective::Reduce, Collective::AllGather, Collective::ReduceScatter,
                                      Collective::AllToAll, Collective::Scatter, Collective::Gather}) {
    SCOPED_TRACE(name(collective));
    PlannedRanks planned(kRanks, settingsOf(2, 512));
    const bool largeIn = collective == Collective::ReduceScatter || collective == Collective::AllToAll || collective == Collective::Scatter;
    Buffers out = empty(kRanks, kCount * kRanks);
    Interleaved all;
    for (size_t r = 0; r < kRanks; ++r)
      all.add(planned.call(static_cast<int32_t>(r), shapeOf(collective, DataType::I32, kCount, kRoot), (largeIn ? large : small)[r].data(),
                           out[r].data()));
    ASSERT_TRUE(all.run());

    const auto sum = sumOfNumbers(kRanks, kCount);
    const auto largeSum = sumOfNumbers(kRanks, kCount * kRanks);
    for (size_t r = 0; r < kRanks; ++r) {
      std::vector<int32_t> expected(kCount * kRanks, -1);
      const auto put = [&](size_t block, const std::vector<int32_t>& from, size_t fromBlock) {
        for (size_t i = 0; i < kCount; ++i) expected[block * kCount + i] = from[fromBlock * kCount + i];
      };
      switch (collective) {
        case Collective::Broadcast: put(0, small[kRoot], 0); break;
        case Collective::Reduce:
          if (r == kRoot) put(0, sum, 0);
          break;
        case Collective::ReduceScatter: put(0, largeSum, r); break;
        case Collective::Scatter: put(0, large[kRoot], r); break;
        case Collective::AllGather:
          for (size_t s = 0; s < kRanks; ++s) put(s, small[s], 0);
          break;
        case Collective::AllToAll:
          for (size_t s = 0; s < kRanks; ++s) put(s, large[s], r);
          break;
        case Collective::Gather:
          for (size_t s = 0; s < kRanks && r == kRoot; ++s) put(s, small[s], 0);
          break;
        default: break;
      }
      EXPECT_EQ(out[r], expected) << "rank " << r;
    }
  }
}

TEST(Operation, MakesWhatProgressItCanAndSaysSo) {
  PlannedRanks planned(2, settingsOf(2, 64, "ring"));
  const Buffers in = filled(2, 400);
  Buffers out = empty(2, 400);
  Interleaved all;
  for (int32_t r = 0; r < 2; ++r) {
    const auto i = static_cast<size_t>(r);
    all.add(planned.call(r, shapeOf(Collective::AllReduce, DataType::I32, 400), in[i].data(), out[i].data()));
  }
  EXPECT_EQ(all.advance(0), Poll::Pending);
  EXPECT_TRUE(all[0].moved()) << "its first contribution goes out without the peer";
  EXPECT_EQ(all.advance(0), Poll::Pending);
  EXPECT_FALSE(all[0].moved()) << "nothing to do before the peer has moved";
  EXPECT_EQ(all[0].describeWait(), "waits for rank 1, slice 0 step 1");
  EXPECT_EQ(all.advance(1), Poll::Pending);
  EXPECT_TRUE(all[1].moved());
  EXPECT_EQ(all.advance(0), Poll::Pending);
  EXPECT_TRUE(all[0].moved());
  ASSERT_TRUE(all.run());
  EXPECT_EQ(out[0], sumOfNumbers(2, 400));
}

TEST(Operation, AOneShotWaitsForTheArrivalOfEachPeer) {
  PlannedRanks planned(3, settingsOf(2, 64, "oneshot"));
  const Buffers in = filled(3, 8);
  Buffers out = empty(3, 8);
  Interleaved all;
  for (int32_t r = 0; r < 3; ++r) {
    const auto i = static_cast<size_t>(r);
    all.add(planned.call(r, shapeOf(Collective::AllReduce, DataType::I32, 8), in[i].data(), out[i].data()));
  }
  EXPECT_EQ(all.advance(0), Poll::Pending);
  EXPECT_EQ(all[0].describeWait(), "waits for the arrival of rank 1, slice 0");
  EXPECT_EQ(all.advance(1), Poll::Pending);
  EXPECT_EQ(all.advance(0), Poll::Pending);
  EXPECT_EQ(all[0].describeWait(), "waits for the arrival of rank 2, slice 0");
  EXPECT_EQ(all.advance(2), Poll::Ready);
  EXPECT_EQ(all.advance(0), Poll::Ready);
  EXPECT_EQ(all.advance(1), Poll::Ready);
  for (const auto& result : out) EXPECT_EQ(result, sumOfNumbers(3, 8));
}

TEST(Operation, OneShotsFollowEachOtherWithoutABarrier) {
  PlannedRanks planned(3, settingsOf(2, 64, "oneshot"));
  constexpr size_t kCount = 20000;  // several slices of the window
  const Buffers in = filled(3, kCount);
  for (int call = 0; call < 5; ++call) {
    Buffers out = empty(3, kCount);
    Interleaved all;
    for (int32_t r = 0; r < 3; ++r) {
      const auto i = static_cast<size_t>(r);
      all.add(planned.call(r, shapeOf(Collective::AllReduce, DataType::I32, kCount), in[i].data(), out[i].data()));
    }
    ASSERT_TRUE(all.run({2, 0, 1}));
    for (const auto& result : out) ASSERT_EQ(result, sumOfNumbers(3, kCount)) << call;
  }
}

struct Mismatch {
  plan::Shape first;
  plan::Shape second;
  const char* algorithm;
  const char* expected[2];  // both in the text of either side
};

TEST(Operation, CallsThatDoNotMatchAreNamedOnBothSides) {
  const auto reduce = [](uint64_t count, DataType type = DataType::I32, ReduceOp op = ReduceOp::Sum) {
    plan::Shape shape = shapeOf(Collective::AllReduce, type, count);
    shape.op = op;
    return shape;
  };
  const Mismatch cases[] = {
      {reduce(100), reduce(101), "ring", {"AllReduce #0 of 100 int32, sum", "AllReduce #0 of 101 int32, sum"}},
      {reduce(100), reduce(100, DataType::F32), "ring", {"AllReduce #0 of 100 int32, sum", "AllReduce #0 of 100 float, sum"}},
      {reduce(100),
       reduce(100, DataType::I32, ReduceOp::Max),
       "tree",
       {"AllReduce #0 of 100 int32, sum", "AllReduce #0 of 100 int32, max"}},
      {reduce(4), reduce(5), "oneshot", {"AllReduce #0 of 4 int32, sum", "AllReduce #0 of 5 int32, sum"}},
      {shapeOf(Collective::Broadcast, DataType::I32, 50, 0),
       reduce(50),
       "ring",
       {"Broadcast #0 of 50 int32, root 0", "AllReduce #0 of 50"}},
      {shapeOf(Collective::AllGather, DataType::I32, 50),
       shapeOf(Collective::ReduceScatter, DataType::I32, 50),
       "",
       {"AllGather #0 of 50 int32", "ReduceScatter #0 of 50 int32, sum"}},
      {messageShape(10, 1, false), messageShape(12, 0, true), "", {"a message of 10 bytes", "a message of 12 bytes"}},
  };
  for (const Mismatch& c : cases) {
    SCOPED_TRACE(c.expected[1]);
    PlannedRanks planned(2, settingsOf(4, 1024, c.algorithm));
    std::vector<int32_t> in(1000);
    Buffers out = empty(2, 1000);
    Interleaved all;
    all.add(planned.call(0, c.first, in.data(), out[0].data()));
    all.add(planned.call(1, c.second, in.data(), out[1].data()));
    for (int round = 0; round < 10; ++round)
      for (const size_t i : {0U, 1U})
        if (all.poll(i) == Poll::Pending) all.advance(i);
    int failures = 0;
    for (const size_t i : {0U, 1U}) {
      if (all.poll(i) != Poll::Failed) continue;
      ++failures;
      const Status& status = all[i].status();
      EXPECT_EQ(status.code(), Code::InvalidUsage);
      EXPECT_NE(status.text().find(format("rank {} called {}", i, c.expected[i])), std::string::npos) << status.text();
      EXPECT_NE(status.text().find(format("rank {} called {}", 1 - i, c.expected[1 - i])), std::string::npos) << status.text();
    }
    EXPECT_GE(failures, 1);
  }
}

TEST(Operation, AMissedCallIsNoticedByItsNumber) {
  PlannedRanks planned(2, settingsOf(4, 1024, "ring"));
  Buffers buffers = filled(2, 16);
  const plan::Shape shape = shapeOf(Collective::AllReduce, DataType::I32, 16);
  (void)planned.call(1, shape, nullptr, nullptr);  // rank 1 has made one call more
  Interleaved all;
  for (int32_t r = 0; r < 2; ++r) {
    auto& buffer = buffers[static_cast<size_t>(r)];
    all.add(planned.call(r, shape, buffer.data(), buffer.data()));
  }
  EXPECT_FALSE(all.run());
  const size_t failed = all.poll(0) == Poll::Failed ? 0 : 1;
  EXPECT_NE(all[failed].status().text().find("AllReduce #0"), std::string::npos) << all[failed].status().text();
  EXPECT_NE(all[failed].status().text().find("AllReduce #1"), std::string::npos);
}

TEST(Operation, ScalesEveryContributionByTheFactorOfTheCall) {
  for (const char* algorithm : {"ring", "tree", "oneshot"}) {
    SCOPED_TRACE(algorithm);
    PlannedRanks planned(3, settingsOf(2, 64, algorithm));
    plan::Shape shape = shapeOf(Collective::AllReduce, DataType::F32, 50);
    shape.scaling.hasFactor = true;
    const std::vector<float> in(50, 2.0F);
    std::vector<std::vector<float>> out(3, std::vector<float>(50, -1.0F));
    const float late = 0.5F;  // read when the call starts
    Interleaved all;
    for (int32_t r = 0; r < 3; ++r) {
      PlannedCall call = planned.call(r, shape, in.data(), out[static_cast<size_t>(r)].data());
      const float factor = 1.5F;
      std::memcpy(&call.factor, &factor, sizeof factor);
      if (r == 2) call.factorSource = &late;
      all.add(std::move(call));
    }
    ASSERT_TRUE(all.run());
    for (const auto& result : out)
      for (const float value : result) ASSERT_EQ(value, 2.0F * 1.5F + 2.0F * 1.5F + 2.0F * 0.5F);
  }
}

TEST(Operation, DividesTheFinishedIntegerSumOnce) {
  for (const char* algorithm : {"ring", "tree", "oneshot"}) {
    PlannedRanks planned(3, settingsOf(2, 64, algorithm));
    plan::Shape shape = shapeOf(Collective::AllReduce, DataType::I32, 50);
    shape.scaling.divisor = 3;
    const Buffers in = filled(3, 50);
    Buffers out = empty(3, 50);
    Interleaved all;
    for (int32_t r = 0; r < 3; ++r) {
      const auto i = static_cast<size_t>(r);
      all.add(planned.call(r, shape, in[i].data(), out[i].data()));
    }
    ASSERT_TRUE(all.run());
    auto expected = sumOfNumbers(3, 50);
    for (int32_t& value : expected) value /= 3;
    for (const auto& result : out) EXPECT_EQ(result, expected) << algorithm;
  }
}

TEST(Operation, IsUsedAgainWithoutAllocating) {
  PlannedRanks planned(2, settingsOf(2, 256));
  Buffers in = filled(2, 600);
  Buffers out = empty(2, 600);
  const plan::Shape shape = shapeOf(Collective::AllReduce, DataType::I32, 600);
  Operation operations[2];
  const auto runOnce = [&](const PlannedCall(&calls)[2]) {
    for (size_t i = 0; i < 2; ++i) operations[i].start(calls[i]);
    Poll polls[2] = {Poll::Pending, Poll::Pending};
    while (polls[0] == Poll::Pending || polls[1] == Poll::Pending)
      for (size_t i = 0; i < 2; ++i)
        if (polls[i] == Poll::Pending) polls[i] = operations[i].advance();
  };
  PlannedCall calls[2] = {planned.call(0, shape, in[0].data(), out[0].data()), planned.call(1, shape, in[1].data(), out[1].data())};
  runOnce(calls);
  const uint64_t before = allocations.load();
  for (int i = 0; i < 10; ++i) {
    for (PlannedCall& call : calls) call.windowEpoch += static_cast<uint64_t>(call.plan->geometry.slices);
    runOnce(calls);
  }
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(out[0], sumOfNumbers(2, 600));
}

/// Long enough that both ways are tried, and one is chosen.
TEST(Operation, CallsWithAChoiceTryBothWaysToTheCache) {
  constexpr uint64_t kCount = 4000;
  plan::Settings settings = settingsOf(2, 256);
  settings.cacheShare = 32768;
  PlannedRanks planned(2, settings);
  Buffers in = filled(2, kCount);
  Buffers out = empty(2, kCount);
  const plan::Shape shape = shapeOf(Collective::AllReduce, DataType::I32, kCount);
  PlannedCall calls[2] = {planned.call(0, shape, in[0].data(), out[0].data()), planned.call(1, shape, in[1].data(), out[1].data())};
  Operation operations[2];
  constexpr uint64_t kCalls = CacheChoice::kPeriod + 4 * CacheChoice::kTries;
  for (uint64_t i = 0; i < kCalls; ++i) {
    for (size_t r = 0; r < 2; ++r) {
      operations[r].start(calls[r]);
      const uint64_t at = i % CacheChoice::kPeriod;
      if (at < 2 * CacheChoice::kTries) {
        ASSERT_EQ(operations[r].storesPast(), at >= CacheChoice::kTries) << i;
      }
    }
    Poll polls[2] = {Poll::Pending, Poll::Pending};
    while (polls[0] == Poll::Pending || polls[1] == Poll::Pending)
      for (size_t r = 0; r < 2; ++r)
        if (polls[r] == Poll::Pending) polls[r] = operations[r].advance();
    ASSERT_EQ(out[0], sumOfNumbers(2, kCount)) << i;
    ASSERT_EQ(out[1], out[0]) << i;
    for (PlannedCall& call : calls) call.windowEpoch += static_cast<uint64_t>(call.plan->geometry.slices * call.plan->rounds);
    out = empty(2, kCount);
    for (size_t r = 0; r < 2; ++r) calls[r].out = out[r].data();
  }
  for (const PlannedCall& call : calls) {
    ASSERT_NE(call.plan->cacheChoice, nullptr);
    EXPECT_EQ(call.plan->cacheChoice->begin().number, kCalls) << "each was counted";
  }
}

TEST(Operation, AfterAFailureItStartsAfresh) {
  PlannedRanks planned(2, settingsOf(4, 64));
  std::vector<int32_t> out(16);
  const std::vector<int32_t> in = numbers(0, 16);
  PlannedCall wrong = planned.call(1, messageShape(8, 0, true), nullptr, out.data());
  PlannedCall send = planned.call(0, messageShape(64, 1, false), in.data(), nullptr);
  Operation sender;
  Operation receiver;
  sender.start(send);
  receiver.start(wrong);
  EXPECT_EQ(sender.advance(), Poll::Ready);
  EXPECT_EQ(receiver.advance(), Poll::Failed);
  PlannedCall right = planned.call(1, messageShape(64, 0, true), nullptr, out.data());
  receiver.start(right);
  EXPECT_TRUE(receiver.status().ok());
  EXPECT_EQ(receiver.advance(), Poll::Ready) << "the refused message was left as it was";
  EXPECT_EQ(out, in);
}

}  // namespace
}  // namespace tutti::exec::host::operation_test
