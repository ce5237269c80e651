// What goes wrong with a join, and what everybody hears of it: processes are played by services of one process.
#include <future>

#include "bootstrap/mesh.h"
#include "net.h"

namespace tutti::bootstrap::trouble_test {
namespace {

using namespace play;

struct Trio {
  Service a{worldOf("host0")};
  Service b{worldOf("host1")};
  Service c{worldOf("host1")};
  UniqueIdBytes id = a.makeId().value_or(UniqueIdBytes{});
};

void expectError(const Outcome& outcome, Code code, const std::string& part) {
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), code) << outcome.error().text();
  EXPECT_NE(outcome.error().text().find(part), std::string::npos) << outcome.error().text();
}

TEST(Trouble, BytesThatAreNoIdAndRanksThatDoNotExist) {
  Service service(worldOf("h"));
  expectError(wait(*join(service, UniqueIdBytes{}, 2, 0)), Code::InvalidArgument, "not made by ncclGetUniqueId");
  const auto id = service.makeId();
  expectError(wait(*join(service, *id, 2, 2)), Code::InvalidArgument, "no rank 2 of 2");
  expectError(wait(*join(service, *id, 0, 0)), Code::InvalidArgument, "no rank 0 of 0");
  expectError(wait(*service.join({}, 2, Rank(0), {}, nullptr)), Code::InvalidArgument, "0 unique ids");
}

TEST(Trouble, AnIdIsGoodOnce) {
  Trio trio;
  const Joined first = join(trio.a, trio.id, 1, 0);
  ASSERT_TRUE(wait(*first));
  expectError(wait(*join(trio.a, trio.id, 1, 0)), Code::InvalidUsage, "has served");
}

TEST(Trouble, WhoComesLateFromAnotherProcessIsTold) {
  Trio trio;
  const auto keepsOpen = trio.a.makeId();
  ASSERT_TRUE(wait(*join(trio.a, trio.id, 1, 0)));
  expectError(wait(*join(trio.b, trio.id, 1, 0)), Code::InvalidUsage, "has served");
}

TEST(Trouble, RanksThatDisagreeAboutTheirNumber) {
  {
    Trio trio;  // in the root's process
    const Joined right = join(trio.a, trio.id, 3, 0);
    const Joined wrong = join(trio.a, trio.id, 4, 3);
    expectError(wait(*wrong), Code::InvalidArgument, "4 ranks, others with the same unique id say 3");
    expectError(wait(*right), Code::InvalidUsage, "another rank failed to join: rank 3 says");
    expectError(wait(*join(trio.a, trio.id, 3, 2)), Code::InvalidUsage,
                "failed to meet before this one came: another rank failed to join: rank 3 says");
  }
  Trio trio;  // from another
  const Joined right = join(trio.a, trio.id, 3, 0);
  const Joined alsoRight = join(trio.b, trio.id, 3, 1);
  ASSERT_TRUE(becomes([&] { return right->describeMissing() == "rank 2 of 3"; }));
  const Joined wrong = join(trio.c, trio.id, 4, 3);
  expectError(wait(*wrong), Code::InvalidArgument, "4 ranks");
  expectError(wait(*right), Code::InvalidUsage, "another rank failed to join: rank 3 says");
  expectError(wait(*alsoRight), Code::InvalidUsage, "another rank failed to join: rank 3 says");
}

TEST(Trouble, TwoCallersClaimOneRank) {
  {
    Trio trio;
    const Joined first = join(trio.a, trio.id, 3, 1);
    expectError(wait(*join(trio.a, trio.id, 3, 1)), Code::InvalidUsage, "claim the same rank");
    expectError(wait(*first), Code::InvalidUsage, "another rank failed to join");
  }
  Trio trio;
  const Joined first = join(trio.b, trio.id, 3, 1);
  const Joined second = join(trio.c, trio.id, 3, 1);
  const Outcome one = wait(*first);
  const Outcome two = wait(*second);
  ASSERT_FALSE(one || two);
  const auto claims = [](const Outcome& outcome) { return outcome.error().text().find("claim the same rank") != std::string::npos; };
  EXPECT_TRUE(claims(one) && claims(two)) << one.error().text() << two.error().text();
  EXPECT_EQ(one.error().code(), Code::InvalidUsage);
}

