#include "observe/log_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace tutti::observe::log_settings_test {
namespace {

TEST(LogSettings, LevelsInAnyCase) {
  EXPECT_EQ(parseLevel("VERSION"), Level::Version);
  EXPECT_EQ(parseLevel("warn"), Level::Warn);
  EXPECT_EQ(parseLevel("Info"), Level::Info);
  EXPECT_EQ(parseLevel("ABORT"), Level::Abort);
  EXPECT_EQ(parseLevel("TRACE"), Level::Trace);
  for (const char* unknown : {"", "INF", "INFOO", "3", " INFO"}) EXPECT_EQ(parseLevel(unknown), Level::None) << unknown;
}

TEST(LogSettings, Subsystems) {
  EXPECT_EQ(parseSubsys("INIT,BOOTSTRAP,ENV"), Subsys::Init | Subsys::Bootstrap | Subsys::Env);
  EXPECT_EQ(parseSubsys("coll,Ras,NVLS"), Subsys(0x2 | 0x8000 | 0x800));
  EXPECT_EQ(parseSubsys("ALL"), Subsys::All);
  EXPECT_EQ(parseSubsys("^ALL"), Subsys::None);
  EXPECT_EQ(parseSubsys("^INIT,NET"), Subsys(~uint64_t{0x11}));
  EXPECT_EQ(parseSubsys("nonsense,,INIT,"), Subsys::Init);
  EXPECT_EQ(parseSubsys(""), Subsys::None);
  const char* names[] = {"INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "CALL", "PROXY", "NVLS", "BOOTSTRAP",
                         "REG", "PROFILE", "RAS"};
  uint64_t bit = 1;
  for (const char* name : names) {
    EXPECT_EQ(uint64_t(parseSubsys(name)), bit) << name;
    bit <<= 1;
  }
}

TEST(LogSettings, LevelSets) {
  EXPECT_EQ(parseLevelSet("WARN"), 1U << 2);
  EXPECT_EQ(parseLevelSet("info,TRACE"), (1U << 3) | (1U << 5));
  EXPECT_EQ(parseLevelSet("ALL"), ~0U);
  EXPECT_EQ(parseLevelSet("^WARN") & 0x3f, 0x3fU & ~4U);
  EXPECT_EQ(parseLevelSet(""), 0U);
}

TEST(LogSettings, PathsOfLogFiles) {
  EXPECT_EQ(expandPath("/tmp/log.%h.%p", "node1", 42), "/tmp/log.node1.42");
  EXPECT_EQ(expandPath("100%%/%x%", "node1", 42), "100%/%x%");
  EXPECT_EQ(expandPath("%%h", "node1", 42), "%h");
}

TEST(LogSettings, Timestamps) {
  setenv("TZ", "UTC", 1);
  tzset();
  constexpr int64_t kSeconds = 1'795'252'347;  // 2026-11-21 09:12:27 UTC
  EXPECT_EQ(formatTimestamp("[%F %T] ", kSeconds, 0), "[2026-11-21 09:12:27] ");
  EXPECT_EQ(formatTimestamp("[%F_%T.%3f]_", kSeconds, 45'678'912), "[2026-11-21 09:12:27.045] ");
  EXPECT_EQ(formatTimestamp("%9f", kSeconds, 45'678'912), "045678912");
  EXPECT_EQ(formatTimestamp("%%3f %1f", kSeconds, 999'999'999), "%3f 9");
  EXPECT_EQ(formatTimestamp("", kSeconds, 0), "");
  std::string tooLong(250, 'x');  // and then more, in a second step: gcc 12 warns of memory that is not there for the sum of both
  tooLong += "%F";
  EXPECT_EQ(formatTimestamp(tooLong, kSeconds, 0), "") << "does not fit";
}

TEST(LogSettings, PathsAndHostsAreShortened) {
  EXPECT_EQ(shortenPath("/home/x/src/tutti/src/comm/init.cc"), "comm/init.cc");
  EXPECT_EQ(shortenPath("src/api/group.cc"), "api/group.cc");
  EXPECT_EQ(shortenPath("/build/tools/bench.cc"), "bench.cc");
  EXPECT_EQ(shortenPath("plain.cc"), "plain.cc");
  EXPECT_EQ(shortenHost("node1.cluster.example"), "node1");
  EXPECT_EQ(shortenHost("node1"), "node1");
}

TEST(LogSettings, LinesAreLaidOutAsToolsExpect) {
  const Origin origin{"node1", 10, 11, 3};
  const Place place{"comm/init.cc", 7};
  EXPECT_EQ(layOutLine(Level::Version, false, "", origin, {}, 0, "NCCL version 2.28.9"), "NCCL version 2.28.9\n");
  EXPECT_EQ(layOutLine(Level::Warn, false, "[now] ", origin, place, 0, "bad"),
            "\n[now] node1:10:11 [3] comm/init.cc:7 NCCL WARN bad\n");
  EXPECT_EQ(layOutLine(Level::Info, false, "", origin, {}, 0, "hello"), "node1:10:11 [3] NCCL INFO hello\n");
  EXPECT_EQ(layOutLine(Level::Trace, true, "", origin, {}, 0, "ncclGetUniqueId(0x1)"),
            "node1:10:11 NCCL CALL ncclGetUniqueId(0x1)\n");
  EXPECT_EQ(layOutLine(Level::Trace, false, "", origin, place, 1.5, "x"), "node1:10:11 [3] 1.500000 comm/init.cc:7 NCCL TRACE x\n");
}

TEST(LogSettings, LongLinesAreCutButKeepTheirNewline) {
  const std::string line = layOutLine(Level::Info, false, "", {"h", 1, 2, 0}, {}, 0, std::string(5000, 'x'));
  EXPECT_EQ(line.size(), kMaxLineBytes);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(line[line.size() - 2], 'x');
}

}  // namespace
}  // namespace tutti::observe::log_settings_test
