#include "exec/host/verdict.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "core/format.h"
#include "core/host_name.h"

namespace tutti::exec::host::verdict_test {
namespace {

using transport::local::Ending;
using transport::local::Hub;
using transport::local::RankWait;

const Call kCall{Collective::Reduce, DataType::F32, 5, 2, 77, 3};

RankWait standingIn(const Call& call) {
  RankWait wait;
  wait.chains.emplace_back().call = call;
  wait.chains[0].slices = 4;
  wait.chains[0].slice = 2;
  wait.chains[0].steps = 6;
  wait.chains[0].step = 1;
  wait.chains[0].words = "waits for \"rank\" 2\n";
  return wait;
}

void postUpTo(Hub& hub, Rank rank, uint64_t sequence) {
  Call call = kCall;
  for (call.sequence = 0; call.sequence <= sequence; ++call.sequence) hub.board(rank).post(call);
}

/// A rank of this host, as the JSON has it.
std::string suspect(int rank) { return format(R"({{"rank":{},"host":"{}","link":"shared memory of {}"}})", rank, hostName(), hostName()); }

RankWait waitingFor(int rank) {
  RankWait wait = standingIn(kCall);
  wait.chains[0].lanes.emplace_back().awaits = {Rank(rank)};
  return wait;
}

void report(Hub& hub, int rank, const RankWait& wait) { addReport(hub, Rank(rank), &wait); }

TEST(VerdictText, TellsCallArrivalsStepsAndWaits) {
  const auto owner = *Hub::make(3);
  Hub& hub = *owner;
  EXPECT_EQ(verdictJson(hub), "null");
  postUpTo(hub, Rank(0), 3);
  postUpTo(hub, Rank(1), 3);
  postUpTo(hub, Rank(2), 1);
  conclude(hub, Rank(1), {Ending::Deadline, error(Code::RemoteError, "too long"), {}}, standingIn(kCall), 250);
  EXPECT_EQ(verdictJson(hub),
            R"({"kind":"deadline","code":6,"text":"too long","rank":1,"waitedMs":250,"operation":"Reduce","sequence":3,"count":77,)"
            R"("type":"float",)"
            R"("op":"pre-multiplied sum","root":2,"arrived":[0,1],"missing":[2],"suspects":[)" +
                suspect(2) +
                R"(],"mismatch":[],"ranks":[)"
                R"({"rank":0,"state":"elsewhere","begun":4,"finished":4,"in":[]},)"
                R"({"rank":1,"state":"waiting","begun":4,"finished":3,"in":[{"operation":"Reduce","sequence":3,"count":77,"type":"float",)"
                R"("op":"pre-multiplied sum","root":2,"slice":2,"slices":4,"step":1,"steps":6,"finishedSteps":13,)"
                R"("waits":"waits for \"rank\" 2\u000a","following":0}]},)"
                R"({"rank":2,"state":"elsewhere","begun":2,"finished":2,"in":[]}]})");
}

