#include "exec/host/work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "planned_ranks.h"

namespace tutti::exec::host::work_test {
namespace {

using observe::FlightKind;

/// A communicator of `ranks` ranks, each with its turn; flight recorders are on.
struct Comm {
  explicit Comm(int32_t ranks, const plan::Settings& settings = {}) : planned(ranks, settings) {
    for (int32_t r = 0; r < ranks; ++r) {
      flights.emplace_back(64, Rank(r), 0);
      turns.push_back(planned.makeTurn(r));
      turns.back()->recorder = flights.back().recorder();
    }
  }
  std::vector<observe::FlightEvent> events(size_t rank) const {
    const auto log = observe::FlightLog::attach(flights[rank].bytes());
    return log ? log->read().events : std::vector<observe::FlightEvent>();
  }

  PlannedRanks planned;
  std::vector<std::shared_ptr<Turn>> turns;
  std::vector<observe::FlightMemory> flights;
};

/// A copy: what an all-reduce of one rank is.
struct Copy {
  std::vector<int32_t> in{1, 2, 3};
  std::vector<int32_t> out{0, 0, 0};
  PlannedCall call(Comm& comm) { return comm.planned.call(0, shapeOf(Collective::AllReduce, DataType::I32, 3), in.data(), out.data()); }
  bool done() const { return in == out; }
};

TEST(Work, WithoutCallsIsReadyAtItsTurn) {
  Comm comm(1);
  Work work(comm.turns[0]);
  work.reset(0);
  EXPECT_EQ(work.advance(), Poll::Ready);
  EXPECT_EQ(comm.turns[0]->finished.load(), 1U);
  EXPECT_EQ(work.advance(), Poll::Ready) << "stays so";
  EXPECT_EQ(comm.turns[0]->finished.load(), 1U) << "and counts once";
}

TEST(Work, WaitsForItsTicket) {
  Comm comm(1);
  Copy a, b;
  Work first(comm.turns[0]);
  Work second(comm.turns[0]);
  first.reset(0);
  first.beginChain();
  first.add(a.call(comm));
  second.reset(1);
  second.beginChain();
  second.add(b.call(comm));
  EXPECT_EQ(second.advance(), Poll::Pending);
  EXPECT_FALSE(second.moved());
  EXPECT_FALSE(b.done());
  EXPECT_EQ(first.advance(), Poll::Ready);
  EXPECT_TRUE(a.done());
  EXPECT_EQ(second.advance(), Poll::Ready);
  EXPECT_TRUE(second.moved());
  EXPECT_TRUE(b.done());
  EXPECT_EQ(comm.turns[0]->finished.load(), 2U);
}

TEST(Work, ChainsRunAtTheSameTimeAndEachInOrder) {
  Comm comm(2);
  std::vector<int32_t> in = numbers(0, 4);
  std::vector<int32_t> out[3] = {std::vector<int32_t>(4), std::vector<int32_t>(4), std::vector<int32_t>(4)};
  Work receiver(comm.turns[0]);
  receiver.reset(0);
  receiver.beginChain();  // waits for rank 1
  receiver.add(comm.planned.call(0, messageShape(16, 1, true), nullptr, out[0].data()));
  receiver.add(comm.planned.call(0, messageShape(16, 0, false), out[0].data(), out[1].data()));  // copies what came
  receiver.beginChain();
  receiver.add(comm.planned.call(0, messageShape(16, 0, false), in.data(), out[2].data()));
  EXPECT_EQ(receiver.advance(), Poll::Pending);
  EXPECT_TRUE(receiver.moved());
  EXPECT_EQ(out[2], in) << "the second chain does not wait for the first";
  EXPECT_EQ(out[1], std::vector<int32_t>(4)) << "the second call of a chain waits for the first";
  EXPECT_EQ(receiver.advance(), Poll::Pending);
  EXPECT_FALSE(receiver.moved());

  Work sender(comm.turns[1]);
  sender.reset(0);
  sender.beginChain();
  sender.add(comm.planned.call(1, messageShape(16, 0, false), in.data(), nullptr));
  EXPECT_EQ(sender.advance(), Poll::Ready);
  EXPECT_EQ(receiver.advance(), Poll::Ready);
  EXPECT_EQ(out[1], in);
}

TEST(Work, RecordsWhatHappensToItsCalls) {
  Comm comm(1);
  Copy a;
  Work work(comm.turns[0]);
  work.reset(0);
  work.beginChain();
  PlannedCall call = a.call(comm);
  call.event.sequence = 12;
  work.add(std::move(call));
  ASSERT_EQ(work.advance(), Poll::Ready);
  const auto events = comm.events(0);
  ASSERT_EQ(events.size(), 1U) << "it did not wait";
  EXPECT_EQ(events[0].kind, FlightKind::Finished);
  EXPECT_EQ(events[0].sequence, 12U);
}

TEST(Work, RecordsTheStartOfACallThatWaits) {
  Comm comm(2);
  const std::vector<int8_t> in(16, 7);
  std::vector<int8_t> out(16);
  Work receiver(comm.turns[1]);
  receiver.reset(0);
  receiver.beginChain();
  receiver.add(comm.planned.call(1, messageShape(16, 0, true), nullptr, out.data()));
  EXPECT_EQ(receiver.advance(), Poll::Pending);
  EXPECT_EQ(receiver.advance(), Poll::Pending);
  Work sender(comm.turns[0]);
  sender.reset(0);
  sender.beginChain();
  sender.add(comm.planned.call(0, messageShape(16, 1, false), in.data(), nullptr));
  EXPECT_EQ(sender.advance(), Poll::Ready);
  EXPECT_EQ(receiver.advance(), Poll::Ready);
  EXPECT_EQ(out, in);
  const auto events = comm.events(1);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, FlightKind::Started);
  EXPECT_EQ(events[1].kind, FlightKind::Finished);
}

/// Broadcasts of rank 0, which only sends; rank 1 receives them, and says what it likes about it afterwards.
class OneWayCalls {
 public:
  explicit OneWayCalls(Comm& comm) : comm_(comm), sender_(comm.turns[0]), receiver_(comm.turns[1]) {}