/// The news is the same for who comes when it is over, whatever process he is in.
TEST(Trouble, WhoComesLateHearsWhatWentWrong) {
  Trio trio;
  const auto keepsOpen = trio.a.makeId();
  const Joined gone = join(trio.b, trio.id, 4, 1);
  ASSERT_TRUE(becomes([&] { return gone->describeMissing().starts_with("ranks 0, 2, 3 of 4 (said "); }));
  gone->end(error(Code::SystemError, "no memory"));
  for (const auto& [service, rank] : {std::pair(&trio.a, 0), std::pair(&trio.b, 2), std::pair(&trio.c, 3)})
    expectError(wait(*join(*service, trio.id, 4, rank)), Code::SystemError, "no memory");
}

TEST(Trouble, ARankThatGivesUpEndsItForAll) {
  for (const int who : {0, 1, 2}) {
    Trio trio;
    const std::vector<Joined> joined = {join(trio.a, trio.id, 4, 0), join(trio.b, trio.id, 4, 1), join(trio.c, trio.id, 4, 2)};
    ASSERT_TRUE(becomes([&] { return joined[0]->describeMissing() == "rank 3 of 4"; }));
    joined[static_cast<size_t>(who)]->end(error(Code::SystemError, "no memory"));
    for (const Joined& one : joined) expectError(wait(*one, milliseconds(1000)), Code::SystemError, "no memory");
  }
}

TEST(Trouble, ACallerThatLeavesHasGivenUp) {
  Trio trio;
  const Joined stays = join(trio.a, trio.id, 3, 0);
  Joined goes = join(trio.b, trio.id, 3, 1);
  ASSERT_TRUE(becomes([&] { return stays->describeMissing() == "rank 2 of 3"; }));
  goes.reset();
  expectError(wait(*stays, milliseconds(1000)), Code::RemoteError, "rank 1 gave up");
}

TEST(Trouble, AProcessThatEndsIsNamed) {
  Trio trio;
  const Joined stays = join(trio.a, trio.id, 4, 0);
  const Joined alsoStays = join(trio.c, trio.id, 4, 2);
  auto goes = std::make_unique<Service>(worldOf("host7"));
  const Joined gone = join(*goes, trio.id, 4, 3);
  ASSERT_TRUE(becomes([&] { return stays->describeMissing() == "rank 1 of 4"; }));
  goes.reset();
  for (const Joined& one : {stays, alsoStays}) {
    const Outcome outcome = wait(*one, milliseconds(1000));
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().code(), Code::InProgress) << outcome.error().text();
  }
  expectError(wait(*gone), Code::InvalidUsage, "has ended");
}

TEST(Trouble, TheEndOfTheRootsProcessIsHeardEverywhere) {
  auto root = std::make_unique<Service>(worldOf("host0"));
  Service other(worldOf("host1"));
  const auto id = root->makeId();
  const Joined inRoot = join(*root, *id, 3, 0);
  const Joined stays = join(other, *id, 3, 1);
  ASSERT_TRUE(becomes([&] { return inRoot->describeMissing() == "rank 2 of 3"; }));
  root.reset();
  const Outcome outcome = wait(*stays, milliseconds(1000));
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().code(), Code::InProgress) << outcome.error().text();
}

