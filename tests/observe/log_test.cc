#define TUTTI_TRACE
#include "observe/log.h"

#include <gtest/gtest.h>
#include <regex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "config/params.h"

namespace tutti::observe::log_test {
namespace {

/// POSIX extended regular expressions, since std::regex warns under the sanitizers.
bool matches(const std::string& text, const char* pattern) {
  regex_t compiled;
  if (regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0) return false;
  const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const config::Entry& entry : config::table()) unsetenv(entry.name);
    setenv("NCCL_CONF_FILE", "/nonexistent", 1);
    path_ = testing::TempDir() + "tutti_log_" + std::to_string(getpid());
    config::resetForTest();
    resetLog();
  }
  void TearDown() override { unlink(path_.c_str()); }

  /// Logs to a fresh file, whatever was open.
  void start(const char* level) {
    setenv("NCCL_DEBUG", level, 1);
    setenv("NCCL_DEBUG_FILE", "", 1);
    resetLog();
    setUpLog();
    setenv("NCCL_DEBUG_FILE", path_.c_str(), 1);
    resetLog();
  }
  std::string logged() const {
    std::ifstream file(path_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static std::string prefix(int device) {
    char host[256] = {};
    gethostname(host, sizeof(host) - 1);
    return format("{}:{}:{} [{}] ", shortenHost(host), getpid(), syscall(SYS_gettid), device);
  }
  std::string path_;
};

TEST_F(LogTest, NothingIsPrintedByDefaultButWarningsAreStored) {
  testing::internal::CaptureStdout();
  info(Subsys::Init, "quiet");
  warn("the value {} is wrong", 7);
  printBanner("NCCL version 2.28.9", true);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_STREQ(lastErrorText(), "the value 7 is wrong");
}

TEST_F(LogTest, InfoLinesCarryHostProcessThreadAndDevice) {
  start("info");
  setCurrentDevice(5);
  info(Subsys::Init, "rank {} of {}", 1, 2);
  log(Level::Info, Subsys::Env, "second");
  setCurrentDevice(0);
  EXPECT_EQ(logged(), prefix(5) + "NCCL INFO rank 1 of 2\n" + prefix(5) + "NCCL INFO second\n");
}

TEST_F(LogTest, OnlyChosenPartsArePrinted) {
  start("INFO");
  EXPECT_TRUE(enabled(Level::Info, Subsys::Bootstrap));
  EXPECT_FALSE(enabled(Level::Info, Subsys::Coll));
  EXPECT_TRUE(enabled(Level::Info, Subsys::Coll | Subsys::Init));
  EXPECT_FALSE(enabled(Level::Trace, Subsys::Init));
  EXPECT_TRUE(enabled(Level::Warn, Subsys::None));
  setenv("NCCL_DEBUG_SUBSYS", "^INIT", 1);
  EXPECT_FALSE(enabled(Level::Info, Subsys::Coll)) << "read once";
  resetLog();
  EXPECT_TRUE(enabled(Level::Info, Subsys::Coll));
  EXPECT_FALSE(enabled(Level::Info, Subsys::Init));
}

TEST_F(LogTest, WarningsStartANewLineAndNameTheirPlace) {
  start("WARN");
  setenv("NCCL_DEBUG_TIMESTAMP_FORMAT", "", 1);
  warn("no such device: {}", 9);
  const int line = __LINE__ - 1;
  info(Subsys::All, "hidden");
  EXPECT_EQ(logged(), format("\n{}log_test.cc:{} NCCL WARN no such device: 9\n", prefix(0), line));
}

TEST_F(LogTest, WarningsCarryTheTimeByDefaultAndOthersOnDemand) {
  start("INFO");
  warn("w");
  info(Subsys::Init, "i");
  EXPECT_TRUE(matches(logged(), "^\n\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}] [^\n]+WARN w\n[^[\n]+\\[0] NCCL INFO i\n$"))
      << logged();
  setenv("NCCL_DEBUG_TIMESTAMP_FORMAT", "<%s.%3f>_", 1);
  setenv("NCCL_DEBUG_TIMESTAMP_LEVELS", "INFO", 1);
  resetLog();
  info(Subsys::Init, "timed");
  EXPECT_TRUE(matches(logged(), "\n<[0-9]+\\.[0-9]{3}> [^\n]+ timed\n$")) << logged();
}

TEST_F(LogTest, StatusesAreWarnedAbout) {
  start("WARN");
  logStatus(Status());
  EXPECT_EQ(logged(), "");
  logStatus(error(Code::SystemError, "socket closed").at("init rank 2"));
  EXPECT_STREQ(lastErrorText(), "socket closed [init rank 2]");
  EXPECT_NE(logged().find("log_test.cc:"), std::string::npos);
}

TEST_F(LogTest, CallsAndTraces) {
  start("TRACE");
  setenv("NCCL_DEBUG_SUBSYS", "CALL,COLL", 1);
  resetLog();
  call("ncclGetUniqueId({})", "0x1");
  trace(Subsys::Coll, "step {}", 3);
  trace(Subsys::Init, "hidden");
  EXPECT_TRUE(matches(logged(), "^[^ ]+ NCCL CALL ncclGetUniqueId\\(0x1\\)\n[^ ]+ \\[0] [0-9.]+ log_test\\.cc:[0-9]+ NCCL TRACE step 3\n$"))
      << logged();
}

TEST_F(LogTest, TheFileIsNamedByPatternAndTruncatedOnce) {
  start("INFO");
  std::ofstream(path_) << "old";
  setenv("NCCL_DEBUG_FILE", (testing::TempDir() + "tutti_log_%p").c_str(), 1);
  info(Subsys::Init, "one");
  resetLog();
  info(Subsys::Init, "two");
  EXPECT_EQ(logged(), prefix(0) + "NCCL INFO one\n" + prefix(0) + "NCCL INFO two\n") << "an unchanged file stays open";
}

TEST_F(LogTest, NoFileIsOpenedAtVersionLevel) {
  start("VERSION");
  setUpLog();
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsReportedOnStandardOutput) {
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", "/nonexistent/folder/log", 1);
  testing::internal::CaptureStdout();
  info(Subsys::Init, "still here");
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("/nonexistent/folder/log: No such file or directory"), std::string::npos) << text;
  EXPECT_NE(text.find("NCCL INFO still here\n"), std::string::npos);
}

TEST_F(LogTest, VariablesThatAreSetAreReported) {
  start("INFO");
  setenv("TUTTI_SLOTS", "4", 1);
  setUpLog();
  config::getNumber(config::Param::TuttiSlots);
  EXPECT_EQ(logged(), prefix(0) + "NCCL INFO TUTTI_SLOTS set by environment to 4.\n");
}

TEST_F(LogTest, AWarningCanRaiseTheLevel) {
  start("WARN");
  setenv("NCCL_WARN_ENABLE_DEBUG_INFO", "1", 1);
  EXPECT_FALSE(enabled(Level::Info, Subsys::Init));
  warn("trouble");
  EXPECT_TRUE(enabled(Level::Info, Subsys::Init));
}

// The banner is printed once per process: no other test may let it out.
TEST_F(LogTest, TheBannerIsPrintedOnce) {
  start("WARN");
  printBanner("NCCL version 2.28.9+tutti", false);
  EXPECT_EQ(logged(), "") << "below INFO only rank 0 prints it";
  printBanner("NCCL version 2.28.9+tutti", true);
  printBanner("NCCL version 2.28.9+tutti", true);
  EXPECT_EQ(logged(), "NCCL version 2.28.9+tutti\n");
}

TEST_F(LogTest, ThreadsNeverMixTheirLines) {
  start("INFO");
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      setCurrentDevice(t);
      for (int i = 0; i < kLines; ++i) {
        info(Subsys::Init, "{} {} {}", t, i, std::string(100, 'x'));
        if (i % 50 == 0) warn("thread {}", t);
        if (i % 70 == 0) resetLog();
        EXPECT_NE(lastErrorText(), nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(logged());
  std::set<std::string> seen;
  int infos = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("NCCL INFO ");
    if (at == std::string::npos) continue;
    ++infos;
    EXPECT_TRUE(line.ends_with(std::string(100, 'x')));
    EXPECT_TRUE(seen.insert(line).second);
  }
  EXPECT_EQ(infos, kThreads * kLines);
}

}  // namespace
}  // namespace tutti::observe::log_test