  /// `theirs`: the root that rank 1 claims to have meant.
  Poll make(int32_t theirs, size_t count = 3) {
    add(sender_, 0, count);
    const Poll poll = sender_.advance();
    if (poll == Poll::Failed) return poll;
    add(receiver_, 1, count);
    EXPECT_EQ(receiver_.advance(), Poll::Ready);
    const Call claimed{Collective::Broadcast, DataType::I8, 0, theirs, count, made_++, false};
    comm_.turns[0]->hub->board(Rank(1)).post(claimed);
    return poll;
  }
  uint64_t made() const { return made_; }
  Code code() const { return sender_.status().code(); }
  Status settle() { return sender_.settleOwed(); }

 private:
  void add(Work& work, int32_t rank, size_t count) {
    const plan::Shape shape = shapeOf(Collective::Broadcast, DataType::I8, count);
    work.reset(made_);
    work.beginChain();
    work.add(comm_.planned.call(rank, shape, data_.data(), data_.data()));
  }

  Comm& comm_;
  Work sender_;
  Work receiver_;
  std::vector<int8_t> data_ = std::vector<int8_t>(16);
  uint64_t made_ = 0;
};

TEST(Work, ComparesRepeatedOneWayCallsAFewCallsLater) {
  Comm comm(2);
  OneWayCalls calls(comm);
  constexpr uint64_t kOther = 30;  // rank 1 made another call here
  Poll poll = Poll::Ready;
  while (poll == Poll::Ready && calls.made() < 100) poll = calls.make(calls.made() == kOther ? 1 : 0);
  EXPECT_EQ(poll, Poll::Failed);
  EXPECT_EQ(calls.code(), Code::InvalidUsage);
  EXPECT_GT(calls.made(), kOther);
  EXPECT_LE(calls.made(), kOther + 32);
}

TEST(Work, ComparesWhatItOwesBeforeAnotherCall) {
  Comm comm(2);
  OneWayCalls calls(comm);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(calls.make(i == 3 ? 1 : 0), Poll::Ready) << i;
  EXPECT_EQ(calls.make(0, 7), Poll::Failed) << "call 3 was another one";
  EXPECT_EQ(calls.code(), Code::InvalidUsage);
}

TEST(Work, ComparesWhatItOwesWhenAsked) {
  Comm comm(2);
  OneWayCalls calls(comm);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(calls.make(0), Poll::Ready) << i;
  EXPECT_TRUE(calls.settle().ok());
  for (int i = 0; i < 2; ++i) ASSERT_EQ(calls.make(i), Poll::Ready) << i;
  EXPECT_EQ(calls.settle().code(), Code::InvalidUsage);
}

TEST(Work, ComparesAtOnceWhereNothingIsSent) {
  Comm comm(2);
  for (uint64_t i = 0; i < 3; ++i) {
    comm.turns[0]->hub->board(Rank(1)).post({Collective::Broadcast, DataType::I8, 0, i == 2 ? 1 : 0, 0, i, false});
    Work work(comm.turns[0]);
    work.reset(i);
    work.beginChain();
    PlannedCall planned;
    planned.call = {Collective::Broadcast, DataType::I8, 0, 0, 0, i, false};
    work.add(planned);
    EXPECT_EQ(work.advance(), i == 2 ? Poll::Failed : Poll::Ready) << i;
  }
}

TEST(Work, AFailureIsToldToEveryRank) {
  Comm comm(3);
  std::vector<int32_t> data(4);
  Work works[3] = {Work(comm.turns[0]), Work(comm.turns[1]), Work(comm.turns[2])};
  for (Work& work : works) {
    work.reset(0);
    work.beginChain();
  }
  works[0].add(comm.planned.call(0, messageShape(16, 1, false), data.data(), nullptr));
  works[1].add(comm.planned.call(1, messageShape(12, 0, true), nullptr, data.data()));
  works[2].add(comm.planned.call(2, messageShape(12, 0, true), nullptr, data.data()));  // nobody sends
  EXPECT_EQ(works[0].advance(), Poll::Ready);
  EXPECT_EQ(works[2].advance(), Poll::Pending);
  EXPECT_EQ(works[1].advance(), Poll::Failed);
  EXPECT_EQ(works[1].status().code(), Code::InvalidUsage);
  for (int32_t r = 0; r < 3; ++r) EXPECT_EQ(comm.planned.hub().latch(Rank(r)).status().text(), works[1].status().text());
  EXPECT_EQ(works[2].advance(), Poll::Failed);
  EXPECT_EQ(works[2].status().text().rfind(works[1].status().text(), 0), 0U) << works[2].status().text();
  EXPECT_NE(works[2].status().text().find("rank 2 in Recv #0 of 12 bytes from rank 0: waits for rank 0"), std::string::npos)
      << "says what it waited for: " << works[2].status().text();
  EXPECT_EQ(works[2].advance(), Poll::Failed) << "stays so";
  for (const auto& turn : comm.turns) EXPECT_EQ(turn->finished.load(), 1U) << "waiting for all work ends";
  const auto events = comm.events(2);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().kind, FlightKind::Failed);
  EXPECT_EQ(events.back().code, static_cast<int32_t>(Code::InvalidUsage));
}

