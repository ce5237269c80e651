#include "config/files.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "config/params.h"

namespace tutti::config::files_test {
namespace {

using namespace std::string_literals;

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const Entry& entry : table()) unsetenv(entry.name);
    for (const char* name : {"A", "B", " C", "D ", "E"}) unsetenv(name);
    path_ = testing::TempDir() + "tutti_conf_" + std::to_string(getpid());
  }
  void TearDown() override {
    unlink(path_.c_str());
    for (const Entry& entry : table()) unsetenv(entry.name);
    resetForTest();
  }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  static std::string value(const char* name) {
    const char* text = getenv(name);
    return text ? text : "(unset)";
  }
  std::string path_;
};

TEST_F(FilesTest, LinesBecomeVariablesUntrimmedAndUnquoted) {
  write("A=1\n#B=2\n C= x \nD =\"q\"\n\nno divider\n=nameless\nE=a=b");
  EXPECT_TRUE(loadFile(path_.c_str()));
  EXPECT_EQ(value("A"), "1");
  EXPECT_EQ(value("B"), "(unset)");
  EXPECT_EQ(value(" C"), " x ");
  EXPECT_EQ(value("D "), "\"q\"");
  EXPECT_EQ(value("E"), "a=b");
}

TEST_F(FilesTest, TheEnvironmentWins) {
  setenv("A", "mine", 1);
  setenv("B", "", 1);
  write("A=theirs\nB=theirs\nE=first\nE=second\n");
  EXPECT_TRUE(loadFile(path_.c_str()));
  EXPECT_EQ(value("A"), "mine");
  EXPECT_EQ(value("B"), "");
  EXPECT_EQ(value("E"), "first");
}

TEST_F(FilesTest, NamesAndValuesAreCut) {
  const std::string longName(1500, 'N');
  write("A=" + std::string(3000, 'v') + "\n" + longName + "=1\n");
  EXPECT_TRUE(loadFile(path_.c_str()));
  EXPECT_EQ(value("A"), std::string(1023, 'v'));
  EXPECT_EQ(value(longName.substr(0, 1023).c_str()), "1");
  unsetenv(longName.substr(0, 1023).c_str());
}

TEST_F(FilesTest, BinaryJunkIsHarmless) {
  write("A=1\0=2\n\0\nB\0=3\nE=4"s);
  EXPECT_TRUE(loadFile(path_.c_str()));
  EXPECT_EQ(value("A"), "1");
  EXPECT_EQ(value("B"), "(unset)");
  EXPECT_EQ(value("E"), "4");
}

TEST_F(FilesTest, AMissingFileIsNoError) {
  EXPECT_FALSE(loadFile("/nonexistent/nccl.conf"));
  write("");
  EXPECT_TRUE(loadFile(path_.c_str()));
}

TEST_F(FilesTest, TheUserFileIsNamedOrInTheHomeOfThePasswordDatabase) {
  setenv("HOME", "/somewhere/else", 1);
  const passwd* entry = getpwuid(getuid());
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(findUserFile(), std::string(entry->pw_dir) + "/.nccl.conf");
  setenv("NCCL_CONF_FILE", "", 1);
  EXPECT_EQ(findUserFile(), std::string(entry->pw_dir) + "/.nccl.conf");
  setenv("NCCL_CONF_FILE", "/a/b", 1);
  EXPECT_EQ(findUserFile(), "/a/b");
}

TEST_F(FilesTest, TheFirstReadLoadsTheNamedFileOnce) {
  write("TUTTI_SLOTS=5\nNCCL_ALGO=Tree\n");
  setenv("NCCL_CONF_FILE", path_.c_str(), 1);
  setenv("NCCL_ALGO", "Ring", 1);
  resetForTest();
  EXPECT_EQ(getNumber(Param::TuttiSlots), 5);
  EXPECT_EQ(getText(Param::Algo), "Ring");
  EXPECT_EQ(value("TUTTI_SLOTS"), "5") << "visible to the whole process";
  write("TUTTI_SPIN=9\n");
  EXPECT_EQ(getNumber(Param::TuttiSpin), -1) << "not read again";
}

}  // namespace
}  // namespace tutti::config::files_test
