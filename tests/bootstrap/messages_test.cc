#include "bootstrap/messages.h"

#include <gtest/gtest.h>

#include "samples.h"

namespace tutti::bootstrap::messages_test {
namespace {

TEST(Messages, SurviveTheirBytes) {
  const Enroll enroll = samples::enroll();
  const auto enrollAgain = decodeEnroll(encode(enroll));
  ASSERT_TRUE(enrollAgain);
  EXPECT_EQ(enrollAgain->division, enroll.division);
  EXPECT_EQ(enrollAgain->firstId, enroll.firstId);
  EXPECT_EQ(enrollAgain->member, enroll.member);
  EXPECT_EQ(enrollAgain->rank, enroll.rank);
  EXPECT_EQ(enrollAgain->note, enroll.note);
  EXPECT_EQ(enrollAgain->setUpMs, enroll.setUpMs);

  const Part part = samples::part();
  const auto partAgain = decodePart(encode(part));
  ASSERT_TRUE(partAgain);
  EXPECT_EQ(partAgain->members, part.members);
  ASSERT_EQ(partAgain->entries.size(), part.entries.size());
  EXPECT_EQ(partAgain->entries[3].rank, 7);
  EXPECT_EQ(partAgain->entries[3].member, 1);

  const Table table = samples::table();
  const auto tableAgain = decodeTable(encode(table));
  ASSERT_TRUE(tableAgain);
  EXPECT_EQ(tableAgain->number, table.number);
  EXPECT_EQ(tableAgain->key, table.key);
  EXPECT_EQ(tableAgain->members, table.members);
  EXPECT_EQ(tableAgain->memberOf, table.memberOf);
  EXPECT_EQ(tableAgain->notes, table.notes);

  const auto welcome = decodeWelcome(encode(Welcome{17, "node", 3}));
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->hostName, "node");
  EXPECT_EQ(welcome->rank, 3);

  const Status trouble = decodeTrouble(encode(error(Code::InvalidUsage, "why")));
  EXPECT_EQ(trouble.code(), Code::InvalidUsage);
  EXPECT_EQ(trouble.text(), "why");
}

template <class Decode>
void expectWholeOnly(std::vector<std::byte> bytes, Decode decode) {
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(std::span(bytes).first(size))) << size << " of " << bytes.size();
  EXPECT_TRUE(decode(bytes));
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode(bytes));
}

TEST(Messages, NoPartOfAMessageIsOne) {
  expectWholeOnly(encode(samples::enroll()), decodeEnroll);
  expectWholeOnly(encode(samples::part()), decodePart);
  expectWholeOnly(encode(samples::table()), decodeTable);
  expectWholeOnly(encode(Welcome{1, "h", 2}), decodeWelcome);
}

TEST(Messages, PromisesThatAreBrokenAreRefused) {
  const auto refusesTable = [](const std::function<void(Table&)>& change) {
    Table table = samples::table();
    change(table);
    return !decodeTable(encode(table));
  };
  EXPECT_TRUE(refusesTable([](Table& t) { t.memberOf[1] = 3; })) << "a member that is not there";
  EXPECT_TRUE(refusesTable([](Table& t) { t.memberOf[1] = -1; }));
  EXPECT_TRUE(refusesTable([](Table& t) { t.memberOf[0] = 1; })) << "members out of order";
  EXPECT_TRUE(refusesTable([](Table& t) { t.memberOf = {0, 1, 0, 1, 1}; })) << "a member without a rank";
  EXPECT_TRUE(refusesTable([](Table& t) { t.notes.pop_back(); }));
  EXPECT_TRUE(refusesTable([](Table& t) { t.members.clear(); }));
  const auto refusesPart = [](const std::function<void(Part&)>& change) {
    Part part = samples::part();
    change(part);
    return !decodePart(encode(part));
  };
  EXPECT_TRUE(refusesPart([](Part& p) { p.entries[0].rank = 8; }));
  EXPECT_TRUE(refusesPart([](Part& p) { p.entries[0].rank = -1; }));
  EXPECT_TRUE(refusesPart([](Part& p) { p.entries[0].member = 2; }));
  EXPECT_TRUE(refusesPart([](Part& p) { p.division.ids = 9; })) << "more ids than ranks";
  EXPECT_TRUE(refusesPart([](Part& p) { p.division.index = 2; }));
  EXPECT_TRUE(refusesPart([](Part& p) { p.division.ranks = kMostRanks + 1; }));
  EXPECT_TRUE(refusesPart([](Part& p) { p.members.push_back(samples::member(9)); })) << "a member without a rank";
  Enroll enroll = samples::enroll();
  enroll.rank = 8;
  EXPECT_FALSE(decodeEnroll(encode(enroll)));
}

TEST(Messages, TroubleIsNeverOk) {
  EXPECT_FALSE(decodeTrouble({}).ok());
  std::vector<std::byte> ok(6);  // code 0, no text
  EXPECT_FALSE(decodeTrouble(ok).ok());
  ok[0] = std::byte{100};
  EXPECT_FALSE(decodeTrouble(ok).ok());
  ok[0] = static_cast<std::byte>(Code::RemoteError);
  EXPECT_FALSE(decodeTrouble(ok).text().empty()) << "somebody will read why";
}

TEST(Messages, HundredsOfThousandsOfDamagedOnesDoNoHarm) {
  std::mt19937 random(2024);
  const std::vector<std::vector<std::byte>> whole = {encode(samples::enroll()), encode(samples::part()), encode(samples::table()),
                                                     encode(Welcome{1, "h", 2}), encode(error(Code::RemoteError, "text"))};
  for (int i = 0; i < 300'000; ++i) {
    std::vector<std::byte> bytes = whole[random() % whole.size()];
    samples::damage(bytes, random);
    if (const auto table = decodeTable(bytes)) {
      for (const int32_t member : table->memberOf) ASSERT_LT(static_cast<size_t>(member), table->members.size());
      ASSERT_EQ(table->notes.size(), table->memberOf.size());
    }
    if (const auto part = decodePart(bytes)) {
      for (const Part::Entry& entry : part->entries) ASSERT_LT(static_cast<size_t>(entry.member), part->members.size());
    }
    if (const auto enroll = decodeEnroll(bytes)) {
      ASSERT_LT(enroll->rank, enroll->division.ranks);
    }
    (void)decodeWelcome(bytes);
    ASSERT_FALSE(decodeTrouble(bytes).ok());
  }
}

}  // namespace
}  // namespace tutti::bootstrap::messages_test
