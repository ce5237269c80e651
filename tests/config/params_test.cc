#include "config/params.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

namespace tutti::config::params_test {
namespace {

std::vector<std::string> notices;

class ParamsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const Entry& entry : table()) unsetenv(entry.name);
    setenv("NCCL_CONF_FILE", "/nonexistent", 1);
    notices.clear();
    resetForTest();
    setNoticeSink([](std::string_view line) { notices.emplace_back(line); });
  }
  void TearDown() override {
    setNoticeSink(nullptr);
    resetForTest();
  }
  static int64_t readSlotsAs(const char* value) {
    setenv("TUTTI_SLOTS", value, 1);
    resetForTest();
    return getNumber(Param::TuttiSlots);
  }
};

static_assert(std::is_same_v<decltype(get<Param::TuttiSlots>()), int64_t>);
static_assert(std::is_same_v<decltype(get<Param::CheckPointers>()), bool>);
static_assert(std::is_same_v<decltype(get<Param::Algo>()), std::string>);

TEST_F(ParamsTest, DefaultsWhenUnset) {
  EXPECT_EQ(get<Param::TuttiHostDevices>(), 1024);
  EXPECT_EQ(get<Param::TuttiSpin>(), -1);
  EXPECT_EQ(get<Param::CommBlocking>(), kUndefined);
  EXPECT_EQ(kUndefined, INT32_MIN);
  EXPECT_EQ(get<Param::WorkArgsBytes>(), INT64_MAX);
  EXPECT_FALSE(get<Param::CheckPointers>());
  EXPECT_TRUE(get<Param::RasEnable>());
  EXPECT_EQ(get<Param::TuttiDevice>(), "auto");
  EXPECT_EQ(get<Param::Algo>(), "");
  EXPECT_EQ(findText(Param::TuttiDevice), std::nullopt);
  EXPECT_TRUE(notices.empty());
}

TEST_F(ParamsTest, NumbersAreReadInBaseZero) {
  EXPECT_EQ(readSlotsAs("12"), 12);
  EXPECT_EQ(readSlotsAs("0x20"), 32);
  EXPECT_EQ(readSlotsAs("010"), 8);
  EXPECT_EQ(readSlotsAs("-5"), -5);
  EXPECT_EQ(readSlotsAs("  7"), 7);
  EXPECT_EQ(readSlotsAs("4K"), 4);
  EXPECT_EQ(readSlotsAs("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(readSlotsAs("-9223372036854775808"), INT64_MIN);
}

TEST_F(ParamsTest, TextThatIsNoNumberIsZeroAndEmptyIsUnset) {
  setenv("TUTTI_HOST_DEVICES", "many", 1);
  EXPECT_EQ(getNumber(Param::TuttiHostDevices), 0);
  setenv("TUTTI_HOST_DEVICES", "", 1);
  resetForTest();
  notices.clear();
  EXPECT_EQ(getNumber(Param::TuttiHostDevices), 1024);
  EXPECT_TRUE(notices.empty());
}

TEST_F(ParamsTest, OutOfRangeIsTheDefaultAndSaysSo) {
  setenv("TUTTI_HOST_DEVICES", "9223372036854775808", 1);
  EXPECT_EQ(getNumber(Param::TuttiHostDevices), 1024);
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0], "TUTTI_HOST_DEVICES: value 9223372036854775808 is out of range, using the default 1024.");
}

TEST_F(ParamsTest, NumbersAreCachedAndTextsAreNot) {
  EXPECT_EQ(readSlotsAs("3"), 3);
  setenv("TUTTI_SLOTS", "4", 1);
  EXPECT_EQ(getNumber(Param::TuttiSlots), 3);
  setenv("NCCL_ALGO", "Ring", 1);
  EXPECT_EQ(get<Param::Algo>(), "Ring");
  setenv("NCCL_ALGO", "Tree", 1);
  EXPECT_EQ(get<Param::Algo>(), "Tree");
  unsetenv("NCCL_ALGO");
  EXPECT_EQ(get<Param::Algo>(), "");
}

TEST_F(ParamsTest, EmptyTextIsTheDefaultButCanBeFound) {
  setenv("NCCL_DEBUG_TIMESTAMP_FORMAT", "", 1);
  EXPECT_EQ(get<Param::DebugTimestampFormat>(), "[%F %T] ");
  EXPECT_EQ(findText(Param::DebugTimestampFormat), "");
}

TEST_F(ParamsTest, EachSetVariableIsReportedOnce) {
  setenv("TUTTI_SLOTS", "0x10", 1);
  setenv("NCCL_ALGO", "Ring", 1);
  for (int i = 0; i < 3; ++i) {
    getNumber(Param::TuttiSlots);
    getText(Param::Algo);
    findText(Param::Proto);
    getNumber(Param::TuttiSpin);
  }
  EXPECT_EQ(notices, (std::vector<std::string>{"TUTTI_SLOTS set by environment to 16.", "NCCL_ALGO set by environment to Ring."}));
}

TEST_F(ParamsTest, ASinkMayReadParameters) {
  setenv("TUTTI_SLOTS", "1", 1);
  setenv("TUTTI_SPIN", "2", 1);
  setNoticeSink([](std::string_view line) {
    notices.emplace_back(line);
    getNumber(Param::TuttiSpin);
  });
  getNumber(Param::TuttiSlots);
  EXPECT_EQ(notices.size(), 2U);
}

TEST_F(ParamsTest, ManyThreadsReadOneValue) {
  setenv("TUTTI_SLOTS", "6", 1);
  setNoticeSink(nullptr);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      if (getNumber(Param::TuttiSlots) == 6 && get<Param::TuttiDevice>() == "auto") right.fetch_add(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 8);
}

TEST_F(ParamsTest, TheTableIsConsistent) {
  std::set<std::string_view> names;
  size_t index = 0;
  for (const Entry& entry : table()) {
    EXPECT_EQ(static_cast<size_t>(entry.param), index++);
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_EQ(findEntry(entry.name), &entry);
    if (entry.type == Type::Bool) {
      EXPECT_TRUE(entry.number == 0 || entry.number == 1) << entry.name;
    }
  }
  EXPECT_EQ(index, kNumParams);
  EXPECT_EQ(findEntry("NCCL_NO_SUCH_VARIABLE"), nullptr);
  EXPECT_EQ(findEntry("NCCL_ALG"), nullptr);
}

TEST_F(ParamsTest, OnlyTheseAreHonoured) {
  std::set<std::string_view> honoured;
  for (const Entry& entry : table()) {
    if (entry.effect == Effect::Honoured) honoured.insert(entry.name);
  }
  EXPECT_TRUE(honoured.contains("NCCL_DEBUG"));
  EXPECT_TRUE(honoured.contains("TUTTI_SIMD"));
  EXPECT_FALSE(honoured.contains("NCCL_IB_DISABLE"));
}

}  // namespace
}  // namespace tutti::config::params_test
