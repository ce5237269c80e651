#include "comm/networks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <latch>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../observe/capture_log.h"
#include "config/params.h"

namespace tutti::comm::networks_test {
namespace {

ptrdiff_t threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return std::distance(begin(all), end(all));
}

/// A thread that has been joined may be in the list for another moment.
bool becomes(ptrdiff_t wanted) {
  for (int i = 0; i < 2000 && threads() != wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads() == wanted;
}

class NetworksTest : public testing::Test {
 protected:
  NetworksTest() {
    std::thread([] {}).join();  // a sanitizer has a thread of its own from the first one on
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    config::resetForTest();
  }
  ~NetworksTest() override {
    ::unsetenv("NCCL_SOCKET_IFNAME");
    config::resetForTest();
  }
  Networks networks_;
};

TEST_F(NetworksTest, AnEngineIsSharedAndEndsWithTheLastWhoUsesIt) {
  const ptrdiff_t before = threads();
  auto first = networks_.engine("Socket");
  ASSERT_TRUE(first) << first.error().text();
  auto second = networks_.engine("socket");
  ASSERT_TRUE(second);
  EXPECT_EQ(first->get(), second->get());
  first->reset();
  EXPECT_EQ(threads(), before + 1);
  second->reset();
  EXPECT_TRUE(becomes(before));
  ASSERT_TRUE(networks_.engine("socket")) << "another one";
  EXPECT_TRUE(becomes(before));
}

/// As the example plugin tells, which has a context from the opening of its network to the end of its engine.
TEST_F(NetworksTest, AnotherEngineBeginsWhenTheOneBeforeHasEnded) {
  ::setenv("NCCL_NET_PLUGIN", "example", 1);
  ::setenv("NCCL_DEBUG_SUBSYS", "NET", 1);
  config::resetForTest();
  const observe::play::CaptureLog log("INFO");
  std::latch together(4);
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&] {
      together.arrive_and_wait();
      for (int i = 0; i < 100; ++i) {
        const auto engine = networks_.engine("example");
        ASSERT_TRUE(engine) << engine.error().text();
        EXPECT_FALSE((*engine)->progress()) << "it lives, and has nothing to do";
      }
    });
  }
  for (std::thread& user : users) user.join();
  ::unsetenv("NCCL_NET_PLUGIN");
  ::unsetenv("NCCL_DEBUG_SUBSYS");
  std::istringstream lines(log.text());
  int begun = 0;
  int lives = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" makes context ") != std::string::npos) ++begun, ++lives;
    if (line.find(" ends context ") != std::string::npos) --lives;
    EXPECT_TRUE(lives == 0 || lives == 1) << line;
  }
  EXPECT_GT(begun, 1);
  EXPECT_EQ(lives, 0);
}

TEST_F(NetworksTest, AForkedProcessMakesEnginesOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer ends a forked process that starts a thread";
#endif
  const auto here = networks_.engine("socket");
  ASSERT_TRUE(here);
  const pid_t child = fork();
  if (child == 0) {
    networks_.forgetEngines();
    const ptrdiff_t before = threads();
    const auto there = networks_.engine("socket");
    _exit(there && there->get() != here->get() && threads() == before + 1 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(NetworksTest, ANameThatNobodyHasIsAnError) {
  const ptrdiff_t before = threads();
  const auto unknown = networks_.engine("nobody");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), Code::InvalidUsage);
  EXPECT_NE(unknown.error().text().find("there is no network 'nobody'"), std::string::npos) << unknown.error().text();
  EXPECT_FALSE(openNetwork("nobody"));
  EXPECT_TRUE(openNetwork("socket"));
  EXPECT_EQ(threads(), before);
}

}  // namespace
}  // namespace tutti::comm::networks_test