TEST(Work, DoesNotStartOnATrippedLatch) {
  Comm comm(1);
  comm.planned.hub().failAll(error(Code::RemoteError, "rank 5 aborted"));
  Copy a;
  Work work(comm.turns[0]);
  work.reset(0);
  work.beginChain();
  work.add(a.call(comm));
  EXPECT_EQ(work.advance(), Poll::Failed);
  EXPECT_EQ(work.status().text(), "rank 5 aborted") << "it waited for nothing";
  EXPECT_FALSE(a.done());
}

TEST(Work, ALatchThatTripsMeanwhileEndsAWaitForATurn) {
  Comm comm(1);
  Work later(comm.turns[0]);
  later.reset(1);
  EXPECT_EQ(later.advance(), Poll::Pending);
  comm.planned.hub().failAll(error(Code::RemoteError, "over"));
  // Whether the works before it must have ended first is up to the Work; that it ends once they have, is not.
  Work first(comm.turns[0]);
  first.reset(0);
  EXPECT_EQ(first.advance(), Poll::Failed);
  EXPECT_EQ(later.advance(), Poll::Failed);
  EXPECT_EQ(comm.turns[0]->finished.load(), 2U);
}

/// The handle to a communicator may be gone while its works still sit on streams: they share what they need.
TEST(Work, OutlivesWhoeverIssuedIt) {
  std::vector<int32_t> data(4);
  std::unique_ptr<Work> work;
  {
    Comm comm(1);
    work = std::make_unique<Work>(comm.turns[0]);
    work->reset(1);
    comm.turns[0]->recorder = {};
    comm.planned.hub().failAll(error(Code::RemoteError, "over"));
  }
  EXPECT_EQ(work->advance(), Poll::Failed);
  EXPECT_EQ(work->status().text(), "over");
}

