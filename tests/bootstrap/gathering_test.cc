#include "bootstrap/gathering.h"

#include <gtest/gtest.h>

#include <chrono>

#include "samples.h"

namespace tutti::bootstrap::gathering_test {
namespace {

using samples::member;

TEST(Gathering, FillsAndMakesATableInTheOrderOfFirstRanks) {
  Gathering gathering;
  EXPECT_FALSE(gathering.isComplete());
  EXPECT_EQ(gathering.describeMissing(), "all ranks");
  for (const int32_t rank : {3, 2, 0}) ASSERT_TRUE(gathering.enroll({4, 1, 0}, member(static_cast<uint64_t>(1 + rank % 2)), rank, {}).ok());
  EXPECT_EQ(gathering.describeMissing(), "rank 1 of 4");
  EXPECT_FALSE(gathering.isComplete());
  ASSERT_TRUE(gathering.enroll({4, 1, 0}, member(2), 1, {}).ok());
  ASSERT_TRUE(gathering.isComplete());
  const Table table = gathering.table();
  EXPECT_EQ(table.memberOf, (std::vector<int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(table.members[0], member(1));
  EXPECT_EQ(table.members[1], member(2));
}

TEST(Gathering, RefusesRanksThatContradict) {
  Gathering gathering;
  ASSERT_TRUE(gathering.enroll({4, 1, 0}, member(1), 0, {}).ok());
  EXPECT_EQ(gathering.enroll({4, 1, 0}, member(2), 0, {}).code(), Code::InvalidUsage) << "the same rank";
  const Status ranks = gathering.enroll({5, 1, 0}, member(2), 1, {});
  EXPECT_EQ(ranks.code(), Code::InvalidArgument);
  EXPECT_NE(ranks.text().find("5 ranks"), std::string::npos);
  EXPECT_EQ(gathering.enroll({4, 2, 0}, member(2), 1, {}).code(), Code::InvalidArgument) << "another number of ids";
  Member changed = member(1);
  changed.pid = 1;
  EXPECT_FALSE(gathering.enroll({4, 1, 0}, changed, 1, {}).ok()) << "one token, two processes";
  EXPECT_EQ(gathering.describeMissing(), "ranks 1, 2, 3 of 4") << "what was refused changed nothing";
}

TEST(Gathering, SeveralRootsBringTheirBlocks) {
  Gathering second;
  EXPECT_EQ(second.enroll({5, 2, 1}, member(1), 2, {}).code(), Code::InvalidArgument) << "ranks 0 to 2 are of the first id";
  ASSERT_TRUE(second.enroll({5, 2, 1}, member(1), 3, {}).ok());
  EXPECT_EQ(second.describeMissing(), "rank 4 of 5");
  ASSERT_TRUE(second.enroll({5, 2, 1}, member(2), 4, {}).ok());
  ASSERT_TRUE(second.isComplete());
  const Part part = second.part();
  for (const bool partFirst : {true, false}) {
    Gathering first;
    if (partFirst) {
      ASSERT_TRUE(first.take(part).ok());
    }
    for (int32_t rank = 0; rank < 3; ++rank) ASSERT_TRUE(first.enroll({5, 2, 0}, member(2), rank, {}).ok());
    EXPECT_EQ(first.isComplete(), partFirst);
    if (!partFirst) {
      EXPECT_EQ(first.describeMissing(), "ranks 3, 4 of 5");
      ASSERT_TRUE(first.take(part).ok());
    }
    ASSERT_TRUE(first.isComplete());
    EXPECT_EQ(first.table().memberOf, (std::vector<int32_t>{0, 0, 0, 1, 0})) << "a process may have ranks in several blocks";
    EXPECT_FALSE(first.take(part).ok()) << "once";
  }
  Gathering other;
  ASSERT_TRUE(other.enroll({6, 2, 0}, member(2), 0, {}).ok());
  EXPECT_EQ(other.take(part).code(), Code::InvalidArgument) << "of another communicator";
}

TEST(Gathering, GrowsWithThoseWhoCameOnly) {
  Gathering gathering;
  ASSERT_TRUE(gathering.enroll({kMostRanks, 1, 0}, member(1), 7, {}).ok());
  EXPECT_EQ(gathering.describeMissing(), "ranks 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 262127 more of 262144");
}

TEST(Gathering, AHundredThousandRanksAreNoTrouble) {
  Gathering gathering;
  constexpr int32_t kRanks = 100'000;
  const auto began = std::chrono::steady_clock::now();
  for (int32_t rank = kRanks - 1; rank >= 0; --rank)
    ASSERT_TRUE(gathering.enroll({kRanks, 1, 0}, member(static_cast<uint64_t>(rank), 1), rank, {}).ok());
  const auto table = decodeTable(encode(gathering.table()));
  ASSERT_TRUE(table);
  EXPECT_EQ(table->members.size(), static_cast<size_t>(kRanks));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30)) << "linear: about 0.1 s; quadratic would be minutes";
}

}  // namespace
}  // namespace tutti::bootstrap::gathering_test
