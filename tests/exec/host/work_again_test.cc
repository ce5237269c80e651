// Repeated calls of few instructions: what they leave behind is what ordinary ones do, wherever they have to wait.
#include <gtest/gtest.h>

#include "exec/host/work.h"
#include "planned_ranks.h"

namespace tutti::exec::host {
namespace {

/// Ranks that make the same call again and again, each with a work of its own.
class Repeats {
 public:
  Repeats(int32_t ranks, const plan::Shape& shape, bool inPlace, std::string_view algorithm = "")
      : planned_(ranks, settingsOf(4, 4096, algorithm)), shape_(shape), inPlace_(inPlace) {
    for (int32_t r = 0; r < ranks; ++r) {
      turns_.push_back(planned_.makeTurn(r));
      works_.push_back(std::make_unique<Work>(turns_.back()));
      in_.push_back({});
      out_.push_back(std::vector<int32_t>(shape.count));
    }
  }

  transport::local::Hub& hub() { return planned_.hub(); }
  Work& work(int32_t rank) { return *works_[static_cast<size_t>(rank)]; }
  /// Only the first call is planned; the work keeps it.
  Poll begin(int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    in_[r] = inputOf(rank);
    out_[r].assign(shape_.count, -1);
    if (inPlace_) out_[r] = in_[r];
    void* const out = out_[r].data();
    const void* const in = inPlace_ ? out : in_[r].data();
    if (made_ == 0) {
      works_[r]->reset(0);
      works_[r]->beginChain();
      works_[r]->add(planned_.call(rank, shape_, in, out));
      return works_[r]->advance();
    }
    PlannedCall& call = works_[r]->repeat(made_);
    call.in = in;
    call.out = out;
    call.call.sequence = call.event.sequence = made_;
    call.signature = packSignature(call.call) ^ spoil_[rank == 1 ? 1 : 0];
    if (call.plan->usesWindow) call.windowEpoch += static_cast<uint64_t>(call.plan->geometry.slices * call.plan->rounds);
    return works_[r]->advanceAgain();
  }
  /// One call of all, the ranks beginning with `first`.
  void makeOne(int32_t first) {
    const int32_t ranks = planned_.ranks();
    std::vector<Poll> polls(static_cast<size_t>(ranks));
    for (int32_t i = 0; i < ranks; ++i) polls[static_cast<size_t>((first + i) % ranks)] = begin((first + i) % ranks);
    for (int round = 0; round < 100; ++round)
      for (int32_t r = 0; r < ranks; ++r)
        if (polls[static_cast<size_t>(r)] == Poll::Pending) polls[static_cast<size_t>(r)] = work(r).advance();
    for (int32_t r = 0; r < ranks; ++r) {
      const auto at = static_cast<size_t>(r);
      ASSERT_EQ(polls[at], Poll::Ready) << "rank " << r << ", call " << made_;
      if (shape_.collective == Collective::Reduce && r != shape_.root.value) continue;
      ASSERT_EQ(out_[at], expected()) << "rank " << r << ", call " << made_;
      ASSERT_EQ(turns_[at]->finished.load(), made_ + 1);
    }
    ++made_;
  }
  /// The signature of rank 1 is another one from now on.
  void spoil() { spoil_[1] = 1; }

 private:
  std::vector<int32_t> inputOf(int32_t rank) const { return numbers(rank + static_cast<int32_t>(made_), shape_.count); }
  std::vector<int32_t> expected() const {
    if (shape_.collective == Collective::Broadcast) return inputOf(shape_.root.value);
    std::vector<int32_t> sum(shape_.count);
    for (int32_t r = 0; r < planned_.ranks(); ++r) {
      const auto in = inputOf(r);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += in[i];
    }
    return sum;
  }

  PlannedRanks planned_;
  plan::Shape shape_;
  bool inPlace_;
  std::vector<std::shared_ptr<Turn>> turns_;
  std::vector<std::unique_ptr<Work>> works_;
  std::vector<std::vector<int32_t>> in_;
  std::vector<std::vector<int32_t>> out_;
  uint64_t made_ = 0;
  uint64_t spoil_[2] = {0, 0};
};

struct Case {
  Collective collective;
  std::string_view algorithm;
};

TEST(WorkAgain, GivesWhatAnOrdinaryCallGives) {
  constexpr Case kCases[] = {{Collective::Broadcast, ""},       {Collective::Broadcast, "chain"}, {Collective::Broadcast, "ring"},
                             {Collective::AllReduce, "oneshot"}, {Collective::AllReduce, "twoshot"}, {Collective::AllReduce, "ring"},
                             {Collective::AllReduce, "tree"},    {Collective::Reduce, "chain"}};
  for (const Case& c : kCases) {
    for (const int32_t ranks : {2, 3, 5}) {
      for (const uint64_t count : {1, 3, 23, 24, 25, 300}) {  // 24 are as many bytes as a head holds
        for (const bool inPlace : {false, true}) {
          SCOPED_TRACE(testing::Message() << name(c.collective) << ' ' << c.algorithm << ", " << ranks << " ranks, " << count << " elems");
          Repeats calls(ranks, shapeOf(c.collective, DataType::I32, count, c.collective == Collective::AllReduce ? 0 : ranks - 1), inPlace,
                        c.algorithm);
          for (int32_t i = 0; i < 40; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(i % ranks));
        }
      }
    }
  }
}

TEST(WorkAgain, NoticesAnotherCallOfAPeer) {
  for (const Collective collective : {Collective::Broadcast, Collective::AllReduce}) {
    Repeats calls(2, shapeOf(collective, DataType::I32, 2), false);
    for (int32_t i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
    calls.spoil();
    (void)calls.begin(0);
    EXPECT_EQ(calls.begin(1), Poll::Failed);
    EXPECT_EQ(calls.work(1).status().code(), Code::InvalidUsage);
    EXPECT_EQ(calls.work(1).advance(), Poll::Failed) << "stays so";
  }
}

TEST(WorkAgain, EndsAfterAnAbortBetweenTwoCalls) {
  Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  for (int32_t i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
  calls.hub().failAll(Status(Code::RemoteError, "rank 1 aborted"));
  EXPECT_EQ(calls.begin(0), Poll::Failed);
  EXPECT_EQ(calls.work(0).status().code(), Code::RemoteError);
}

TEST(WorkAgain, EndsAfterAnAbortWhileItWaits) {
  Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  for (int32_t i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
  EXPECT_EQ(calls.begin(1), Poll::Pending);
  calls.hub().failAll(Status(Code::RemoteError, "rank 0 aborted"));
  EXPECT_EQ(calls.work(1).advance(), Poll::Failed);
  EXPECT_EQ(calls.work(1).status().code(), Code::RemoteError);
}

}  // namespace
}  // namespace tutti::exec::host
