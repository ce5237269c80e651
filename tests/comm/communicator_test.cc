#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "joined_ranks.h"

namespace tutti::comm::communicator_test {
namespace {

using exec::host::Stream;
using Ints = std::vector<int32_t>;

/// The communicators of all ranks, without handles.
struct Comms {
  explicit Comms(int32_t ranks, const Config& config = {}) : hub(*transport::local::Hub::make(ranks)) {
    for (int32_t r = 0; r < ranks; ++r) {
      auto made = Communicator::create(hub, Rank(r), ranks, r, 0x1234, config);
      if (made) {
        comms.push_back(std::move(*made));
      } else {
        ADD_FAILURE() << made.error().text();
      }
    }
  }
  Communicator& operator[](size_t r) { return *comms[r]; }

  std::shared_ptr<transport::local::Hub> hub;
  std::vector<std::unique_ptr<Communicator>> comms;
};

Status runAlone(Communicator& comm, const CallRequest& request) {
  auto pending = comm.prepare(request);
  return pending ? comm.runAlone(*pending) : pending.error();
}

/// Runs `body(rank)` on a thread for each.
void onThreads(int32_t ranks, const std::function<void(int32_t)>& body) {
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
}

TEST(Communicator, SaysWhoItIs) {
  Comms comms(3);
  EXPECT_EQ(comms[2].rank(), Rank(2));
  EXPECT_EQ(comms[2].ranks(), 3);
  EXPECT_EQ(comms[2].device(), 2);
  EXPECT_EQ(comms[2].hash(), 0x1234U);
  EXPECT_TRUE(comms[2].usable().ok());
  EXPECT_EQ(comms[2].state(), Code::Ok);
  EXPECT_FALSE(comms[2].isFinalized());
}

TEST(Communicator, RunsCallsOfEveryRankOnItsThread) {
  constexpr int32_t kRanks = 4;
  Comms comms(kRanks);
  onThreads(kRanks, [&](int32_t r) {
    for (const size_t count : {1U, 100U, 3000U, 70000U, 1U}) {
      const Ints in(count, r + 1);
      Ints out(count);
      ASSERT_TRUE(runAlone(comms[static_cast<size_t>(r)], allReduce(in, out)).ok());
      ASSERT_EQ(out, Ints(count, 10));
    }
  });
}

TEST(Communicator, ChecksArgumentsInTheDocumentedOrder) {
  Comms comms(1);
  Ints data(4);
  CallRequest request = allReduce(data, data);
  request.collective = Collective::Broadcast;
  request.root = 7;
  request.type = 99;
  request.op = -3;
  request.in = nullptr;
  const auto text = [&] {
    const auto pending = comms[0].prepare(request);
    EXPECT_FALSE(pending);
    if (!pending) {
      EXPECT_EQ(pending.error().code(), Code::InvalidArgument);
    }
    return pending ? std::string() : pending.error().text();
  };
  EXPECT_NE(text().find("root 7"), std::string::npos);
  request.root = 0;
  EXPECT_NE(text().find("datatype 99"), std::string::npos);
  request.type = static_cast<int32_t>(DataType::I32);
  request.collective = Collective::AllReduce;
  EXPECT_NE(text().find("op -3"), std::string::npos);
  request.op = 0;
  EXPECT_NE(text().find("sendbuff"), std::string::npos);
  request.in = data.data();
  EXPECT_TRUE(comms[0].prepare(request));
  (void)comms[0].abort();
  request.type = 99;
  const auto after = comms[0].prepare(request);
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().code(), Code::RemoteError) << "the stored error comes first";
}

TEST(Communicator, RefusedCallsDoNotCount) {
  Comms comms(2);
  const Ints in(4, 1);
  onThreads(2, [&](int32_t r) {
    Ints out(4);
    CallRequest wrong = allReduce(in, out);
    wrong.op = 77;
    if (r == 0) {
      EXPECT_FALSE(comms[0].prepare(wrong));
    }
    EXPECT_TRUE(runAlone(comms[static_cast<size_t>(r)], allReduce(in, out)).ok()) << "the ranks are still in step";
    EXPECT_EQ(out, Ints(4, 2));
  });
}

TEST(Communicator, TheSecondIdenticalCallReusesItsPlan) {
  Comms comms(1);
  Ints data(100);
  const auto first = comms[0].prepare(allReduce(data, data));
  Ints other(100);
  const auto second = comms[0].prepare(allReduce(other, other));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->planned.plan, second->planned.plan);
  Ints longer(101);
  EXPECT_NE(comms[0].prepare(allReduce(longer, longer))->planned.plan, first->planned.plan);
}

