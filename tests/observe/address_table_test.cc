#include "observe/address_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capture_log.h"

namespace tutti::observe::address_table_test {
namespace {

using Rows = std::vector<AddressTable::Row>;

TEST(AddressTable, SaysWhatWasTakenAndWhyOthersWereNot) {
  const play::CaptureLog log("INFO");
  AddressTable table(Subsys::Init, "Test");
  table.add("process 3", Rows{{"192.0.2.1:80", "Connection refused"}, {"192.0.2.2:81", ""}, {"[2001:db8::1]:82", "not tried"}});
  const std::string text = log.text();
  EXPECT_NE(text.find("Test: address  192.0.2.1:80                 of process 3  not chosen: Connection refused\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("Test: address  192.0.2.2:81                 of process 3  chosen\n"), std::string::npos) << text;
  EXPECT_NE(text.find("Test: address  [2001:db8::1]:82             of process 3  not chosen: not tried\n"), std::string::npos) << text;
}

TEST(AddressTable, WhereNothingWasToBeChosenThereIsNone) {
  const play::CaptureLog log("INFO");
  AddressTable table(Subsys::Init, "Test");
  table.add("process 3", Rows{{"192.0.2.1:80", ""}});
  EXPECT_EQ(log.count("address"), 0U) << log.text();
}

/// A thousand peers with which the same comes out take a table each time that their number has doubled, others their own.
TEST(AddressTable, ManyPeersTakeFewLines) {
  const play::CaptureLog log("INFO");
  AddressTable table(Subsys::Init, "Test");
  for (int p = 0; p < 1000; ++p)
    table.add("process " + std::to_string(p), Rows{{"192.0.2.1:" + std::to_string(p), "silent"}, {"192.0.2.2:" + std::to_string(p), ""}});
  EXPECT_EQ(log.count("not chosen: silent"), 10U) << log.text();  // 1, 2, 4 … 512
  EXPECT_EQ(log.count("(so far 512 times)"), 2U) << log.text();
  table.add("process 7", Rows{{"192.0.2.1:7", ""}, {"192.0.2.2:7", "not tried"}});
  EXPECT_EQ(log.count("of process 7  chosen\n"), 1U) << log.text();
}

TEST(AddressTable, EndlesslyManyOutcomesTakeFewLines) {
  const play::CaptureLog log("INFO");
  AddressTable table(Subsys::Init, "Test");
  for (int p = 0; p < 5000; ++p) table.add("one", Rows{{"192.0.2.1:80", "problem " + std::to_string(p)}, {"192.0.2.2:80", ""}});
  EXPECT_LT(log.count("not chosen"), 100U);
  EXPECT_GT(log.count("not chosen"), AddressTable::kMostTables - 1);
}

TEST(AddressTable, IsSilentWithTheLog) {
  const play::CaptureLog log("WARN");
  AddressTable table(Subsys::Init, "Test");
  EXPECT_FALSE(table.isShown());
  table.add("process 3", Rows{{"192.0.2.1:80", "Connection refused"}, {"192.0.2.2:81", ""}});
  EXPECT_EQ(log.text(), "");
}

}  // namespace
}  // namespace tutti::observe::address_table_test
