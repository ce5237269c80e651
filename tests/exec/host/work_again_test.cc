// Repeated calls of few instructions: what they leave behind is what ordinary ones do, wherever they have to wait.
#include <gtest/gtest.h>

#include "exec/host/work.h"
#include "planned_ranks.h"

namespace tutti::exec::host::work_again_test {
namespace {

/// Ranks that make the same call again and again, each with a work of its own.
class Repeats {
 public:
  Repeats(int32_t ranks, const plan::Shape& shape, bool inPlace, std::string_view algorithm = "", uint32_t slots = 4)
      : planned_(ranks, settingsOf(slots, 4096, algorithm)), shape_(shape), inPlace_(inPlace) {
    for (int32_t r = 0; r < ranks; ++r) {
      turns_.push_back(planned_.makeTurn(r));
      works_.push_back(std::make_unique<Work>(turns_.back()));
      in_.push_back({});
      out_.push_back(std::vector<int32_t>(shape.count));
    }
    epochs_.resize(static_cast<size_t>(ranks));
  }

  transport::local::Hub& hub() { return planned_.hub(); }
  Turn& turn(int32_t rank) { return *turns_[static_cast<size_t>(rank)]; }
  Work& work(int32_t rank) { return *works_[static_cast<size_t>(rank)]; }
  uint64_t made() const { return made_; }
  /// The first call is planned; the work keeps it.
  Poll begin(int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    in_[r] = inputOf(rank);
    out_[r].assign(shape_.count, -1);
    if (inPlace_) out_[r] = in_[r];
    void* const out = out_[r].data();
    const void* const in = inPlace_ ? out : in_[r].data();
    if (made_ == 0) return beginFirst(rank, shape_, in, out);
    if (epochs_[r].each != 0) epochs_[r].next += epochs_[r].each;
    return works_[r]->runAgain(in, out, made_, epochs_[r].next);
  }
  /// Another call than the others', in the ordinary way.
  Poll beginOther(int32_t rank, const plan::Shape& shape) {
    const auto r = static_cast<size_t>(rank);
    in_[r] = numbers(rank, shape.count);
    out_[r].assign(shape.count, -1);
    works_[r]->giveBack();
    return beginFirst(rank, shape, in_[r].data(), out_[r].data());
  }
  /// One call of all, the ranks beginning with `first`.
  void makeOne(int32_t first) {
    const int32_t ranks = planned_.ranks();
    std::vector<Poll> polls(static_cast<size_t>(ranks));
    for (int32_t i = 0; i < ranks; ++i) {
      Poll& poll = polls[static_cast<size_t>((first + i) % ranks)] = begin((first + i) % ranks);
      ASSERT_NE(poll, Poll::Failed) << "rank " << (first + i) % ranks << ", call " << made_;
      waited_ += poll == Poll::Pending ? 1 : 0;
    }
    for (int round = 0; round < 100; ++round)
      for (int32_t r = 0; r < ranks; ++r)
        if (polls[static_cast<size_t>(r)] == Poll::Pending) polls[static_cast<size_t>(r)] = work(r).advance();
    for (int32_t r = 0; r < ranks; ++r) {
      const auto at = static_cast<size_t>(r);
      ASSERT_EQ(polls[at], Poll::Ready) << "rank " << r << ", call " << made_;
      if (made_ == 0) {
        ASSERT_TRUE(works_[at]->canRunAgain());
      }
      if (shape_.collective == Collective::Reduce && r != shape_.root.value) continue;
      ASSERT_EQ(out_[at], expected()) << "rank " << r << ", call " << made_;
      ASSERT_EQ(hub().board(Rank(r)).begun(), made_ + 1);
    }
    ++made_;
  }
  /// Calls that had to wait for others, so far.
  int waited() const { return waited_; }

 private:
  Poll beginFirst(int32_t rank, const plan::Shape& shape, const void* in, void* out) {
    const auto r = static_cast<size_t>(rank);
    works_[r]->reset(turns_[r]->finished.load());
    works_[r]->beginChain();
    PlannedCall call = planned_.call(rank, shape, in, out);
    call.call.sequence = call.event.sequence = made_;
    call.signature = packSignature(call.call);
    if (call.plan->usesWindow) {
      call.windowEpoch = made_ == 0 ? call.windowEpoch : epochs_[r].next + epochs_[r].each;
      epochs_[r] = {call.windowEpoch, static_cast<uint64_t>(call.plan->geometry.slices * call.plan->rounds)};
    }
    works_[r]->add(std::move(call));
    return works_[r]->advance();
  }
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