TEST(Communicator, MessagesOfOneSizeShareAPlanWhateverTheirType) {
  Comms comms(2);
  Ints data(8);
  CallRequest ints = message(data, 1, false);
  CallRequest bytes = ints;
  bytes.type = static_cast<int32_t>(DataType::U8);
  bytes.count = 32;
  EXPECT_EQ(comms[0].prepare(ints)->planned.plan, comms[0].prepare(bytes)->planned.plan);
}

TEST(Communicator, ExplainsWithoutCounting) {
  Comms comms(2);
  Ints data(100000);
  const auto explanation = comms[0].explain(allReduce(data, data));
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->chosen.algorithm, "ring");
  CallRequest wrong = allReduce(data, data);
  wrong.type = -1;
  EXPECT_FALSE(comms[0].explain(wrong));
}

TEST(Communicator, FinalizesOnce) {
  Comms comms(1);
  const Ints in(4, 3);
  Ints out(4);
  ASSERT_TRUE(runAlone(comms[0], allReduce(in, out)).ok());
  EXPECT_TRUE(comms[0].finalize().ok());
  EXPECT_TRUE(comms[0].isFinalized());
  const Status again = comms[0].finalize();
  EXPECT_EQ(again.code(), Code::InvalidArgument);
  EXPECT_NE(again.text().find("finalized"), std::string::npos);
  const Status use = runAlone(comms[0], allReduce(in, out));
  EXPECT_EQ(use.code(), Code::InvalidUsage);
  EXPECT_NE(use.text().find("ncclCommDestroy"), std::string::npos) << "says what may follow: " << use.text();
  EXPECT_EQ(comms[0].state(), Code::Ok);
}

TEST(Communicator, FinalizeWaitsForWorkOnStreams) {
  JoinedRanks ranks(1);
  auto stream = std::make_shared<Stream>();
  ASSERT_TRUE(stream->start().ok());
  const Ints in(4, 3);
  Ints out(4);
  std::promise<void> gate;
  stream->push([&] { gate.get_future().wait(); });
  Group group;
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out), stream).ok());
  std::atomic<bool> opened{false};
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    opened.store(true);
    gate.set_value();
  });
  EXPECT_TRUE(ranks.use(0)->finalize().ok());
  EXPECT_TRUE(opened.load());
  EXPECT_EQ(out, in);
  opener.join();
  stream->stop();
}

TEST(Communicator, FinalizeSaysWhyTheWorkThatItWaitsForFailed) {
  JoinedRanks ranks(2);
  auto stream = std::make_shared<Stream>();
  ASSERT_TRUE(stream->start().ok());
  const Ints in(4, 3);
  Ints out(4);
  Group group;
  ASSERT_TRUE(call(group, ranks[0], allReduce(in, out), stream).ok());  // rank 1 never calls
  std::thread breaker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ranks.use(1)->stop(error(Code::RemoteError, "rank 1 has had enough"));
  });
  const Status status = ranks.use(0)->finalize();
  EXPECT_EQ(status.code(), Code::RemoteError);
  EXPECT_NE(status.text().find("rank 1 has had enough"), std::string::npos) << status.text();
  EXPECT_TRUE(ranks.use(0)->isFinalized());
  breaker.join();
  stream->stop();
}

TEST(Communicator, AbortEndsTheWaitOfAnotherThread) {
  JoinedRanks ranks(2);
  std::promise<Status> outcome;
  std::thread waiter([&] {
    Group group;
    const Ints in(50000, 1);
    Ints out(50000);
    outcome.set_value(call(group, ranks[0], allReduce(in, out)));  // rank 1 never calls
  });
  const auto isInside = [&] {
    const auto log = observe::FlightLog::attach(ranks.use(0)->flightBytes());
    return log && log->read().events.size() >= 1;  // started
  };
  while (!isInside()) std::this_thread::yield();
  EXPECT_EQ(ranks.use(0)->state(), Code::Ok);
  ASSERT_TRUE(endComm(ranks[0], true).ok()) << "while the other thread is inside";
  const Status status = outcome.get_future().get();
  waiter.join();
  EXPECT_EQ(status.code(), Code::RemoteError);
  EXPECT_NE(status.text().find("rank 0 aborted"), std::string::npos) << status.text();
  EXPECT_EQ(ranks.use(1)->state(), Code::RemoteError) << "the peers are told";
  EXPECT_FALSE(process().handles.use(ranks[0]));
}