/// Rank 0 waits for 1, and that one for 2, which has not said for long that it waits; 3 has not come either, but nobody lacks it.
TEST(VerdictText, SuspectsWhomTheWaitsLeadTo) {
  const auto owner = *Hub::make(4);
  Hub& hub = *owner;
  hub.waits().publish(Rank(2), waitingFor(0));
  hub.waits().confirm(Rank(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  hub.waits().publish(Rank(1), waitingFor(2));
  hub.waits().confirm(Rank(1));
  conclude(hub, Rank(0), {Ending::Deadline, error(Code::RemoteError, "too long"), {}}, waitingFor(1), 300);
  const std::string json = verdictJson(hub);
  EXPECT_NE(json.find(R"("suspects":[)" + suspect(2) + "]"), std::string::npos) << json;
  const std::string words = hub.waits().look([](transport::local::Waits::State& state) { return describeVerdict(*state.verdict); });
  EXPECT_NE(words.find(format("; suspects rank 2 on {}, over shared memory of {}; rank 0 ", hostName(), hostName())), std::string::npos)
      << words;
}

TEST(VerdictText, InACircleSuspectsWhomItWaitsFor) {
  const auto owner = *Hub::make(3);
  Hub& hub = *owner;
  hub.waits().publish(Rank(1), waitingFor(0));
  hub.waits().confirm(Rank(1));
  conclude(hub, Rank(0), {Ending::Deadline, error(Code::RemoteError, "too long"), {}}, waitingFor(1), 60'000);
  const std::string json = verdictJson(hub);
  EXPECT_NE(json.find(R"("suspects":[)" + suspect(1) + "]"), std::string::npos) << json;
}

TEST(VerdictText, SuspectsWhoIsBlamed) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  hub.blame(Rank(0));
  conclude(hub, Rank(1), {Ending::Aborted, error(Code::RemoteError, "lost"), {}}, {}, 0);
  const std::string json = verdictJson(hub);
  EXPECT_NE(json.find(R"("suspects":[)" + suspect(0) + "]"), std::string::npos) << json;
}

TEST(VerdictText, TheFirstStaysAndOthersAddWhereTheyStood) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  conclude(hub, Rank(0), {Ending::Mismatch, error(Code::InvalidUsage, "first"), {{Rank(0), kCall}, {Rank(1), kCall}}}, standingIn(kCall),
           1);
  conclude(hub, Rank(1), {Ending::Aborted, error(Code::RemoteError, "second"), {}}, standingIn(kCall), 2);
  const std::string json = verdictJson(hub);
  EXPECT_NE(json.find(R"("kind":"mismatch")"), std::string::npos) << json;
  EXPECT_EQ(json.find("second"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("rank":1,"state":"waiting")"), std::string::npos) << json;
}

/// Ranks of another host, of which nobody here knew how far they had come.
TEST(VerdictText, WhoGaveUpElsewhereAddsWhereItStoodAndHasArrived) {
  const auto owner = *Hub::make(4);
  Hub& hub = *owner;
  report(hub, 3, waitingFor(1));  // there is no verdict that it could be added to
  EXPECT_EQ(verdictJson(hub), "null");
  hub.depart(Rank(2), 3, false);
  postUpTo(hub, Rank(0), 3);
  conclude(hub, Rank(0), {Ending::Aborted, error(Code::RemoteError, "lost"), {}}, waitingFor(1), 2);
  EXPECT_NE(verdictJson(hub).find(R"("arrived":[0],"missing":[1,2,3])"), std::string::npos) << verdictJson(hub);
  postUpTo(hub, Rank(1), 2);
  report(hub, 1, waitingFor(0));
  EXPECT_NE(verdictJson(hub).find(R"("arrived":[0],"missing":[1,2,3])"), std::string::npos) << "in an earlier call: " << verdictJson(hub);
  EXPECT_NE(verdictJson(hub).find(R"({"rank":1,"state":"waiting","begun":3)"), std::string::npos) << verdictJson(hub);
  for (const int32_t rank : {1, 3}) {
    postUpTo(hub, Rank(rank), 3);
    report(hub, rank, waitingFor(0));
  }
  report(hub, 2, waitingFor(0));
  EXPECT_NE(verdictJson(hub).find(R"("arrived":[0,1,3],"missing":[2])"), std::string::npos) << verdictJson(hub);
  EXPECT_NE(verdictJson(hub).find(R"({"rank":2,"state":"departed","begun":3)"), std::string::npos) << verdictJson(hub);
}

/// It was told between two calls, and waits for nothing.
TEST(VerdictText, WhoWaitsForNothingElsewhereHasArrivedAllTheSame) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  postUpTo(hub, Rank(0), 3);
  conclude(hub, Rank(0), {Ending::Aborted, error(Code::RemoteError, "lost"), {}}, waitingFor(1), 2);
  postUpTo(hub, Rank(1), 7);
  addReport(hub, Rank(1), nullptr);
  EXPECT_NE(verdictJson(hub).find(R"("arrived":[0,1],"missing":[])"), std::string::npos) << verdictJson(hub);
  EXPECT_NE(verdictJson(hub).find(R"({"rank":1,"state":"elsewhere","begun":8)"), std::string::npos) << verdictJson(hub);
}

/// Nobody waited where the verdict was made: its call is that of the first who is known to have waited.
TEST(VerdictText, WhoWaitedElsewhereGivesTheVerdictItsCall) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  conclude(hub, Rank(0), {Ending::Aborted, error(Code::RemoteError, "lost"), {}}, {}, 0);
  postUpTo(hub, Rank(1), 3);
  addReport(hub, Rank(1), nullptr);
  report(hub, 1, waitingFor(0));
  const std::string json = verdictJson(hub);
  EXPECT_NE(json.find(R"("text":"lost","rank":1,"waitedMs":0,"operation":"Reduce")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("arrived":[1],"missing":[0])"), std::string::npos) << json;
}

TEST(VerdictText, OfAnotherHostTakesInWhatIsKnownHere) {
  const auto owner = *Hub::make(3);
  Hub& hub = *owner;
  postUpTo(hub, Rank(1), 3);
  hub.waits().publish(Rank(1), waitingFor(2));
  transport::local::Verdict verdict{Ending::Aborted, error(Code::RemoteError, "lost"), Rank(0), 2, kCall, {}, {Rank(0)},
                                    {Rank(1), Rank(2)}, std::vector<transport::local::RankReport>(3), {}};
  adoptVerdict(hub, verdict);
  EXPECT_NE(verdictJson(hub).find(R"("arrived":[0,1],"missing":[2])"), std::string::npos) << verdictJson(hub);
  EXPECT_NE(verdictJson(hub).find(R"({"rank":1,"state":"waiting","begun":4)"), std::string::npos) << verdictJson(hub);
  verdict.cause = error(Code::RemoteError, "later");
  adoptVerdict(hub, verdict);
  EXPECT_EQ(verdictJson(hub).find("later"), std::string::npos) << verdictJson(hub);
}

TEST(VerdictText, WhoComesWhenTheDeadlineHasPassedHasNotArrived) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  postUpTo(hub, Rank(0), 3);
  conclude(hub, Rank(0), {Ending::Deadline, error(Code::RemoteError, "too long"), {}}, waitingFor(1), 300);
  postUpTo(hub, Rank(1), 3);
  report(hub, 1, waitingFor(0));
  EXPECT_NE(verdictJson(hub).find(R"("arrived":[0],"missing":[1])"), std::string::npos) << verdictJson(hub);
  EXPECT_NE(verdictJson(hub).find(R"({"rank":1,"state":"waiting","begun":4)"), std::string::npos) << verdictJson(hub);
}