TEST(Work, InspectComparesTheCallsOfAllRanks) {
  Comm comm(3, settingsOf(4, 262144, "reduce:chain"));
  std::vector<int32_t> data[3] = {std::vector<int32_t>(20000), std::vector<int32_t>(20000), std::vector<int32_t>(20000)};
  Work works[3] = {Work(comm.turns[0]), Work(comm.turns[1]), Work(comm.turns[2])};
  for (int32_t r = 0; r < 3; ++r) {
    const auto i = static_cast<size_t>(r);
    works[r].reset(0);
    works[r].inspect(Nanoseconds(0));  // nothing runs: nothing to compare
    works[r].beginChain();
    // The third waits in pipes, the others in windows: it meets nobody.
    const auto shape = r < 2 ? shapeOf(Collective::AllReduce, DataType::I32, 20000) : shapeOf(Collective::Reduce, DataType::I32, 8, 2);
    works[r].add(comm.planned.call(r, shape, data[i].data(), data[i].data()));
  }
  EXPECT_EQ(works[0].advance(), Poll::Pending);
  EXPECT_EQ(works[1].advance(), Poll::Pending);
  works[0].inspect(Nanoseconds(0));
  EXPECT_EQ(works[0].advance(), Poll::Pending) << "so far everybody agrees";
  EXPECT_EQ(works[2].advance(), Poll::Pending);
  works[0].inspect(Nanoseconds(0));
  EXPECT_EQ(works[0].advance(), Poll::Failed);
  EXPECT_EQ(works[0].status().code(), Code::InvalidUsage);
  EXPECT_NE(
      works[0].status().text().find("rank 0 called AllReduce #0 of 20000 int32, sum, but rank 2 called Reduce #0 of 8 int32, sum, root 2"),
      std::string::npos)
      << works[0].status().text();
  works[0].inspect(Nanoseconds(0));  // of a finished work: no harm
  EXPECT_EQ(works[1].advance(), Poll::Failed);
  EXPECT_EQ(works[2].advance(), Poll::Failed);
}

/// Each believes to be the root and sends: no data of one ever meets the other's call.
TEST(Work, RootedCallsCompareWithTheirPeersWhenTheyEnd) {
  Comm comm(2);
  std::vector<int32_t> data(4);
  Work works[2] = {Work(comm.turns[0]), Work(comm.turns[1])};
  for (int32_t r = 0; r < 2; ++r) {
    works[r].reset(0);
    works[r].beginChain();
    works[r].add(comm.planned.call(r, shapeOf(Collective::Broadcast, DataType::I32, 4, r), data.data(), data.data()));
  }
  EXPECT_EQ(works[0].advance(), Poll::Ready);
  EXPECT_EQ(works[1].advance(), Poll::Failed) << "the later one notices";
  EXPECT_EQ(works[1].status().code(), Code::InvalidUsage);
  EXPECT_NE(
      works[1].status().text().find("rank 1 called Broadcast #0 of 4 int32, root 1, but rank 0 called Broadcast #0 of 4 int32, root 0"),
      std::string::npos)
      << works[1].status().text();
  EXPECT_EQ(comm.planned.hub().latch(Rank(0)).code(), Code::InvalidUsage);
}

