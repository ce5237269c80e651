// The slow path of a work, with time moved by hand.
#include <gtest/gtest.h>

#include "planned_ranks.h"

namespace tutti::exec::host::work_wait_test {
namespace {

using std::chrono::milliseconds;

struct Ranks {
  explicit Ranks(int32_t ranks) : planned(ranks) {
    for (int32_t r = 0; r < ranks; ++r) turns.push_back(planned.makeTurn(r));
  }
  std::unique_ptr<Work> work(int32_t rank, const plan::Shape& shape, uint64_t ticket = 0) {
    auto work = std::make_unique<Work>(turns[static_cast<size_t>(rank)]);
    work->reset(ticket);
    work->beginChain();
    work->add(planned.call(rank, shape, data.data(), data.data()));
    return work;
  }
  PlannedRanks planned;
  std::vector<std::shared_ptr<Turn>> turns;
  std::vector<std::byte> data = std::vector<std::byte>(1 << 20);
};

/// A call of no elements, which only the board knows of.
std::unique_ptr<Work> emptyCall(const std::shared_ptr<Turn>& turn, const Call& call) {
  auto work = std::make_unique<Work>(turn);
  work->reset(0);
  work->beginChain();
  PlannedCall planned;
  planned.call = call;
  work->add(planned);
  return work;
}

TEST(WorkWait, RootsThatShareTheirLowBitsAreToldApart) {
  const auto hub = *transport::local::Hub::make(4100);
  std::shared_ptr<Turn> turns[2];
  for (int32_t r = 0; r < 2; ++r) {
    turns[r] = std::make_shared<Turn>();
    turns[r]->hub = hub;
    turns[r]->rank = Rank(r);
  }
  const auto first = emptyCall(turns[0], {Collective::Broadcast, DataType::I32, 0, 2, 0, 0});
  const auto second = emptyCall(turns[1], {Collective::Broadcast, DataType::I32, 0, 4098, 0, 0});
  EXPECT_EQ(first->advance(), Poll::Ready);
  EXPECT_EQ(second->advance(), Poll::Failed);
  EXPECT_EQ(second->status().code(), Code::InvalidUsage);
  EXPECT_NE(second->status().text().find("root 4098, but rank 0 called Broadcast #0 of 0 int32, root 2"), std::string::npos)
      << second->status().text();
}

TEST(WorkWait, CountsThatShareTheirLowBitsAreToldApart) {
  Ranks ranks(2);
  const Call small{Collective::AllReduce, DataType::I32, 0, 0, 7, 0};
  Call large = small;
  large.count = (uint64_t{1} << 24) + 6;  // folds to 7
  ASSERT_EQ(packSignature(small), packSignature(large));
  ranks.planned.hub().board(Rank(1)).post(large);
  const auto work = ranks.work(0, shapeOf(Collective::AllReduce, DataType::I32, 7));
  EXPECT_EQ(work->advance(), Poll::Pending);
  work->inspect(milliseconds(0));
  EXPECT_EQ(work->advance(), Poll::Failed);
  EXPECT_NE(work->status().text().find("of 16777222 int32"), std::string::npos) << work->status().text();
}

TEST(WorkWait, EndsAtItsDeadlineAndNotBefore) {
  Ranks ranks(2);
  ranks.turns[0]->timeoutNs = 50'000'000;
  const auto work = ranks.work(0, shapeOf(Collective::AllReduce, DataType::I32, 4));
  EXPECT_EQ(work->advance(), Poll::Pending);
  work->inspect(milliseconds(1000));  // from here on it counts
  work->inspect(milliseconds(1049));
  EXPECT_EQ(work->advance(), Poll::Pending);
  work->inspect(milliseconds(1050));
  EXPECT_EQ(work->advance(), Poll::Failed);
  EXPECT_EQ(work->status().code(), Code::RemoteError);
  EXPECT_NE(work->status().text().find("rank 0 has waited 50 ms, which is past the deadline of 50 ms, in AllReduce #0 of 4 int32, sum"),
            std::string::npos)
      << work->status().text();
  EXPECT_EQ(ranks.planned.hub().latch(Rank(1)).code(), Code::RemoteError);
  const std::string json = verdictJson(ranks.planned.hub());
  EXPECT_NE(json.find(R"("arrived":[0],"missing":[1])"), std::string::npos) << json;
}

/// Whom a rank waits for may wait itself: the error says who holds them all up.
TEST(WorkWait, ADeadlineNamesWhomTheAwaitedRankWaitsFor) {
  Ranks ranks(3);
  ranks.turns[0]->timeoutNs = 50'000'000;
  const auto first = ranks.work(0, messageShape(8, 1, true));
  const auto second = ranks.work(1, messageShape(8, 2, true));
  for (Work* const work : {first.get(), second.get()}) EXPECT_EQ(work->advance(), Poll::Pending);
  second->inspect(milliseconds(0));
  second->inspect(milliseconds(5));
  first->inspect(milliseconds(0));
  first->inspect(milliseconds(50));
  EXPECT_EQ(first->advance(), Poll::Failed);
  const std::string text = first->status().text();
  EXPECT_NE(text.find("it waits for rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("; suspects rank 2 on "), std::string::npos) << text;
}

TEST(WorkWait, AMovementStartsTheDeadlineAnew) {
  Ranks ranks(2);
  ranks.turns[0]->timeoutNs = 50'000'000;
  const auto receiver = ranks.work(0, messageShape(900000, 1, true));
  const auto sender = ranks.work(1, messageShape(900000, 0, false));
  EXPECT_EQ(receiver->advance(), Poll::Pending);
  int rounds = 0;
  for (milliseconds now(0); receiver->advance() == Poll::Pending && rounds < 1000; now += milliseconds(20), ++rounds) {
    receiver->inspect(now);
    receiver->inspect(now + milliseconds(15));
    (void)sender->advance();
  }
  EXPECT_TRUE(receiver->status().ok()) << receiver->status().text();
  EXPECT_LT(rounds, 1000);
}

TEST(WorkWait, OnlyTheWorkWhoseTurnItIsCanBeLate) {
  Ranks ranks(1);
  ranks.turns[0]->timeoutNs = 1;
  const auto later = ranks.work(0, shapeOf(Collective::AllReduce, DataType::I32, 4), 1);
  EXPECT_EQ(later->advance(), Poll::Pending);
  later->inspect(milliseconds(0));
  later->inspect(milliseconds(1000));
  EXPECT_EQ(later->advance(), Poll::Pending);
  ranks.turns[0]->finished.store(1);
  EXPECT_EQ(later->advance(), Poll::Ready);
}

TEST(WorkWait, WithoutChecksNothingIsLookedAt) {
  Ranks ranks(2);
  for (const auto& turn : ranks.turns) {
    turn->checks = false;
    turn->timeoutNs = 1;
  }
  const auto first = ranks.work(0, shapeOf(Collective::Broadcast, DataType::I32, 4, 0));
  const auto second = ranks.work(1, shapeOf(Collective::Broadcast, DataType::I32, 4, 1));
  EXPECT_EQ(first->advance(), Poll::Ready);
  EXPECT_EQ(second->advance(), Poll::Ready) << "the roots differ, and nobody looks";
  EXPECT_FALSE(ranks.planned.hub().board(Rank(0)).find(0));
  const auto third = ranks.work(0, shapeOf(Collective::AllReduce, DataType::I32, 4), 1);
  EXPECT_EQ(third->advance(), Poll::Pending);
  third->inspect(milliseconds(0));
  third->inspect(milliseconds(1000));
  EXPECT_EQ(third->advance(), Poll::Pending);
}

TEST(WorkWait, AWorkThatIsDroppedFailsItsCommunicator) {
  Ranks ranks(2);
  (void)ranks.work(0, shapeOf(Collective::AllReduce, DataType::I32, 4));
  EXPECT_EQ(ranks.planned.hub().latch(Rank(1)).code(), Code::SystemError);
  EXPECT_EQ(ranks.turns[0]->finished.load(), 1U);
}

}  // namespace
}  // namespace tutti::exec::host::work_wait_test