TEST(VerdictText, OfAnErrorThatMetNoWaitTakesTheCallOfTheFirstThatWaited) {
  const auto owner = *Hub::make(2);
  Hub& hub = *owner;
  const Status loss = error(Code::RemoteError, "process 7 has ended");
  conclude(hub, Rank(0), {Ending::Aborted, loss, {}}, {}, 0);
  EXPECT_EQ(verdictJson(hub).find("arrived"), std::string::npos) << verdictJson(hub);
  conclude(hub, Rank(1), {Ending::Aborted, loss, {}}, standingIn(kCall), 2);
  conclude(hub, Rank(0), {Ending::Aborted, error(Code::RemoteError, "late"), {}}, {}, 0);
  const std::string json = verdictJson(hub);
  EXPECT_NE(json.find(R"("text":"process 7 has ended","rank":1,"waitedMs":2,"operation":"Reduce")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("arrived":[1],"missing":[0])"), std::string::npos) << json;
}

TEST(VerdictText, OfAMessageConcernsItsTwoRanks) {
  const auto owner = *Hub::make(4);
  Hub& hub = *owner;
  Call receive{Collective::SendRecv, DataType::I8, 0, 2, 9, 5, true};
  RankWait sender;
  sender.sent = {0, 6, 0, 0};  // the sixth message to rank 1 is under way
  sender.received.resize(4);
  hub.waits().publish(Rank(2), sender);
  conclude(hub, Rank(1), {Ending::Deadline, error(Code::RemoteError, "too long"), {}}, standingIn(receive), 1);
  const std::string json = verdictJson(hub);
  EXPECT_NE(json.find(R"("operation":"Recv","sequence":5,"count":9,"type":"int8","peer":2,"arrived":[1,2],"missing":[])"),
            std::string::npos)
      << json;
}