TEST(Work, ACallWithoutDataIsAnnouncedInItsTurn) {
  Comm comm(2);
  PlannedCall nothing;
  nothing.call = {Collective::AllReduce, DataType::I32, 0, 0, 0, 5};
  nothing.event.sequence = 5;
  Work before(comm.turns[0]);
  Work work(comm.turns[0]);
  before.reset(0);
  work.reset(1);
  work.beginChain();
  work.add(nothing);
  EXPECT_EQ(work.advance(), Poll::Pending);
  EXPECT_FALSE(comm.planned.hub().board(Rank(0)).find(5));
  EXPECT_EQ(before.advance(), Poll::Ready);
  EXPECT_EQ(work.advance(), Poll::Ready);
  EXPECT_EQ(comm.planned.hub().board(Rank(0)).find(5), nothing.call);
}

TEST(Work, IsUsedAgain) {
  Comm comm(1);
  Work work(comm.turns[0]);
  for (uint64_t ticket = 0; ticket < 5; ++ticket) {
    Copy a, b;
    work.reset(ticket);
    work.beginChain();
    work.add(a.call(comm));
    if (ticket % 2 == 0) {
      work.beginChain();
      work.add(b.call(comm));
    }
    ASSERT_EQ(work.advance(), Poll::Ready);
    EXPECT_TRUE(a.done());
    EXPECT_EQ(b.done(), ticket % 2 == 0);
    EXPECT_TRUE(work.status().ok());
  }
}

/// Two ranks, each driven by its own thread, one of which is aborted from outside in the middle.
TEST(Work, AnAbortEndsBothSides) {
  for (int round = 0; round < 20; ++round) {
    Comm comm(2, settingsOf(2, 64, "ring"));
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    std::atomic<uint64_t> calls{0};
    for (int32_t r = 0; r < 2; ++r) {
      std::vector<int32_t> buffer = numbers(r, 500);
      threads.emplace_back([&comm, &failed, &calls, r, data = std::move(buffer)]() mutable {
        const PlannedCall call = comm.planned.call(r, shapeOf(Collective::AllReduce, DataType::I32, 500), data.data(), data.data());
        Work work(comm.turns[static_cast<size_t>(r)]);
        for (uint64_t ticket = 0;; ++ticket) {
          work.reset(ticket);
          work.beginChain();
          work.add(call);
          Poll poll = Poll::Pending;
          while ((poll = work.advance()) == Poll::Pending) std::this_thread::yield();
          calls.fetch_add(1);
          if (poll == Poll::Failed) break;
        }
        // No peer touches the buffer any more.
        data.assign(500, 0);
        failed.fetch_add(1);
      });
    }
    while (calls.load() < 4) std::this_thread::yield();
    comm.planned.hub().failAll(error(Code::RemoteError, "aborted"));
    comm.planned.hub().waitQuiet();
    for (auto& t : threads) t.join();
    EXPECT_EQ(failed.load(), 2);
  }
}

TEST(Turn, RecordsFromSeveralThreads) {
  Comm comm(1);
  comm.turns[0]->isShared.store(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&comm, t] {
      for (int i = 0; i < 1000; ++i) {
        observe::FlightEvent event;
        event.sequence = static_cast<uint64_t>(i);
        event.count = static_cast<uint64_t>(t);
        comm.turns[0]->record(event, FlightKind::Enqueued);
      }
    });
  for (auto& t : threads) t.join();
  const auto events = comm.events(0);
  EXPECT_EQ(events.size(), 64U);
  uint64_t last[3] = {};
  for (const auto& event : events) {
    ASSERT_LT(event.count, 3U);
    EXPECT_GE(event.sequence, last[event.count]);
    last[event.count] = event.sequence;
  }
}

}  // namespace
}  // namespace tutti::exec::host::work_test