/// Somebody who has proved himself and then says nothing is let go with the service: he may be a rank that is about to register.
TEST(Trouble, TheEndOfTheRootsProcessIsHeardByWhoHasNotRegisteredYet) {
  auto root = std::make_unique<Service>(worldOf("h"));
  const auto id = UniqueId::decode(*root->makeId());
  Loop loop;
  Dialer::Plan plan = planTo(id->addresses);
  plan.purpose = Purpose::Root;
  plan.topic = id->hash;
  plan.secret = id->secret;
  const auto link = dial(loop, plan);
  ASSERT_TRUE(link) << link.error().text();
  std::atomic<bool> isClosed{false};
  loop.run([&] { (*link)->start([](Kind, std::span<const std::byte>) {}, [&](const Status&) { isClosed = true; }); });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(isClosed);
  root.reset();
  EXPECT_TRUE(becomes([&] { return isClosed.load(); }, milliseconds(1000)));
}

TEST(Trouble, WaitingMayBeLimited) {
  Trio trio;
  Limits limits;
  limits.waiting = milliseconds(100);
  const Joined patient = join(trio.b, trio.id, 3, 1);
  ASSERT_TRUE(becomes([&] { return patient->describeMissing().find("has not answered") == std::string::npos; }));
  const Joined hasty = join(trio.a, trio.id, 3, 0, limits);
  expectError(wait(*hasty, milliseconds(1000)), Code::RemoteError, "have not come");
  expectError(wait(*patient, milliseconds(1000)), Code::RemoteError, "rank 2 of 3 have not come");
}

TEST(Trouble, OtherProcessesLearnWhoIsMissing) {
  Trio trio;
  const Joined elsewhere = join(trio.b, trio.id, 4, 1);
  EXPECT_NE(elsewhere->describeMissing().find("has not"), std::string::npos) << elsewhere->describeMissing();
  EXPECT_TRUE(becomes([&] { return elsewhere->describeMissing().starts_with("ranks 0, 2, 3 of 4 (said "); }))
      << elsewhere->describeMissing();
}

TEST(Trouble, AnIdWhoseMakerIsGone) {
  auto maker = std::make_unique<Service>(worldOf("h"));
  const auto id = maker->makeId();
  maker.reset();
  Service service(worldOf("h"));
  expectError(wait(*join(service, *id, 2, 1)), Code::RemoteError, "cannot reach the root of the unique id (11 tries)");
}

TEST(Trouble, MemoryThatCannotBeMade) {
  Trio trio;
  const MakeShared fails = [](const Roster&) -> Result<UniqueFd> { return fail(Code::SystemError, "memory is full"); };
  std::vector<Joined> joined = {join(trio.a, trio.id, 3, 0)};
  joined.push_back(trio.b.join(std::span(&trio.id, 1), 3, Rank(1), noteOf(1), fails));
  joined.push_back(trio.c.join(std::span(&trio.id, 1), 3, Rank(2), noteOf(2), fails));
  for (const Joined& one : joined) expectError(wait(*one), Code::SystemError, "memory is full");
  EXPECT_NE(wait(*joined[0]).error().text().find("rank 1 (process"), std::string::npos) << wait(*joined[0]).error().text();
}

TEST(Trouble, ASetUpThatTakesTooLongNamesTheLate) {
  Trio trio;
  Limits limits;
  limits.setUp = milliseconds(150);
  const MakeShared slow = [](const Roster&) -> Result<UniqueFd> {
    std::this_thread::sleep_for(milliseconds(600));
    return fail(Code::SystemError, "too late");
  };
  const Joined first = join(trio.a, trio.id, 3, 0, limits);
  const Joined second = trio.b.join(std::span(&trio.id, 1), 3, Rank(1), noteOf(1), slow);
  const Joined third = join(trio.c, trio.id, 3, 2);
  const Outcome outcome = wait(*first);
  expectError(outcome, Code::RemoteError, "longer than 150 ms after all ranks had come; not ready: ");
  EXPECT_NE(outcome.error().text().find("rank 1 (process"), std::string::npos) << outcome.error().text();
  EXPECT_FALSE(wait(*second)) << "its own trouble, or the others', whichever it hears of first";
  expectError(wait(*third), Code::RemoteError, "longer than 150 ms");
}

}  // namespace
}  // namespace tutti::bootstrap::trouble_test