TEST(VerdictText, OfAnAbortThatMetNoCallHasNone) {
  const auto owner = *Hub::make(1);
  Hub& hub = *owner;
  conclude(hub, Rank(0), {Ending::Aborted, error(Code::RemoteError, "over"), {}}, {}, 0);
  EXPECT_EQ(verdictJson(hub), R"({"kind":"aborted","code":6,"text":"over","rank":0,"waitedMs":0,"suspects":[],"mismatch":[],"ranks":[)"
                              R"({"rank":0,"state":"elsewhere","begun":0,"finished":0,"in":[]}]})");
}

TEST(VerdictText, InWordsStaysShortWithManyRanks) {
  const auto owner = *Hub::make(1000);
  Hub& hub = *owner;
  conclude(hub, Rank(3), {Ending::Deadline, error(Code::RemoteError, "too long"), {}}, standingIn(kCall), 250);
  const std::string words = hub.waits().look([](transport::local::Waits::State& state) { return describeVerdict(*state.verdict); });
  EXPECT_EQ(
      words.rfind("verdict (deadline): rank 3 gave up after 250 ms in Reduce #3 of 77 float, pre-multiplied sum, root 2: too long", 0), 0U)
      << words;
  EXPECT_NE(words.find("984 more ranks"), std::string::npos) << words;
  EXPECT_LT(words.size(), 3000U) << words;
}

/// Rank 1 lives elsewhere; who asks for the way to it waits until another thread has looked at the waits.
class AskingRemote final : public transport::local::Remote {
 public:
  explicit AskingRemote(Hub& hub) : hub_(hub) {}
  ~AskingRemote() override {
    if (other_.joinable()) other_.join();
  }
  AskingRemote(const AskingRemote&) = delete;
  AskingRemote& operator=(const AskingRemote&) = delete;

  transport::local::Way wayTo(Rank) const override {
    other_ = std::thread([this] {
      hub_.waits().look([](const transport::local::Waits::State&) { return 0; });
      hasLooked_.set_value();
    });
    const bool was = hasLooked_.get_future().wait_for(std::chrono::seconds(2)) == std::future_status::ready;
    return {"node7", was ? "a link" : "a link under a lock"};
  }
  std::chrono::nanoseconds pause() const override { return std::chrono::nanoseconds(0); }

  int32_t hostOf(Rank rank) const override { return rank.value; }
  Status use(Usage) override { return {}; }
  Result<transport::local::PipeView> sendHalf(const transport::local::PipeKey&, uint32_t, uint64_t) override { return none(); }
  Result<transport::local::PipeView> receiveHalf(const transport::local::PipeKey&, uint32_t, uint64_t) override { return none(); }
  bool progress() override { return false; }
  void wait(std::chrono::nanoseconds) override {}
  void leave() override {}
  void stands(Rank, const RankWait*, uint64_t) override {}
  bool gaveUp(Rank, const RankWait&, uint64_t) override { return true; }
  void haveCome() override {}
  uint64_t lastHeard(Rank) const override { return 0; }
  bool isSending(Rank) override { return false; }
  bool owes(Rank) override { return false; }
  void failed(const Status&) override {}
  void departed(Rank, uint64_t) override {}
  void finalized(Rank, uint64_t) override {}
  void tell(std::span<const std::byte>, std::span<const int32_t>, bool) override {}
  void adopt(const std::shared_ptr<Hub>&) override {}
  void quiet() override {}

 private:
  static Result<transport::local::PipeView> none() { return fail(Code::InternalError, "not asked for"); }
  Hub& hub_;
  mutable std::thread other_;
  mutable std::promise<void> hasLooked_;
};

/// The way is asked of the network, whose lock others hold while they wait for this one.
TEST(VerdictText, TheWayToASuspectIsAskedForWithoutTheLock) {
  const auto arena = transport::local::Arena::ofThreads(0);
  const auto place = Hub::format(*arena, 1, std::vector<int32_t>{0, 1});
  ASSERT_TRUE(place);
  const auto hub = *Hub::attach(arena, *place, 2);
  hub->setRemote(std::make_shared<AskingRemote>(*hub));
  conclude(*hub, Rank(0), {Ending::Deadline, error(Code::RemoteError, "too long"), {}}, waitingFor(1), 300);
  const std::string json = verdictJson(*hub);
  EXPECT_NE(json.find(R"("suspects":[{"rank":1,"host":"node7","link":"a link"}])"), std::string::npos) << json;
}

}  // namespace
}  // namespace tutti::exec::host::verdict_test