TEST(Communicator, APeersAbortIsToldWithWhatOneWaitedFor) {
  Comms comms(2);
  std::promise<Status> outcome;
  std::thread waiter([&] {
    const Ints in(8, 1);
    Ints out(8);
    outcome.set_value(runAlone(comms[0], allReduce(in, out)));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  comms[1].abort();
  const Status status = outcome.get_future().get();
  waiter.join();
  EXPECT_EQ(status.code(), Code::RemoteError);
  EXPECT_NE(status.text().find("rank 1 aborted"), std::string::npos) << status.text();
  Ints data(1);
  EXPECT_EQ(runAlone(comms[0], allReduce(data, data)).code(), Code::RemoteError) << "the first error stays";
}

/// Calls of one communicator wait on two streams when it is aborted and freed; the streams get to them afterwards.
TEST(Communicator, WorkOnStreamsOutlivesAnAbortedCommunicator) {
  for (int round = 0; round < 20; ++round) {
    JoinedRanks ranks(2);
    auto first = std::make_shared<Stream>();
    auto second = std::make_shared<Stream>();
    ASSERT_TRUE(first->start().ok() && second->start().ok());
    Ints a(20000);
    Ints b(20000);
    std::promise<void> gate;
    if (round % 2 == 0) first->push([&] { gate.get_future().wait(); });
    Group group;
    ASSERT_TRUE(call(group, ranks[0], allReduce(a, a), first).ok());
    ASSERT_TRUE(call(group, ranks[0], allReduce(b, b), second).ok());
    if (round % 4 >= 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::thread aborter([&] { EXPECT_TRUE(endComm(ranks[0], true).ok()); });
    if (round % 4 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (round % 2 == 0) gate.set_value();
    aborter.join();
    first->stop();
    second->stop();
    EXPECT_EQ(first->takeError().code(), Code::RemoteError);
    EXPECT_EQ(second->takeError().code(), Code::RemoteError);
  }
}

TEST(Communicator, CallsThatDisagreeAreReportedOnBothSides) {
  struct Case {
    size_t counts[2];
    bool broadcast;
  };
  for (const Case& c : {Case{{100000, 100001}, false}, Case{{4, 100000}, false}, Case{{0, 4}, false}, Case{{4, 4}, true}}) {
    Comms comms(2);
    Status outcomes[2];
    onThreads(2, [&](int32_t r) {
      const auto i = static_cast<size_t>(r);
      Ints data(c.counts[i]);
      CallRequest request = allReduce(data, data);
      if (r == 1 && c.broadcast) request.collective = Collective::Broadcast;
      auto pending = comms[i].prepare(request);
      ASSERT_TRUE(pending);
      if (pending->planned.plan == nullptr) {  // nothing to move: only announced
        std::vector<PendingCall> calls;
        calls.push_back(std::move(*pending));
        (void)comms[i].issue(calls)->advance();
        return;
      }
      outcomes[i] = comms[i].runAlone(*pending);
    });
    const size_t first = outcomes[0].ok() ? 1 : 0;
    EXPECT_EQ(outcomes[first].code(), Code::InvalidUsage) << outcomes[first].text();
    for (size_t r = 0; r < 2; ++r) {
      if (c.counts[r] == 0) continue;
      EXPECT_NE(outcomes[r].text().find("calls do not match"), std::string::npos) << outcomes[r].text();
      EXPECT_NE(outcomes[r].text().find("of " + std::to_string(c.counts[0]) + " int32"), std::string::npos) << outcomes[r].text();
      EXPECT_NE(outcomes[r].text().find("of " + std::to_string(c.counts[1]) + " int32"), std::string::npos) << outcomes[r].text();
    }
  }
}

/// Three broadcasts of rank 0, which only sends; rank 1 says that its third had another root.
void broadcastBesideAnotherThird(Comms& comms, Ints& data) {
  for (uint64_t i = 0; i < 3; ++i)
    comms[0].hub().board(Rank(1)).post({Collective::Broadcast, DataType::I32, 0, i == 2 ? 1 : 0, data.size(), i, false});
  CallRequest request = allReduce(data, data);
  request.collective = Collective::Broadcast;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(runAlone(comms[0], request).ok()) << i;
}

TEST(Communicator, FinalizeFindsTheMismatchThatWasLeftForLater) {
  Comms comms(2);
  Ints data(2, 3);
  broadcastBesideAnotherThird(comms, data);
  const Status status = comms[0].finalize();
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  EXPECT_NE(status.text().find("root 1"), std::string::npos) << status.text();
  EXPECT_EQ(comms[1].usable().code(), Code::InvalidUsage);
}

TEST(Communicator, ClosingTellsTheOthersOfTheMismatchThatWasLeftForLater) {
  Comms comms(2);
  Ints data(2, 3);
  broadcastBesideAnotherThird(comms, data);
  EXPECT_TRUE(comms[1].usable().ok());
  comms[0].close();
  EXPECT_EQ(comms[1].usable().code(), Code::InvalidUsage);
}

TEST(Communicator, KeepsAFlightRecordOfItsCalls) {
  Comms comms(1);
  const Ints in(4, 3);
  Ints out(4);
  ASSERT_TRUE(runAlone(comms[0], allReduce(in, out)).ok());
  ASSERT_TRUE(runAlone(comms[0], allReduce(in, out)).ok());
  const auto log = observe::FlightLog::attach(comms[0].flightBytes());
  ASSERT_TRUE(log);
  const auto events = log->read().events;
  ASSERT_EQ(events.size(), 2U) << "finished, twice";
  EXPECT_EQ(events[0].kind, observe::FlightKind::Finished);
  EXPECT_EQ(events[1].kind, observe::FlightKind::Finished);
  EXPECT_EQ(events[1].sequence, 1U);
  EXPECT_EQ(events[1].count, 4U);
  EXPECT_EQ(events[1].type, DataType::I32);
}

TEST(Communicator, AlternatingCallsKeepApart) {
  Comms comms(2);
  onThreads(2, [&](int32_t r) {
    Communicator& comm = comms[static_cast<size_t>(r)];
    const Ints in(64, 1 + comm.rank().value);
    for (int i = 0; i < 20; ++i) {
      Ints out(64, -1);
      CallRequest request = allReduce(in, out);
      request.count = i % 3 == 0 ? 64 : 32;
      request.op = i % 5 == 0 ? 2 : 0;  // max, sum
      ASSERT_TRUE(runAlone(comm, request).ok());
      EXPECT_EQ(out[0], i % 5 == 0 ? 2 : 3) << "call " << i;
      EXPECT_EQ(out[32], i % 3 == 0 ? out[0] : -1) << "call " << i;
    }
    CallRequest request = allReduce(in, const_cast<Ints&>(in));
    request.out = nullptr;
    EXPECT_EQ(runAlone(comm, request).code(), Code::InvalidArgument) << "also of a call like the one before";
  });
}

TEST(Communicator, OperatorsOfItsOwnScaleEachContribution) {
  constexpr int32_t kRanks = 3;
  Comms comms(kRanks);
  onThreads(kRanks, [&](int32_t r) {
    Communicator& comm = comms[static_cast<size_t>(r)];
    Ints factor(1, r + 1);
    const int32_t copied = comm.redOps().createPreMulSum(factor.data(), DataType::I32, false);
    const int32_t later = comm.redOps().createPreMulSum(factor.data(), DataType::I32, true);
    const Ints in(100, 10);
    Ints out(100);
    CallRequest request = allReduce(in, out);
    request.op = copied;
    ASSERT_TRUE(runAlone(comm, request).ok());
    EXPECT_EQ(out, Ints(100, 60));
    factor[0] = 100;
    request.op = later;
    ASSERT_TRUE(runAlone(comm, request).ok());
    EXPECT_EQ(out, Ints(100, 3000));
    request.op = 4;  // average
    ASSERT_TRUE(runAlone(comm, request).ok());
    EXPECT_EQ(out, in);
  });
}

}  // namespace
}  // namespace tutti::comm::communicator_test