  struct Epochs {
    uint64_t next = 0;
    uint64_t each = 0;
  };

  PlannedRanks planned_;
  plan::Shape shape_;
  bool inPlace_;
  std::vector<std::shared_ptr<Turn>> turns_;
  std::vector<std::unique_ptr<Work>> works_;
  std::vector<std::vector<int32_t>> in_;
  std::vector<std::vector<int32_t>> out_;
  std::vector<Epochs> epochs_;
  uint64_t made_ = 0;
  int waited_ = 0;
};

struct Case {
  Collective collective;
  std::string_view algorithm;
};

TEST(WorkAgain, GivesWhatAnOrdinaryCallGives) {
  constexpr Case kCases[] = {{Collective::Broadcast, ""},       {Collective::Broadcast, "chain"}, {Collective::Broadcast, "ring"},
                             {Collective::AllReduce, "oneshot"}, {Collective::AllReduce, "twoshot"}, {Collective::AllReduce, "ring"},
                             {Collective::Reduce, "direct"},     {Collective::Broadcast, "direct"}};
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

TEST(WorkAgain, RootsThatNobodyHoldsUpNeverWait) {
  Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  for (int32_t i = 0; i < 100; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
  EXPECT_EQ(calls.waited(), 0) << "slots come back in time";
}

TEST(WorkAgain, WhoHasTurnedToSomethingElseHasGivenAllSlotsBack) {
  constexpr uint32_t kSlots = 4;
  std::vector<std::byte> memory(transport::local::pipeBytes(kSlots, 4096));
  const transport::local::PipeView pipe = transport::local::pipeIn(memory.data(), kSlots, 4096);
  for (const uint64_t count : {2, 32}) {  // in heads, in slots
    for (const bool isWaiting : {false, true}) {
      Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, count), false, "", kSlots);
      const uint64_t capacity = pipe.capacity(count * sizeof(int32_t));
      for (uint64_t i = 0; i <= capacity; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
      if (isWaiting) {
        EXPECT_EQ(calls.begin(1), Poll::Pending);
      } else {
        calls.work(1).giveBack();
      }
      // What the root sends now lies in the pipe until somebody reads it.
      std::vector<int32_t> data(count, 1);
      const uint64_t first = capacity + 1, last = first + capacity;
      for (uint64_t i = first; i < last; ++i) EXPECT_EQ(calls.work(0).runAgain(data.data(), data.data(), i, 0), Poll::Ready) << i;
      EXPECT_EQ(calls.work(0).runAgain(data.data(), data.data(), last, 0), Poll::Pending);
      calls.hub().failAll(Status(Code::RemoteError, "the test ends"));
      EXPECT_EQ(calls.work(0).advance(), Poll::Failed);
    }
  }
}

TEST(WorkAgain, NoticesAnotherCallOfAPeer) {
  for (const Collective collective : {Collective::Broadcast, Collective::AllReduce}) {
    Repeats calls(2, shapeOf(collective, DataType::I32, 2), false);
    for (int32_t i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
    (void)calls.beginOther(0, shapeOf(collective, DataType::I32, 3));
    EXPECT_EQ(calls.begin(1), Poll::Pending);
    EXPECT_EQ(calls.work(1).status().code(), Code::InvalidUsage);
    EXPECT_NE(calls.work(1).status().text().find("#5 of 3 int32"), std::string::npos) << calls.work(1).status().text();
    EXPECT_EQ(calls.work(1).advance(), Poll::Failed) << "stays so";
    EXPECT_EQ(calls.begin(0), Poll::Failed) << "and so it is for the other";
  }
}

TEST(WorkAgain, RootsNoticeAnotherCallOfWhoNeverReads) {
  constexpr uint32_t kSlots = 32;  // more, and calls are compared one by one
  Repeats calls(3, shapeOf(Collective::Broadcast, DataType::I32, 2), false, "", kSlots);
  for (int32_t i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
  Call other;
  other.collective = Collective::AllReduce;
  other.sequence = 4;
  calls.hub().board(Rank(2)).post(other);
  const int32_t in[2] = {1, 2};
  int32_t out[2];
  uint64_t sequence = calls.made();
  while (calls.work(0).runAgain(in, out, sequence, 0) == Poll::Ready && sequence < 100) ++sequence;
  EXPECT_LT(sequence, 3 + kSlots + 1);
  EXPECT_EQ(calls.work(0).status().code(), Code::InvalidUsage);
  EXPECT_NE(calls.work(0).status().text().find("#4"), std::string::npos) << calls.work(0).status().text();
}

TEST(WorkAgain, IsRefusedWhereTheRankHasPostedSomethingElse) {
  Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  for (int32_t i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
  Call child;
  child.collective = kSplitCall;
  child.sequence = 3;
  calls.hub().board(Rank(0)).post(child);
  int32_t value[2] = {0, 0};
  EXPECT_EQ(calls.work(0).runAgain(value, value, 4, 0), Poll::Failed);
  EXPECT_EQ(calls.hub().board(Rank(0)).find(3), child);
  EXPECT_FALSE(calls.hub().board(Rank(0)).find(4)) << "nothing has been done";
}

TEST(WorkAgain, OnlyWhatIsBriefAndComparedCanRunAgain) {
  {
    Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 5000), false);  // many slices
    (void)calls.begin(0);
    EXPECT_FALSE(calls.work(0).canRunAgain()) << "it has not ended yet";
  }
  Repeats twoLanes(1, shapeOf(Collective::AllReduce, DataType::I32, 2), false, "tree");
  (void)twoLanes.begin(0);
  EXPECT_FALSE(twoLanes.work(0).canRunAgain());
  Repeats far(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  far.turn(0).comparesLate = false;
  EXPECT_EQ(far.begin(0), Poll::Ready);
  EXPECT_FALSE(far.work(0).canRunAgain());
}

TEST(WorkAgain, WithoutChecksNothingIsPosted) {
  Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  for (const int32_t rank : {0, 1}) calls.turn(rank).checks = false;
  for (const int32_t rank : {0, 1}) ASSERT_EQ(calls.begin(rank), Poll::Ready);
  for (const int32_t rank : {0, 1}) ASSERT_TRUE(calls.work(rank).canRunAgain());
  int32_t data[2] = {4, 5};
  int32_t out[2] = {0, 0};
  ASSERT_EQ(calls.work(0).runAgain(data, data, 1, 0), Poll::Ready);
  ASSERT_EQ(calls.work(1).runAgain(out, out, 1, 0), Poll::Ready);
  EXPECT_EQ(out[1], 5);
  EXPECT_EQ(calls.hub().board(Rank(0)).begun(), 0U);
}

TEST(WorkAgain, WithoutChecksAnAbortIsSeenAllTheSame) {
  Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  for (int32_t r = 0; r < 2; ++r) calls.turn(r).checks = false;
  int32_t data[2] = {1, 2};
  ASSERT_EQ(calls.begin(0), Poll::Ready);
  ASSERT_EQ(calls.begin(1), Poll::Ready);
  ASSERT_TRUE(calls.work(0).canRunAgain());
  EXPECT_EQ(calls.work(0).runAgain(data, data, 1, 0), Poll::Ready);
  calls.hub().failAll(Status(Code::RemoteError, "the test ends"));
  EXPECT_EQ(calls.work(0).runAgain(data, data, 2, 0), Poll::Failed);
}

TEST(WorkAgain, LeavesOneEventACall) {
  Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  observe::FlightMemory memory(64, Rank(0), 1);
  calls.turn(0).recorder = memory.recorder();
  for (int32_t i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
  const auto log = observe::FlightLog::attach(memory.bytes());
  ASSERT_TRUE(log);
  const auto snapshot = log->read();
  ASSERT_EQ(snapshot.events.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(snapshot.events[i].kind, observe::FlightKind::Finished);
    EXPECT_EQ(snapshot.events[i].sequence, i);
  }
}

TEST(WorkAgain, IsRefusedAfterAnAbortBetweenTwoCalls) {
  Repeats calls(2, shapeOf(Collective::Broadcast, DataType::I32, 2), false);
  for (int32_t i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(calls.makeOne(0));
  calls.hub().failAll(Status(Code::RemoteError, "rank 1 aborted"));
  EXPECT_EQ(calls.begin(0), Poll::Failed);
  EXPECT_EQ(calls.hub().board(Rank(0)).begun(), 5U) << "nothing has been done";
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
}  // namespace tutti::exec::host::work_again_test
