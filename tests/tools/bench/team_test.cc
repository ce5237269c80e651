// A rank that fails, or hangs, must not leave the others waiting.
#include "bench/team.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti::bench::team_test {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Team> startTeam(int ranks, milliseconds timeout = milliseconds(20000)) {
  Result<std::unique_ptr<Team>> team = Team::start(ranks, timeout);
  EXPECT_TRUE(team) << team.error().text();
  return team ? std::move(*team) : nullptr;
}

Status reduceOnce(Member& member) {
  float in = 1;
  float out = 0;
  TUTTI_TRY(member.check(ncclAllReduce(&in, &out, 1, ncclFloat, ncclSum, member.comm(), nullptr), "all_reduce"));
  return out == 3 ? Status() : error(Code::InternalError, "wrong sum {}", out);
}

TEST(Team, RunsJobsOnAllRanks) {
  const auto team = startTeam(3);
  std::array<int, 3> seen{};
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(team->run("counting", [&](Member& member) {
      ++seen[static_cast<size_t>(member.rank())];
      return member.meet();
    }).ok());
  }
  EXPECT_EQ(seen, (std::array<int, 3>{10, 10, 10}));
  EXPECT_TRUE(team->run("reducing", reduceOnce).ok());
}

TEST(Team, ARankThatFailsEndsThoseInACall) {
  const auto team = startTeam(3);
  const Status status = team->run("failing", [](Member& member) {
    return member.rank() == 1 ? error(Code::SystemError, "rank 1 has a bad day") : reduceOnce(member);
  });
  EXPECT_EQ(status.code(), Code::SystemError);
  EXPECT_EQ(status.text(), "rank 1 has a bad day");
  EXPECT_EQ(team->run("anything", reduceOnce).text(), "rank 1 has a bad day");
}

TEST(Team, ARankThatFailsEndsThoseAtTheBarrier) {
  const auto team = startTeam(4);
  const Status status = team->run("failing", [](Member& member) {
    return member.rank() == 0 ? error(Code::InvalidUsage, "first") : member.meet();
  });
  EXPECT_EQ(status.text(), "first");
}

TEST(Team, ADeadlineEndsAHang) {
  const auto team = startTeam(3, milliseconds(300));
  const Status status = team->run("hanging", [](Member& member) { return member.rank() == 2 ? Status() : reduceOnce(member); });
  EXPECT_NE(status.text().find("hanging has not ended within 0.3 s"), std::string::npos) << status.text();
}

TEST(Team, NcclErrorsNameRankCallAndCause) {
  const auto team = startTeam(2);
  const Status status = team->run("misuse", [](Member& member) {
    if (member.rank() == 1) return member.meet();
    return member.check(ncclAllReduce(nullptr, nullptr, 1, static_cast<ncclDataType_t>(13), ncclSum, member.comm(), nullptr), "all_reduce");
  });
  EXPECT_EQ(status.code(), Code::InvalidArgument);
  EXPECT_NE(status.text().find("rank 0: all_reduce: "), std::string::npos) << status.text();
  EXPECT_NE(status.text().find("13"), std::string::npos) << status.text();
}

}  // namespace
}  // namespace tutti::bench::team_test
