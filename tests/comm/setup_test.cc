#include "comm/setup.h"

#include <gtest/gtest.h>

#include "comm/process.h"
#include "config/params.h"
#include "joined_ranks.h"
#include "observe/log.h"

namespace tutti::comm::setup_test {
namespace {

/// A rank on its way, without a handle.
struct Joining {
  Joining(const UniqueIdBytes& id, int32_t ranks, int32_t rank, Clock& clock = realClock())
      : comm(Rank(rank), ranks, rank, bootstrap::Service::hashOf(id), Config()) {
    ncclComm* unused = nullptr;
    setup = makeJoin(comm, nullptr, joinRequest(id, ranks, rank, &unused), clock);
  }
  Communicator comm;
  std::shared_ptr<Setup> setup;
};

UniqueIdBytes newId() { return *process().bootstrap.makeId(); }

TEST(Setup, EndsWhenEverybodyHasCome) {
  const UniqueIdBytes id = newId();
  Joining a(id, 2, 0), b(id, 2, 1);
  ASSERT_TRUE(a.setup->start().ok());
  EXPECT_EQ(a.setup->advance(), Poll::Pending);
  EXPECT_FALSE(a.comm.isOpen());
  ASSERT_TRUE(b.setup->start().ok());
  EXPECT_EQ(a.setup->advance(), Poll::Ready);
  EXPECT_EQ(b.setup->advance(), Poll::Ready);
  EXPECT_TRUE(a.comm.isOpen());
  EXPECT_EQ(&a.comm.hub(), &b.comm.hub());
}

TEST(Setup, BeforeItsStartItIsPending) {
  Joining a(newId(), 1, 0);
  EXPECT_EQ(a.setup->advance(), Poll::Pending);
}

TEST(Setup, GivingUpTellsTheOthers) {
  const UniqueIdBytes id = newId();
  Joining a(id, 3, 0), b(id, 3, 1), late(id, 3, 2);
  ASSERT_TRUE(a.setup->start().ok());
  ASSERT_TRUE(b.setup->start().ok());
  a.setup->giveUp(error(Code::RemoteError, "no more"));
  a.setup->giveUp(error(Code::SystemError, "twice"));
  EXPECT_EQ(a.setup->advance(), Poll::Failed);
  EXPECT_EQ(a.setup->status().text(), "no more");
  EXPECT_EQ(b.setup->advance(), Poll::Failed);
  EXPECT_NE(b.setup->status().text().find("no more"), std::string::npos) << b.setup->status().text();
  EXPECT_FALSE(late.setup->start().ok()) << "not left waiting";
}

TEST(Setup, GivingUpAfterItsEndFailsTheCallsOfTheOthers) {
  const UniqueIdBytes id = newId();
  Joining a(id, 2, 0), b(id, 2, 1);
  ASSERT_TRUE(a.setup->start().ok());
  ASSERT_TRUE(b.setup->start().ok());
  ASSERT_EQ(b.setup->advance(), Poll::Ready);
  ASSERT_EQ(a.setup->advance(), Poll::Ready);
  a.setup->giveUp(error(Code::SystemError, "too late"));
  EXPECT_EQ(b.comm.state(), Code::SystemError);
}

TEST(Setup, GivingUpWhenAllHaveComeUnseenTellsTheOthers) {
  const UniqueIdBytes id = newId();
  Joining a(id, 3, 0), b(id, 3, 1), c(id, 3, 2);
  for (Joining* one : {&a, &b, &c}) ASSERT_TRUE(one->setup->start().ok());
  b.setup->giveUp(error(Code::RemoteError, "no more"));
  EXPECT_EQ(a.setup->advance(), Poll::Ready);
  EXPECT_EQ(a.comm.state(), Code::RemoteError);
  EXPECT_EQ(c.comm.state(), Code::InProgress) << "nobody drives it yet";
  EXPECT_EQ(c.setup->advance(), Poll::Ready);
  EXPECT_EQ(c.comm.state(), Code::RemoteError);
}

// Its rank has come, so that all are there, and says what is wrong with it when it looks next.
TEST(Setup, OneThatHasFailedIsHeard) {
  const UniqueIdBytes id = newId();
  Joining a(id, 2, 0);
  ASSERT_TRUE(a.setup->start().ok());
  Arrival arrival{0, 1, 1, 64, 1};
  arrival.hasFailed = 1;
  const auto other = process().foundations.join(process().bootstrap, std::span(&id, 1), 2, Rank(1), arrival);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(a.setup->advance(), Poll::Pending);
  EXPECT_FALSE(a.comm.isOpen());
  other->end(error(Code::UnhandledCudaError, "its GPU is gone"));
  EXPECT_EQ(a.setup->advance(), Poll::Failed);
  EXPECT_FALSE(a.comm.isOpen());
  EXPECT_NE(a.setup->status().text().find("its GPU is gone"), std::string::npos) << a.setup->status().text();
}

TEST(Setup, AWaitPastTheDeadlineIsAnErrorThatNamesTheMissing) {
  ::setenv("TUTTI_TIMEOUT_MS", "5000", 1);
  config::resetForTest();
  ManualClock clock;
  const UniqueIdBytes id = newId();
  Joining a(id, 3, 1, clock), b(id, 3, 2, clock);
  ::unsetenv("TUTTI_TIMEOUT_MS");
  config::resetForTest();
  ASSERT_TRUE(a.setup->start().ok());
  ASSERT_TRUE(b.setup->start().ok());
  clock.advance(std::chrono::milliseconds(4999));
  EXPECT_EQ(a.setup->advance(), Poll::Pending);
  clock.advance(std::chrono::milliseconds(1));
  ASSERT_EQ(a.setup->advance(), Poll::Failed);
  EXPECT_EQ(a.setup->status().code(), Code::RemoteError);
  EXPECT_NE(a.setup->status().text().find("rank 0 of 3"), std::string::npos) << a.setup->status().text();
  EXPECT_EQ(b.setup->advance(), Poll::Failed) << "nobody is left waiting";
}

TEST(Setup, AnInitHasADeadlineOfItsOwn) {
  ManualClock clock;
  const UniqueIdBytes id = newId();
  Joining a(id, 3, 1, clock), b(id, 3, 2, clock);
  ASSERT_TRUE(a.setup->start().ok());
  ASSERT_TRUE(b.setup->start().ok());
  clock.advance(std::chrono::minutes(30) - std::chrono::milliseconds(1));
  EXPECT_EQ(a.setup->advance(), Poll::Pending);
  clock.advance(std::chrono::milliseconds(1));
  ASSERT_EQ(a.setup->advance(), Poll::Failed);
  EXPECT_EQ(a.setup->status().code(), Code::RemoteError);
  EXPECT_NE(a.setup->status().text().find("TUTTI_INIT_TIMEOUT_MS allows: rank 0 of 3"), std::string::npos) << a.setup->status().text();
  EXPECT_EQ(b.setup->advance(), Poll::Failed) << "nobody is left waiting";
}

TEST(Setup, AnInitMayWaitForEver) {
  ::setenv("TUTTI_INIT_TIMEOUT_MS", "0", 1);
  config::resetForTest();
  ManualClock clock;
  const UniqueIdBytes id = newId();
  Joining a(id, 3, 1, clock);
  ::unsetenv("TUTTI_INIT_TIMEOUT_MS");
  config::resetForTest();
  ASSERT_TRUE(a.setup->start().ok());
  clock.advance(std::chrono::hours(1000));
  EXPECT_EQ(a.setup->advance(), Poll::Pending);
}

TEST(Setup, ALongWaitIsExplainedOnce) {
  ManualClock clock;
  const UniqueIdBytes id = newId();
  Joining a(id, 4, 2, clock);
  ASSERT_TRUE(a.setup->start().ok());
  observe::warn("nothing");
  clock.advance(std::chrono::seconds(9));
  EXPECT_EQ(a.setup->advance(), Poll::Pending);
  EXPECT_STREQ(observe::lastErrorText(), "nothing");
  clock.advance(std::chrono::seconds(2));
  EXPECT_EQ(a.setup->advance(), Poll::Pending);
  EXPECT_STREQ(observe::lastErrorText(), "ncclCommInitRank: rank 2 has waited for 11 s: ranks 0, 1, 3 of 4 have not come");
  observe::warn("nothing");
  clock.advance(std::chrono::seconds(60));
  EXPECT_EQ(a.setup->advance(), Poll::Pending);
  EXPECT_STREQ(observe::lastErrorText(), "nothing");
}

ChildRequest split(int32_t color, int32_t key) {
  ChildRequest request;
  request.color = color;
  request.key = key;
  return request;
}

ChildRequest shrink(std::vector<int32_t> excluded) {
  ChildRequest request;
  request.kind = ChildRequest::Kind::Shrink;
  request.excluded = std::move(excluded);
  return request;
}

/// A child of rank `rank` of joined ranks.
std::shared_ptr<Setup> childOf(JoinedRanks& ranks, size_t rank, ncclComm** result, ChildRequest request, Clock& clock = realClock()) {
  request.result = result;
  request.parent = ranks[rank];
  return makeChild(*ranks.use(rank), std::move(request), clock);
}

TEST(Child, OfASplitKeepsItsPlaceBesideTheCallsOfTheParent) {
  JoinedRanks ranks(2);
  ncclComm* made[2] = {};
  std::shared_ptr<comm::Setup> setups[2];
  for (size_t r = 0; r < 2; ++r) {
    setups[r] = childOf(ranks, r, &made[r], split(3, r == 0 ? 1 : 0));
    ASSERT_TRUE(setups[r]->start().ok());
    EXPECT_EQ(ranks.use(r)->nextSequence(), 1U) << "it counts as a call";
  }
  for (size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(setups[r]->advance(), Poll::Ready);
    const auto child = process().handles.use(made[r]);
    EXPECT_EQ(child->rank(), Rank(r == 0 ? 1 : 0));
    EXPECT_NE(child->hash(), ranks.use(r)->hash());
  }
  EXPECT_EQ(process().handles.use(made[0])->hash(), process().handles.use(made[1])->hash());
  for (ncclComm* child : made) EXPECT_TRUE(endComm(child, true).ok());
}

TEST(Child, OfAShrinkIsMissedByTheParentsRanks) {
  JoinedRanks ranks(4);
  ManualClock clock;
  ncclComm* made = nullptr;
  const auto setup = childOf(ranks, 3, &made, shrink({1}), clock);
  ASSERT_TRUE(setup->start().ok());
  clock.advance(std::chrono::seconds(11));
  EXPECT_EQ(setup->advance(), Poll::Pending);
  EXPECT_STREQ(observe::lastErrorText(), "ncclCommShrink: rank 3 has waited for 11 s: ranks 0, 2 of 3 have not come");
}

TEST(Child, EndsAtTheDeadlineOfInitsWhereCallsHaveNone) {
  for (const ChildRequest& request : {split(0, 0), shrink({1})}) {
    JoinedRanks ranks(4);
    ManualClock clock;
    ncclComm* made = nullptr;
    const auto setup = childOf(ranks, 3, &made, request, clock);
    ASSERT_TRUE(setup->start().ok());
    clock.advance(std::chrono::minutes(30) - std::chrono::milliseconds(1));
    EXPECT_EQ(setup->advance(), Poll::Pending);
    clock.advance(std::chrono::milliseconds(1));
    ASSERT_EQ(setup->advance(), Poll::Failed);
    EXPECT_EQ(setup->status().code(), Code::RemoteError);
    EXPECT_NE(setup->status().text().find("TUTTI_INIT_TIMEOUT_MS allows: ranks 0, "), std::string::npos) << setup->status().text();
  }
}

TEST(Child, ThatFailedIsRememberedForWhoComesLater) {
  JoinedRanks ranks(2);
  ncclComm* made[2] = {};
  const auto early = childOf(ranks, 0, &made[0], {});
  ASSERT_TRUE(early->start().ok());
  early->giveUp(error(Code::InvalidUsage, "its group failed"));
  const auto late = childOf(ranks, 1, &made[1], {});
  ASSERT_TRUE(late->start().ok());
  EXPECT_EQ(late->advance(), Poll::Failed);
  EXPECT_NE(late->status().text().find("its group failed"), std::string::npos);
  for (size_t r = 0; r < 2; ++r) ASSERT_TRUE(childOf(ranks, r, &made[r], {})->start().ok()) << "the next one";
}

}  // namespace
}  // namespace tutti::comm::setup_test
