#include "tune/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace tutti::tune::store_test {
namespace {

class Store : public testing::Test {
 protected:
  void SetUp() override {
    char made[] = "/tmp/tutti_store_" "XX" "XX" "XX";
    ASSERT_NE(mkdtemp(made), nullptr);
    root_ = made;
    folder_ = root_ + "/a/b";
  }
  void TearDown() override {
    for (const std::string& path : {storedPath(folder_, "k"), folder_, root_ + "/a", root_}) (void)std::remove(path.c_str());
  }
  static Platform platform() {
    Platform made;
    made.name = "measured";
    made.source = "a test";
    made.key = "k";
    made.host = hostMachine();
    made.host->hopNs = 123.5;
    return made;
  }
  void write(const std::string& text) const { std::ofstream(storedPath(folder_, "k")) << text; }
  std::string refusal() const {
    const auto stored = readStored(folder_, "k");
    return stored ? "accepted" : stored.error().text();
  }
  std::string root_;
  std::string folder_;
};

TEST_F(Store, WhatWasWrittenIsReadAgain) {
  const auto none = readStored(folder_, "k");
  ASSERT_TRUE(none) << none.error().text();
  EXPECT_FALSE(*none);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(writeStored(folder_, platform()).ok());
  const auto stored = readStored(folder_, "k");
  ASSERT_TRUE(stored && *stored) << refusal();
  EXPECT_EQ((*stored)->host->hopNs, 123.5);
  EXPECT_EQ(digestOf(**stored), digestOf(platform()));
  Platform other = platform();
  other.host->hopNs = 124;
  EXPECT_NE(digestOf(other), digestOf(platform()));
}

TEST_F(Store, ABrokenFileIsRefusedByName) {
  ASSERT_TRUE(writeStored(folder_, platform()).ok());
  for (const std::string& text : {std::string("{"), std::string(), toText(platform()).substr(0, 100), std::string(2 << 20, ' ')}) {
    write(text);
    EXPECT_EQ(refusal().find(storedPath(folder_, "k")), 0u) << refusal();
  }
  Platform foreign = platform();
  foreign.key = "other";
  write(toText(foreign));
  EXPECT_NE(refusal().find("machine 'other'"), std::string::npos) << refusal();
  ASSERT_EQ(std::remove(storedPath(folder_, "k").c_str()), 0);
  ASSERT_EQ(mkdir(storedPath(folder_, "k").c_str(), 0700), 0);
  EXPECT_NE(refusal().find("cannot be read"), std::string::npos) << refusal();
  EXPECT_FALSE(writeStored(folder_, platform()).ok()) << "a folder is in the way";
}

TEST_F(Store, TheFolderIsTheVariablesOrTheUsers) {
  setenv("XDG_CACHE_HOME", "/x", 1);
  setenv("HOME", "/h", 1);
  EXPECT_EQ(cacheFolder("/t"), "/t");
  EXPECT_EQ(cacheFolder(""), "/x/tutti");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cacheFolder(""), "/h/.cache/tutti");
  unsetenv("HOME");
  EXPECT_EQ(cacheFolder(""), "");
}

TEST(MachineKey, IsTheSameEveryTime) {
  EXPECT_EQ(machineKey().size(), 16u);
  EXPECT_EQ(machineKey(), machineKey());
}

}  // namespace
}  // namespace tutti::tune::store_test
